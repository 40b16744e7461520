"""An object store as a local process on 127.0.0.1: moto's server, or versitygw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from epochal.testing.servers import s3_moto, s3_versitygw
from epochal.testing.servers.local_process import end_all
from epochal.testing.servers.options import S3Options
from epochal.testing.servers.ports import free_port, recall, remember
from epochal.testing.servers.routes import Route
from epochal.testing.servers.s3_cluster import S3Store
from epochal.testing.servers.s3_process import HOST, S3Process
from epochal.testing.servers.supervisor import Supervisor

Kind = Callable[[Supervisor, int, S3Options, Callable[[str], None] | None], S3Process]
KINDS: Mapping[str, Kind] = MappingProxyType({"moto": s3_moto.server, "versitygw": s3_versitygw.server})


def start(options: S3Options, tell: Callable[[str], None] | None) -> S3Store:
    """Start the server, with the bucket."""
    supervisor = Supervisor(options.folder)
    try:
        known = recall(supervisor.folder)
        port = options.port or (int(known["port"]) if known else free_port([HOST]))
        remember(supervisor.folder, {"port": port}, [(HOST, port)])
        server = KINDS[options.server or "moto"](supervisor, port, options, tell)
        server.port, server.bucket = port, options.bucket
        if tell:
            tell(f"starting {HOST}:{port}")
        server.start()
    except BaseException:
        supervisor.end()
        raise
    return S3Store(
        [server],
        f"http://{HOST}:{port}",
        options.bucket,
        credentials=server.credentials,
        route=Route.LOCAL,
        end=partial(end_all, supervisor, [server], in_order=options.folder is not None),
        timeout=options.timeout,
    )
