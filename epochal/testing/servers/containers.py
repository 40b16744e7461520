"""Servers in containers, by testcontainers: what those of every kind have in common.

Containers are published on this machine's loopback only, unless TESTCONTAINERS_HOST_OVERRIDE says that the engine is
elsewhere. All of one cluster bear a label of its own: the supervisor removes what bears it, however this process ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.testing.servers import container_removal
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.options import ServerOptions
from epochal.testing.servers.routes import ROUTES
from epochal.testing.servers.supervisor import Supervisor
from epochal.testing.servers.waiting import wait_until

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

FILES = "/etc/epochal"  # where a container finds what is copied into it
USUAL_ENGINE = "unix:///var/run/docker.sock"
PATIENCE = 5  # seconds for an engine to say that it is there
GENTLE = 20
ENGINE_TIMEOUT = 300  # seconds of silence; an image is pulled the first time
LINES = 60
TAIL = 4_000


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


def elsewhere() -> str | None:
    """The address of an engine's machine that is not this one, if the user says that it is so."""
    from testcontainers.core.config import testcontainers_config

    override = testcontainers_config.tc_host_override
    return override if override not in ("", "localhost", "127.0.0.1") else None


@dataclass(frozen=True, slots=True)
class Image:
    """What the containers of a kind of server are made from."""

    public: str
    variable: str  # of the environment: another one

    @property
    def name(self) -> str:
        return os.environ.get(self.variable) or self.public


class Containers:
    """The containers of one cluster."""

    def __init__(self, image: Image, options: ServerOptions) -> None:
        if options.folder:
            raise ServerFailed(
                f"containers keep no folder of yours; set {ROUTES}=local for folder={str(options.folder)!r}"
            )
        if find_spec("testcontainers") is None:
            raise ServerFailed(f"{ROUTES} is docker, and testcontainers is not installed: pip install testcontainers")
        self.image = image
        self._label = f"epochal.{uuid.uuid4().hex}"
        self._supervisor = Supervisor()
        # Before there is anything to remove, so that there is no moment at which nobody would.
        self._supervisor.at_end([sys.executable, container_removal.__file__, self._label])

    def end(self) -> None:
        """Remove them all. May be called again."""
        self._supervisor.end()

    def network(self, **options: Any) -> Network:
        """One of their own; the options are those of Docker's own client."""
        from testcontainers.core.network import Network

        try:
            return Network(docker_network_kw={"labels": {self._label: ""}, **options}).create()
        except Exception as fault:
            raise ServerFailed(f"the engine made no network: {fault}; {ROUTES}=local does without") from fault

    def network_of(self, count: int) -> tuple[Network, list[str]]:
        """One with an address for each of so many containers, which these keep when they are started again."""
        from docker.types import IPAMConfig, IPAMPool

        # Addresses can be given only in a range that was given too: the engine chooses one that is free, and gets it.
        chosen = self.network()
        found: list[dict[str, str]] = chosen._unwrap_network.attrs["IPAM"]["Config"]
        chosen.remove()
        given = next(one["Subnet"] for one in found if ":" not in one["Subnet"])
        network = self.network(ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=given)]))
        first = IPv4Network(given)[2]  # the one before it is the engine's own
        return network, [str(first + number) for number in range(count)]

    def container(self, **options: Any) -> DockerContainer:
        """One more, not yet made; the options are those of Docker's own client."""
        from testcontainers.core.container import DockerContainer

        made = DockerContainer(self.image.name, docker_client_kw={"timeout": ENGINE_TIMEOUT})
        return made.with_kwargs(labels={self._label: ""}, **options)

    def container_at(self, network: Network, address: str) -> DockerContainer:
        """One more, with an address of its own on a network."""
        from docker.constants import DEFAULT_DOCKER_API_VERSION
        from docker.types import EndpointConfig

        there = {network.name: EndpointConfig(DEFAULT_DOCKER_API_VERSION, ipv4_address=address)}
        return self.container(networking_config=there).with_network(network)

    def launch(self, container: DockerContainer) -> None:
        """Make a container and start it, and do not wait."""
        try:
            container.start()
        except Exception as fault:
            raise ServerFailed(
                f"the engine could not start {self.image.name}: {fault}. {self.image.variable} names another image, "
                f"{ROUTES}=local does without"
            ) from fault


class ContainerNode:
    """A server as a container."""

    def __init__(self, container: DockerContainer, name: str, host: str, *, timeout: float) -> None:
        self.container = container
        self._name, self._host, self._timeout = name, host, timeout

    @property
    def name(self) -> str:
        return self._name

    @property
    def host(self) -> str:
        return self._host

    @property
    def pid(self) -> int:
        if not self.running:
            raise ServerFailed(f"{self.name} does not run")
        return int(self._state["Pid"])

    @property
    def running(self) -> bool:
        from docker.errors import NotFound

        try:
            self._docker.reload()
        except NotFound:  # removed, at the end of its cluster
            return False
        return bool(self._state["Running"])

    def wait_until_ready(self) -> None:
        """Return when it answers; `ServerFailed` if it ended instead."""

        def ready() -> bool:
            if not self.running:
                code = self._state["ExitCode"]
                raise ServerFailed(f"{self.name} ended with {code} while it started:\n{self.log_tail()}")
            return self.answers()

        complaint = f"{self.name} did not answer within {self._timeout:g} s"
        wait_until(ready, self._timeout, lambda: f"{complaint}:\n{self.log_tail()}")

    def answers(self) -> bool:
        """Whether it does what it is there for."""
        raise NotImplementedError

    def start(self) -> None:
        self._docker.start()
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

    def log_tail(self) -> str:
        return bytes(self._docker.logs(tail=LINES)).decode(errors="replace")[-TAIL:]

    @property
    def _docker(self) -> Any:
        """The container as the engine's own client knows it."""
        return self.container.get_wrapped_container()

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._docker.attrs["State"]
        return state


def publish(container: DockerContainer, host: str, port: int) -> None:
    """Let a port be reached at an address of this machine, under the same number outside and inside."""
    published: dict[str, Any] = container.ports  # testcontainers' own method has no place for the address
    published[f"{port}/tcp"] = port if elsewhere() else (host, port)


def carried(values: Mapping[str, Any], files: dict[Path, str]) -> dict[str, Any]:
    """The settings with each `Path` as it is inside the container; what has to be copied is added to the files."""

    def inside(value: Any) -> Any:
        if isinstance(value, Path):
            return files.setdefault(value, f"{FILES}/{len(files)}-{value.name}")
        if isinstance(value, Mapping):
            return carried(value, files)
        return [inside(one) for one in value] if isinstance(value, list | tuple) else value

    return {key: inside(value) for key, value in values.items()}


def copy_into(container: DockerContainer, files: Mapping[Path, str]) -> None:
    """Let the container have these files when it starts."""
    for path, inside in files.items():
        container.with_copy_into_container(path, inside)
