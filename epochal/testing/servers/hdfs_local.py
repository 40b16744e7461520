"""HDFS as processes of this machine, all on 127.0.0.1, each of which can be killed alone."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from epochal.testing.servers import hdfs_site
from epochal.testing.servers.artifacts import HDFS, jars
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import HdfsCluster
from epochal.testing.servers.hdfs_site import Ports
from epochal.testing.servers.java import find_java
from epochal.testing.servers.keeping import Keeper
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.ports import free_port, is_free
from epochal.testing.servers.routes import Route
from epochal.testing.servers.wishes import HdfsWishes

HOST = "127.0.0.1"
GOOD = (17, 21)  # tried on 17; Spark runs the same version of its client on 21 too
MEMORY = "cluster.json"
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
JVM = (
    "-Xmx256m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dfile.encoding=UTF-8",
)


def start(wishes: HdfsWishes, tell: Callable[[str], None] | None) -> HdfsCluster:
    """Format it unless it was used before, and start all processes."""
    java = find_java("HDFS", GOOD)
    found = jars(HDFS, java, tell)
    keeper = Keeper(wishes.folder)
    try:
        folder = keeper.folder
        ports = _ports(folder, wishes)
        classes = f"{found[0].parent}/*"

        def process(main: str, number: int | None, *arguments: str, name: str = "") -> HdfsProcess:
            conf = hdfs_site.write(folder, HOST, ports, wishes.replicas, wishes.settings, number)
            home = conf.parent
            tmp = home / "tmp"
            tmp.mkdir(exist_ok=True)
            options = (f"-Djava.io.tmpdir={tmp}", f"-DHADOOP_USER_NAME={getpass.getuser()}", *wishes.java_options)
            classpath = f"{conf}{os.pathsep}{classes}"
            command = [str(java.command), *JVM, *options, "-cp", classpath, main, *arguments]
            what = name or ("NameNode" if number is None else f"DataNode {number + 1}")
            made = HdfsProcess(keeper, f"HDFS's {what}", command, home, home / "log", timeout=wishes.timeout)
            made.port = ports.web if number is None else ports.datanodes[number][0]
            return made

        namenode = process(NAMENODE, None)
        datanodes = [process(DATANODE, number) for number in range(wishes.datanodes)]

        cluster = HdfsCluster(
            f"hdfs://{HOST}:{ports.rpc}",
            f"http://{HOST}:{ports.web}",
            namenode=namenode,
            datanodes=datanodes,
            replication=wishes.replicas,
            route=Route.LOCAL,
            end=partial(end_all, keeper, [*datanodes, namenode], in_order=wishes.folder is not None),
            timeout=wishes.timeout,
        )
        if not (folder / "namenode" / "data" / "current").exists():
            _format(process(NAMENODE, None, "-format", "-nonInteractive", "-force", name="formatting"))
        if tell:
            tell(f"starting {cluster.uri} with DataNodes: {len(datanodes)}")
        for one in (namenode, *datanodes):
            one.launch()
        for one in (namenode, *datanodes):
            one.wait_until_ready()
        cluster.wait_until_ready()
    except BaseException:
        keeper.end()
        raise
    return cluster


class HdfsProcess(LocalProcess):
    """The NameNode or a DataNode."""

    port = 0

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        """Return when it listens; what the NameNode thinks of it is another question (`wait_until_ready` of all)."""
        self.wait_until(lambda: not is_free(HOST, self.port))


def _format(process: HdfsProcess) -> None:
    process.launch()
    try:
        process.wait_until(lambda: False)
    except ServerFailed:
        if process.code() != 0:
            raise


def _ports(folder: Path, wishes: HdfsWishes) -> Ports:
    """A folder that was used before keeps its ports: DataNodes know their NameNode by them."""
    memory = folder / MEMORY
    if memory.exists():
        known = json.loads(memory.read_text())
        if len(known["datanodes"]) != wishes.datanodes:
            raise ServerFailed(f"{folder} holds a cluster with datanodes={len(known['datanodes'])}")
        ports = Ports(rpc=known["rpc"], web=known["web"], datanodes=tuple(map(tuple, known["datanodes"])))
        if wishes.port not in (None, ports.rpc):
            raise ServerFailed(f"{folder} holds a cluster at port {ports.rpc}, not {wishes.port}")
    else:
        ports = _drawn(wishes)
    for port in ports.all:
        if not is_free(HOST, port):
            raise ServerFailed(f"{HOST}:{port} is in use")
    found = {"rpc": ports.rpc, "web": ports.web, "datanodes": [list(three) for three in ports.datanodes]}
    memory.write_text(json.dumps(found))
    return ports


def _drawn(wishes: HdfsWishes) -> Ports:
    taken = [wishes.port] if wishes.port else []

    def one() -> int:
        taken.append(free_port([HOST], taken))
        return taken[-1]

    rpc = wishes.port or one()
    return Ports(rpc=rpc, web=one(), datanodes=tuple((one(), one(), one()) for _ in range(wishes.datanodes)))
