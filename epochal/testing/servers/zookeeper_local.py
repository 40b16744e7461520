"""ZooKeeper as a local process on 127.0.0.1, from the jars that pyspark brings along: nothing is fetched."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from epochal.testing.servers import kafka_properties
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.java import QUICK, Java, find_java
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.options import ZooKeeperOptions
from epochal.testing.servers.ports import TIMEOUT, free_port, recall, remember
from epochal.testing.servers.routes import Route
from epochal.testing.servers.supervisor import Supervisor
from epochal.testing.servers.zookeeper_cluster import ZooKeeperCluster

HOST = "127.0.0.1"
GOOD = (17, 21)  # what Spark runs on; tried on 17
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
JVM = ("-Xms32m", "-Xmx128m", "-Xss512k", *QUICK, "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true")
# A session may last from 1 to 20 s.
USUAL = {"tickTime": 500, "maxClientCnxns": 0, "admin.enableServer": "false", "4lw.commands.whitelist": "ruok"}


def start(options: ZooKeeperOptions, tell: Callable[[str], None] | None) -> ZooKeeperCluster:
    """Start the server, on the data that the folder has."""
    java = find_java("ZooKeeper", GOOD)
    found = jars()
    supervisor = Supervisor(options.folder)
    try:
        home = supervisor.folder / "server"
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        known = recall(supervisor.folder)
        port = options.port or (int(known["port"]) if known else free_port([HOST]))
        remember(supervisor.folder, {"port": port}, [(HOST, port)])
        file = home / "zoo.cfg"
        file.write_text(kafka_properties.text(settings(home, port, options.settings)))
        command = [*command_of(java, found, home, options.java_options), str(file)]
        server = Server(supervisor, f"ZooKeeper on {HOST}:{port}", command, home, home / "log", timeout=options.timeout)
        server.port = port
        end = partial(end_all, supervisor, [server], in_order=options.folder is not None)
        if tell:
            tell(f"starting {HOST}:{port}")
        server.start()
    except BaseException:
        supervisor.end()
        raise
    return ZooKeeperCluster([server], port, route=Route.LOCAL, end=end, timeout=options.timeout)


def jars() -> Path:
    """The folder of pyspark's jars, which has ZooKeeper's."""
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in [Path(folder, "jars") for folder in folders]:
        if any(folder.glob("zookeeper-3.*.jar")):
            return folder
    raise ServerFailed("ZooKeeper comes with pyspark, and its jars are not there: pip install 'pyspark>=4.2,<4.3'")


def settings(home: Path, port: int, given: Mapping[str, object]) -> dict[str, str]:
    """The lines of zoo.cfg; the given ones override those here."""
    own = {**USUAL, "dataDir": home / "data", "clientPort": port, "clientPortAddress": HOST, **given}
    return {name: str(value) for name, value in own.items()}


def command_of(java: Java, jars: Path, home: Path, options: Sequence[str]) -> list[str]:
    """The command but for the name of its zoo.cfg."""
    jvm = [*JVM, f"-Djava.io.tmpdir={home / 'tmp'}", *options]
    return [str(java.command), *jvm, "-cp", os.path.join(jars, "*"), MAIN]


class Server(LocalProcess):
    """The server as a process of the supervisor."""

    port = 0

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: answers(HOST, self.port))


def answers(host: str, port: int) -> bool:
    """Whether a server answers ``ruok``."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
    except OSError:
        return False
