"""A store that the user runs, with a bucket that is there. Clients find its credentials in the environment."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from epochal.testing.servers import given_node
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.routes import S3, Endpoint, Route
from epochal.testing.servers.s3_cluster import S3Store

PATIENCE = 10.0  # seconds; it should be running already


def connect() -> S3Store:
    """Check that it accepts connections."""
    text = os.environ.get(S3, "")
    parts = urlsplit(text)
    bucket = parts.path.strip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not bucket or "/" in bucket or parts.username:
        # Not quoted: it may have a password.
        raise ServerFailed(f"{S3} must be http://host:port/bucket, with a bucket that is there")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    nodes = given_node.connect("S3", S3, Endpoint((parts.hostname,), port), PATIENCE)
    endpoint = f"{parts.scheme}://{parts.netloc}"
    return S3Store(nodes, endpoint, bucket, credentials={}, route=Route.GIVEN, end=lambda: None)
