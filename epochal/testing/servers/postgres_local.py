"""PostgreSQL as a local process on 127.0.0.1.

It refuses to run as root. Started by root it runs as the user `postgres`, or `nobody`, whose files are in the server's
own folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from epochal.testing.servers import postgres_programs
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.local_process import GENTLE, LocalProcess, children_of, end_all, is_gone
from epochal.testing.servers.options import PostgresOptions
from epochal.testing.servers.ports import TIMEOUT, free_port, recall, remember
from epochal.testing.servers.postgres_cluster import DATABASE, USER, PostgresServer
from epochal.testing.servers.routes import Route
from epochal.testing.servers.supervisor import Supervisor
from epochal.testing.servers.waiting import wait_until

HOST = "127.0.0.1"
OTHERS = ("postgres", "nobody")  # as whom root runs it
SMALL: Mapping[str, object] = {
    "shared_buffers": "32MB",
    "max_connections": 60,
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "logging_collector": "off",
    "timezone": "UTC",
}


def start(options: PostgresOptions, tell: Callable[[str], None] | None) -> PostgresServer:
    """Make the cluster's folder unless it was used before, start the server, and make the database."""
    programs = postgres_programs.find(tell)
    supervisor = Supervisor(options.folder)
    try:
        home = supervisor.folder / "server"
        user = _user() if os.geteuid() == 0 else None
        _make_home(home, user)
        programs = _reachable(programs, home, user)
        known = recall(supervisor.folder)
        port = options.port or (int(known["port"]) if known else free_port([HOST]))
        remember(supervisor.folder, {"port": port}, [(HOST, port)])

        def process(name: str, *arguments: str) -> Server:
            command = [str(programs / name), *arguments]
            made = Server(
                supervisor, f"PostgreSQL on {HOST}:{port}", command, home, home / "log", timeout=options.timeout
            )
            made.port, made.user = port, user
            return made

        data = home / "data"
        if not (data / "PG_VERSION").exists():
            _make_cluster(process, programs, data, options.password)
        values = {**SMALL, **{name: _given(value, home, user) for name, value in options.settings.items()}}
        settings = [part for name, value in values.items() for part in ("-c", f"{name}={spelled(value)}")]
        server = process("postgres", "-D", str(data), "-h", HOST, "-p", str(port), *settings)
        if tell:
            tell(f"starting {HOST}:{port}")
        server.start()
    except BaseException:
        supervisor.end()
        raise
    return PostgresServer(
        [server],
        port,
        route=Route.LOCAL,
        end=partial(end_all, supervisor, [server], in_order=options.folder is not None),
        password=options.password,
        timeout=options.timeout,
    )


class Server(LocalProcess):
    """The server as a process of the supervisor: the postmaster, whose children end with it."""

    port = 0
    end_signal = signal.SIGINT  # SIGTERM waits for clients to leave
    last_signal = signal.SIGQUIT  # after a SIGKILL its shared memory would stay

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: answers(HOST, self.port))

    def kill(self) -> None:
        """Its children see that it is gone and end; a server that starts before that refuses their shared memory."""
        if not self.running:
            return
        self.pause()  # no more children from here on
        children = children_of(self.pid)
        super().kill()
        wait_until(lambda: all(map(is_gone, children)), GENTLE, lambda: f"{self.name} was killed but its children run")


def answers(host: str, port: int, user: str = USER, database: str = DATABASE) -> bool:
    """Whether a server lets this user into this database, or asks for a password."""
    words = b"".join(word.encode() + b"\0" for word in ("user", user, "database", database)) + b"\0"
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT) as connection:
            connection.sendall(struct.pack("!ii", len(words) + 8, 3 << 16) + words)
            return connection.recv(1) == b"R"
    except OSError:
        return False


def _make_cluster(process: Callable[..., Server], programs: Path, data: Path, password: str | None) -> None:
    """`initdb`, then the database, by a server that speaks to nobody else."""
    with tempfile.NamedTemporaryFile("w", prefix="epochal-") as secret:
        login = ["--auth=trust"]
        if password is not None:
            secret.write(password + "\n")
            secret.flush()
            os.chmod(secret.name, 0o644 if os.geteuid() == 0 else 0o600)
            login = ["--auth=scram-sha-256", f"--pwfile={secret.name}"]
        making = [*login, f"--username={USER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        process("initdb", "-D", str(data), *making).run_to_end()
    script = data.parent / "database.sql"
    script.write_text(f"CREATE DATABASE {DATABASE};\n")
    shell = 'exec "$0" --single -D "$1" postgres < "$2"'
    process("/bin/sh", "-c", shell, str(programs / "postgres"), str(data), str(script)).run_to_end()


def _user() -> str:
    for name in OTHERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise ServerFailed(f"PostgreSQL refuses to run as root, and there is no user {' or '.join(OTHERS)}")


def _make_home(home: Path, user: str | None) -> None:
    home.mkdir(exist_ok=True)
    if user is None:
        return
    home.parent.chmod(0o711)  # else the other user could not reach its own folder
    shutil.chown(home, user)
    closed = [str(above) for above in home.parents if not above.stat().st_mode & 0o001]
    if closed:
        raise ServerFailed(
            f"PostgreSQL refuses to run as root, and the user {user!r} cannot enter {closed[-1]}: choose another folder"
        )


def _given(value: object, home: Path, user: str | None) -> object:
    """A setting's value; a file as a copy that is the server's own."""
    if not isinstance(value, Path):
        return value
    mine = home / value.name
    shutil.copyfile(value, mine)
    mine.chmod(0o600)
    if user is not None:
        shutil.chown(mine, user)
    return mine


def _reachable(programs: Path, home: Path, user: str | None) -> Path:
    """The programs where the other user can reach them: those in root's own cache are linked or copied."""
    if user is None or all(above.stat().st_mode & 0o001 for above in programs.parents):
        return programs
    mine = home / "programs"
    if not mine.exists():
        shutil.copytree(programs.parent, mine, copy_function=_link, symlinks=True)
    return mine / "bin"


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def spelled(value: object) -> str:
    """A setting's value as the server reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
