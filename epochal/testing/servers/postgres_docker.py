"""PostgreSQL in a container.

The image must have a user `postgres`, and the server's programs in PATH or /usr/lib/postgresql, as the official one
does; its entry point is not used. So a container makes its database as a local process does, with the same settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from epochal.testing.servers import containers, postgres_local
from epochal.testing.servers.containers import FILES, ContainerNode, Containers, Image
from epochal.testing.servers.options import PostgresOptions
from epochal.testing.servers.ports import free_port
from epochal.testing.servers.postgres_cluster import DATABASE, USER, PostgresServer
from epochal.testing.servers.routes import POSTGRES_IMAGE, Route

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE = Image("postgres:17", POSTGRES_IMAGE)
HOST = "127.0.0.1"
HOME = PurePosixPath("/tmp/epochal")  # writable in every image
SECRET = f"{FILES}/password"
ANYBODY = "host all all all"  # on loopback outside; inside, its clients come from the engine's network


def start(options: PostgresOptions, tell: Callable[[str], None] | None) -> PostgresServer:
    """Start the server. It makes its folder and its database at its first start."""
    made = Containers(IMAGE, options)
    try:
        host = containers.elsewhere() or HOST
        port = options.port or free_port([HOST])
        files: dict[Path, str] = {}
        given = containers.carried(options.settings, files)
        values = {**postgres_local.SMALL, **{name: _own(value, files) for name, value in given.items()}}
        entry = ["sh", "-c", script(port, values, list(files.values()), has_password=options.password is not None)]
        container = made.container(entrypoint=entry, user="postgres")
        if options.password is not None:
            container.with_copy_into_container(f"{options.password}\n".encode(), SECRET)
        containers.copy_into(container, files)
        containers.publish(container, HOST, port)
        node = PostgresNode(container, host, port, timeout=options.timeout)
        if tell:
            tell(f"starting {host}:{port} in a container of {IMAGE.name}")
        made.launch(container)
        node.wait_until_ready()
    except BaseException:
        made.end()
        raise
    return PostgresServer(
        [node],
        port,
        route=Route.DOCKER,
        end=made.end,
        password=options.password,
        timeout=options.timeout,
    )


class PostgresNode(ContainerNode):
    """The server as a container."""

    def __init__(self, container: DockerContainer, host: str, port: int, *, timeout: float) -> None:
        super().__init__(container, f"PostgreSQL on {host}:{port}", host, timeout=timeout)
        self._port = port

    def answers(self) -> bool:
        return postgres_local.answers(self.host, self._port)


def script(port: int, values: dict[str, object], files: list[str], *, has_password: bool) -> str:
    """What the container runs at each start."""
    login = f"--auth=scram-sha-256 --pwfile={SECRET}" if has_password else "--auth=trust"
    data = HOME / "data"
    method = "scram-sha-256" if has_password else "trust"
    settings = [part for name, value in values.items() for part in ("-c", f"{name}={postgres_local.spelled(value)}")]
    making = [
        f"initdb -D {data} {login} --username={USER} --encoding=UTF8 --locale=C --no-sync >&2",
        f"echo 'CREATE DATABASE {DATABASE};' | postgres --single -D {data} postgres >&2",
        f"echo '{ANYBODY} {method}' >> {data}/pg_hba.conf",
        # Its own, and closed to others: else the server refuses a key.
        *(f"install -m 600 {shlex.quote(file)} {shlex.quote(str(_inside(file)))}" for file in files),
        f"touch {HOME}/made",
    ]
    steps = [
        "PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)",
        f"mkdir -p {HOME}",
        f"[ -e {HOME}/made ] || {{ rm -rf {data}; {' && '.join(making)}; }} || exit",
        f"rm -f {data}/postmaster.pid",  # a killed one leaves it, and nothing else runs here
        f"exec postgres -D {data} -h '*' -p {port} {shlex.join(settings)}",
    ]
    return "\n".join(steps)


def _own(value: object, files: dict[Path, str]) -> object:
    """A setting's value: of a file, the copy that the server has made."""
    return str(_inside(str(value))) if value in files.values() else value


def _inside(file: str) -> PurePosixPath:
    return HOME / PurePosixPath(file).name
