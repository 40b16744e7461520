"""moto's server, from pip. Its data is in memory, and it answers one request at a time."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.options import S3Options
from epochal.testing.servers.s3_process import HOST, S3Process
from epochal.testing.servers.supervisor import Supervisor

PROGRAM = Path(__file__).with_name("s3_moto_process.py")


class Moto(S3Process):
    """After a restart its bucket is empty."""

    # It takes any; clients insist on having some.
    credentials = {  # noqa: RUF012
        "AWS_ACCESS_KEY_ID": "epochal",
        "AWS_SECRET_ACCESS_KEY": "any-will-do",
        "AWS_REGION": "us-east-1",
    }

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: self.asked("PUT", f"/{self.bucket}") == http.client.OK)


def server(supervisor: Supervisor, port: int, options: S3Options, tell: Callable[[str], None] | None) -> S3Process:  # noqa: ARG001
    """The server, not started yet."""
    if any(find_spec(name) is None for name in ("moto", "flask", "flask_cors")):
        raise ServerFailed(
            "the object store is moto's server, which is not installed: "
            "pip install 'moto[s3]>=5.2,<5.3' flask flask-cors, or choose server='versitygw' (--server versitygw), "
            "which Go's tool chain builds"
        )
    command = [sys.executable, "-P", str(PROGRAM), HOST, str(port)]  # -P: its neighbours are no modules of its
    home = supervisor.folder
    return Moto(supervisor, f"S3 on {HOST}:{port}", command, home, home / "log", timeout=options.timeout)
