"""HDFS as local processes on 127.0.0.1, each of which can be killed alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from epochal.testing.servers import hdfs_java, hdfs_site
from epochal.testing.servers.artifacts import HDFS, jars
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import HdfsCluster
from epochal.testing.servers.hdfs_site import Ports
from epochal.testing.servers.java import find_java
from epochal.testing.servers.local_process import LocalProcess, end_all
from epochal.testing.servers.options import HdfsOptions
from epochal.testing.servers.ports import is_free, recall, remember
from epochal.testing.servers.routes import Route
from epochal.testing.servers.supervisor import Supervisor

HOST = "127.0.0.1"


def start(options: HdfsOptions, tell: Callable[[str], None] | None) -> HdfsCluster:
    """Format the folder unless it was used before, and start all processes."""
    java = find_java("HDFS", hdfs_java.GOOD)
    found = jars(HDFS, java, tell)
    supervisor = Supervisor(options.folder)
    try:
        folder = supervisor.folder
        ports = _ports(folder, options)
        classes = f"{found[0].parent}/*"

        def process(number: int | None, *arguments: str) -> HdfsProcess:
            conf = hdfs_site.write(folder, HOST, ports, options.replicas, options.settings, number)
            home = conf.parent
            tmp = home / "tmp"
            tmp.mkdir(exist_ok=True)
            jvm = (f"-Djava.io.tmpdir={tmp}", *hdfs_java.options(options.java_options))
            main = hdfs_java.MAINS["namenode" if number is None else "datanode"]
            command = [str(java.command), *jvm, "-cp", f"{conf}{os.pathsep}{classes}", main, *arguments]
            name = hdfs_site.title(number)
            made = HdfsProcess(supervisor, name, command, home, home / "log", timeout=options.timeout)
            made.port = ports.web if number is None else ports.datanodes[number][0]
            return made

        namenode = process(None)
        datanodes = [process(number) for number in range(options.datanodes)]

        cluster = HdfsCluster(
            f"hdfs://{HOST}:{ports.rpc}",
            f"http://{HOST}:{ports.web}",
            namenode=namenode,
            datanodes=datanodes,
            replication=options.replicas,
            route=Route.LOCAL,
            end=partial(end_all, supervisor, [*datanodes, namenode], in_order=options.folder is not None),
            timeout=options.timeout,
        )
        if not (folder / "namenode" / "data" / "current").exists():
            process(None, *hdfs_java.FORMAT).run_to_end()
        if tell:
            tell(f"starting {cluster.uri} with DataNodes: {len(datanodes)}")
        for one in (namenode, *datanodes):
            one.launch()
        for one in (namenode, *datanodes):
            one.wait_until_ready()
        cluster.wait_until_ready()
    except BaseException:
        supervisor.end()
        raise
    return cluster


class HdfsProcess(LocalProcess):
    """The NameNode or a DataNode."""

    port = 0

    @property
    def host(self) -> str:
        return HOST

    def wait_until_ready(self) -> None:
        """Wait until it listens. `HdfsCluster.wait_until_ready` checks what the NameNode reports."""
        self.wait_until(lambda: not is_free(HOST, self.port))


def _ports(folder: Path, options: HdfsOptions) -> Ports:
    """A folder that was used before keeps its ports: DataNodes have stored the NameNode's."""
    known = recall(folder)
    if known is not None:
        if len(known["datanodes"]) != options.datanodes:
            raise ServerFailed(f"{folder} holds a cluster with datanodes={len(known['datanodes'])}")
        ports = Ports(rpc=known["rpc"], web=known["web"], datanodes=tuple(map(tuple, known["datanodes"])))
        if options.port not in (None, ports.rpc):
            raise ServerFailed(f"{folder} holds a cluster at port {ports.rpc}, not {options.port}")
    else:
        ports = Ports.free(HOST, options.datanodes, options.port)
    cluster = {"rpc": ports.rpc, "web": ports.web, "datanodes": [list(three) for three in ports.datanodes]}
    remember(folder, cluster, [(HOST, port) for port in ports.all])
    return ports
