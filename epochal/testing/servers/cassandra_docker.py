"""Cassandra in containers, by testcontainers.

Each node is published on an address of its own of this machine's loopback, with the same port outside and inside, and
tells clients just that address: a driver that asks one node for the others finds them. The image must run Cassandra 5
in the foreground and heed JVM_EXTRA_OPTS and MAX_HEAP_SIZE, as the official one does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.testing.servers import cassandra_yaml, container_removal, cql
from epochal.testing.servers.cassandra_yaml import Place
from epochal.testing.servers.cluster import CassandraCluster
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.keeping import Keeper
from epochal.testing.servers.ports import free_port
from epochal.testing.servers.routes import CASSANDRA_IMAGE, ROUTES, Route
from epochal.testing.servers.waiting import wait_until
from epochal.testing.servers.wishes import Wishes

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

IMAGE = "cassandra:5.0"
USUAL_ENGINE = "unix:///var/run/docker.sock"
PATIENCE = 5  # seconds for an engine to say that it is there
HOME = "/var/lib/cassandra"
FILES = "/etc/epochal"
STORAGE_PORT = 7000
GENTLE = 20
ENGINE_TIMEOUT = 300  # seconds of silence; an image is pulled the first time
LINES = 60
TAIL = 4_000
SEED = "node1"
OPTIONS = (
    f"-Dcassandra.config=file://{FILES}/cassandra.yaml",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.consistent.rangemovement=false",
    "-XX:TieredStopAtLevel=1",
)


def engine_answers() -> bool:
    """Whether testcontainers is installed and has an engine to talk to."""
    if find_spec("testcontainers") is None:
        return False
    try:
        from testcontainers.core.docker_client import DockerClient, get_docker_host

        # Looked at first, for Docker's own client does not close a socket at which nobody answers.
        host = get_docker_host() or USUAL_ENGINE
        if host.startswith("unix://"):
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
                probe.connect(host.removeprefix("unix://"))
        client = DockerClient(timeout=PATIENCE).client
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:  # noqa: BLE001  # no socket, no permission, a stale DOCKER_HOST: all of them mean no
        return False


def start(wishes: Wishes, tell: Callable[[str], None] | None) -> CassandraCluster:
    """Start all nodes; the first alone, for the others ask it who is there."""
    if wishes.folder:
        raise ServerFailed(f"containers keep no folder of yours; set {ROUTES}=local for folder={str(wishes.folder)!r}")
    if find_spec("testcontainers") is None:
        raise ServerFailed(f"{ROUTES} is docker, and testcontainers is not installed: pip install testcontainers")
    hosts = _hosts(wishes.nodes)
    port = wishes.port or free_port(["127.0.0.1"] if _elsewhere() else hosts)
    keeper = Keeper()
    try:
        label = f"epochal.{uuid.uuid4().hex}"
        # Before there is anything to remove, so that there is no moment at which nobody would.
        keeper.at_end([sys.executable, container_removal.__file__, label])
        network = _network(label)
        nodes = [
            ContainerNode(_container(network, label, n, hosts, port, wishes), hosts[n], port, wishes)
            for n in range(wishes.nodes)
        ]
        tls = cassandra_yaml.has_tls(wishes.settings)
        cluster = CassandraCluster(nodes, port, route=Route.DOCKER, end=keeper.end, tls=tls, timeout=wishes.timeout)
        for some in (nodes[:1], nodes[1:]):
            for node in some:
                if tell:
                    tell(f"starting {node.host}:{port} in a container of {image()}")
                node.launch(first=nodes[0])
            for node in some:
                node.wait_until_ready()
        cluster.wait_until_whole()
    except BaseException:
        keeper.end()
        raise
    return cluster


def image() -> str:
    """The image's name."""
    return os.environ.get(CASSANDRA_IMAGE) or IMAGE


