"""An HDFS for a benchmark: where it is, and what a session needs to write there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from epochal.testing import servers
from epochal.testing.servers.routes import HDFS


@contextmanager
def hdfs(heap: str | None = None) -> Iterator[tuple[str, dict[str, str]]]:
    """Its URI and a session's settings. Paths without a scheme stay local: checkpoints go there.

    `heap` is the most memory of each server, such as "2g", unless the user runs them.
    """
    ours = heap is not None and not os.environ.get(HDFS)
    with servers.hdfs(java_options=(f"-Xmx{heap}",) if ours else ()) as cluster:
        yield cluster.uri, {key: value for key, value in cluster.settings.items() if "defaultFS" not in key}
