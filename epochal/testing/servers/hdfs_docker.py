"""HDFS in containers.

All processes share the network of one extra container that does nothing else. There they reach each other at
127.0.0.1, at ports that are published on this machine's 127.0.0.1 under the same numbers. So the DataNode addresses
that the NameNode gives to clients work inside and outside, whichever process is killed.

The image must have Hadoop's command `hdfs`, as the official one does. Its entry point and its settings are not used.
"""

from __future__ import annotations

import contextlib
import shlex
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from epochal.testing.servers import containers, hdfs_java, hdfs_site
from epochal.testing.servers.containers import FILES, ContainerNode, Containers, Image
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_cluster import LOOK, HdfsCluster
from epochal.testing.servers.hdfs_site import Ports
from epochal.testing.servers.options import HdfsOptions
from epochal.testing.servers.routes import HDFS_IMAGE, ROUTES, Route

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE = Image("apache/hadoop:3.5.0", HDFS_IMAGE)
HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # inside the containers' network; outside it is published on loopback
HOME = PurePosixPath("/tmp/epochal")  # writable in every image
WAIT = ("sleep", "infinity")


def start(options: HdfsOptions, tell: Callable[[str], None] | None) -> HdfsCluster:
    """Start all processes. The NameNode formats its folder at its first start."""
    made = Containers(IMAGE, options)
    try:
        if not can_be_reached():
            override = f"TESTCONTAINERS_HOST_OVERRIDE is {containers.elsewhere()}"
            raise ServerFailed(f"HDFS sends its clients to {HOST}, but {override}; {ROUTES}=local needs no engine")
        ports = Ports.free(HOST, options.datanodes, options.port)
        network = made.container(entrypoint=WAIT).with_network(made.network())
        for port in ports.all:
            containers.publish(network, HOST, port)

        def process(number: int | None) -> HdfsNode:
            port = ports.web if number is None else ports.datanodes[number][1]
            container = _container(made, network, ports, options, number)
            return HdfsNode(container, hdfs_site.title(number), port, timeout=options.timeout)

        if tell:
            tell(f"starting hdfs://{HOST}:{ports.rpc} in containers of {IMAGE.name}, DataNodes: {options.datanodes}")
        made.launch(network)
        namenode = process(None)
        datanodes = [process(number) for number in range(options.datanodes)]
        cluster = HdfsCluster(
            f"hdfs://{HOST}:{ports.rpc}",
            f"http://{HOST}:{ports.web}",
            namenode=namenode,
            datanodes=datanodes,
            replication=options.replicas,
            route=Route.DOCKER,
            end=made.end,
            timeout=options.timeout,
        )
        for one in (namenode, *datanodes):
            made.launch(one.container)
        for one in (namenode, *datanodes):
            one.wait_until_ready()
        cluster.wait_until_ready()
    except BaseException:
        made.end()
        raise
    return cluster


def can_be_reached() -> bool:
    """Whether the engine is on this machine: HDFS sends its clients to 127.0.0.1."""
    return containers.elsewhere() is None


class HdfsNode(ContainerNode):
    """The NameNode or a DataNode as a container."""

    def __init__(self, container: DockerContainer, name: str, port: int, *, timeout: float) -> None:
        super().__init__(container, name, HOST, timeout=timeout)
        self._port = port

    def answers(self) -> bool:
        """Whether its web server answers. An open port proves nothing, because the engine listens at it too."""
        with contextlib.suppress(OSError, HTTPException):
            urllib.request.urlopen(f"http://{HOST}:{self._port}/jmx?qry=none", timeout=LOOK).close()
            return True
        return False


def _container(
    made: Containers, network: DockerContainer, ports: Ports, options: HdfsOptions, number: int | None
) -> DockerContainer:
    mode = f"container:{network.get_container_id()}"
    # Without `network=None` testcontainers may choose a network itself.
    container = made.container(entrypoint=["sh", "-c", script(number)], network=None, network_mode=mode)
    container.with_env("HADOOP_CONF_DIR", FILES)
    container.with_env("HADOOP_OPTS", " ".join(hdfs_java.options(options.java_options)))
    copied: dict[Path, str] = {}
    given = containers.carried(options.settings, copied)
    settings = hdfs_site.files(HOME, HOST, ports, options.replicas, given, number, listen=EVERYWHERE)
    for name, content in settings.items():
        container.with_copy_into_container(content.encode(), f"{FILES}/{name}")
    containers.copy_into(container, copied)
    return container


def script(number: int | None) -> str:
    """The script that a container runs at each start."""
    # A killed process leaves its pid file, and the next one may have the same pid and refuse to start.
    steps = ["export HADOOP_PID_DIR=$(mktemp -d)"]
    if number is None:
        data = HOME / "namenode" / "data" / "current"
        steps.append(f"[ -e {data} ] || hdfs namenode {shlex.join(hdfs_java.FORMAT)} || exit")
    steps.append(f"exec hdfs {'namenode' if number is None else 'datanode'}")
    return "\n".join(steps)