class ContainerNode:
    """A node as a container."""

    def __init__(self, container: DockerContainer, host: str, port: int, wishes: Wishes) -> None:
        self._container = container
        self._host = host
        self._port = port
        self._wishes = wishes
        self._fresh = True

    @property
    def host(self) -> str:
        return self._host

    @property
    def pid(self) -> int:
        if not self.running:
            raise ServerFailed(f"{self.name} does not run")
        return int(self._docker.attrs["State"]["Pid"])

    @property
    def running(self) -> bool:
        self._docker.reload()
        return bool(self._docker.attrs["State"]["Running"])

    def launch(self, first: ContainerNode) -> None:
        """Make the container and start it, and do not wait. All but the first are told where the first is."""
        if first is not self:
            # By number: not every engine's own name service works.
            self._container.with_kwargs(**self._container._kwargs, extra_hosts={SEED: first.address})
        try:
            self._container.start()
        except Exception as fault:
            raise ServerFailed(
                f"the engine could not start {image()}: {fault}. {CASSANDRA_IMAGE} names another image, "
                f"{ROUTES}=local does without"
            ) from fault

    @property
    def address(self) -> str:
        """Its own on the containers' network."""
        self._docker.reload()
        (network,) = self._docker.attrs["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def wait_until_ready(self) -> None:
        """Return when it answers; `ServerFailed` if it ended instead."""
        timeout = self._wishes.timeout
        wait_until(self._answers, timeout, lambda: f"{self.name} did not answer within {timeout:g} s:\n{self.said()}")

    def start(self) -> None:
        self._docker.start()
        self._fresh = False
        self.wait_until_ready()

    def stop(self) -> None:
        self._docker.stop(timeout=GENTLE)

    def kill(self) -> None:
        if self.running:
            self._docker.kill()
            self._docker.wait(timeout=GENTLE)

    def pause(self) -> None:
        self._docker.pause()

    def resume(self) -> None:
        self._docker.unpause()

    def said(self) -> str:
        return bytes(self._docker.logs(tail=LINES)).decode(errors="replace")[-TAIL:]

    @property
    def _docker(self) -> Any:
        """The container as the engine's own client knows it."""
        return self._container.get_wrapped_container()

    @property
    def name(self) -> str:
        return f"Cassandra on {self._host}:{self._port}"

    def _answers(self) -> bool:
        if not self.running:
            raise ServerFailed(f"{self.name} ended while it started:\n{self.said()}")
        if cassandra_yaml.asks_for_certificates(self._wishes.settings):
            return cql.speaks_tls(self._host, self._port)
        tls = cassandra_yaml.has_tls(self._wishes.settings)
        return cql.answers(self._host, self._port, tls=tls, log_in=self._fresh)


def _network(label: str) -> Network:
    from testcontainers.core.network import Network

    try:
        return Network(docker_network_kw={"labels": {label: ""}}).create()
    except Exception as fault:
        raise ServerFailed(f"the engine does not answer: {fault}; {ROUTES}=local does without") from fault


def _container(
    network: Network, label: str, number: int, hosts: list[str], port: int, wishes: Wishes
) -> DockerContainer:
    from testcontainers.core.container import DockerContainer

    place = Place(
        number=number,
        nodes=wishes.nodes,
        listen=f"node{number + 1}",
        seed=SEED,
        storage_port=STORAGE_PORT,
        port=port,
        folder=HOME,
        rpc="0.0.0.0",  # of the container; outside it is published on loopback
        reached=hosts[number],
    )
    files: dict[Path, str] = {}
    values = cassandra_yaml.settings(place, carried(wishes.settings, files))
    made = (
        DockerContainer(image(), docker_client_kw={"timeout": ENGINE_TIMEOUT})
        .with_network(network)
        .with_network_aliases(place.listen)
        .with_env("JVM_EXTRA_OPTS", " ".join((*OPTIONS, *wishes.java_options)))
        .with_env("MAX_HEAP_SIZE", "512m")
        .with_env("HEAP_NEWSIZE", "128m")
        .with_kwargs(hostname=place.listen, labels={label: ""})
        .with_copy_into_container(cassandra_yaml.text(values).encode(), f"{FILES}/cassandra.yaml")
    )
    for path, inside in files.items():
        made = made.with_copy_into_container(path, inside)
    published: dict[str, Any] = made.ports  # testcontainers' own method has no place for the address
    published[f"{port}/tcp"] = port if _elsewhere() else (hosts[number], port)
    return made


def carried(values: Mapping[str, Any], files: dict[Path, str]) -> dict[str, Any]:
    """The settings with each `Path` as it is inside the container; what has to be copied is added to the files."""

    def inside(value: Any) -> Any:
        if isinstance(value, Path):
            return files.setdefault(value, f"{FILES}/{len(files)}-{value.name}")
        if isinstance(value, Mapping):
            return carried(value, files)
        return [inside(one) for one in value] if isinstance(value, list | tuple) else value

    return {key: inside(value) for key, value in values.items()}


def _hosts(nodes: int) -> list[str]:
    """Where the nodes are reached."""
    override = _elsewhere()
    if override is None:
        return [f"127.0.0.{number + 1}" for number in range(nodes)]
    if nodes > 1:
        raise ServerFailed(f"three nodes need three addresses, and TESTCONTAINERS_HOST_OVERRIDE is {override}")
    return [override]


def _elsewhere() -> str | None:
    """The address of an engine's machine that is not this one, if the user says that it is so."""
    from testcontainers.core.config import testcontainers_config

    override = testcontainers_config.tc_host_override
    return override if override not in ("", "localhost", "127.0.0.1") else None
