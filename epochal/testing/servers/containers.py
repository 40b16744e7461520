"""Servers in containers, by testcontainers: what all kinds of servers have in common.

Containers are published on this machine's loopback only, unless TESTCONTAINERS_HOST_OVERRIDE names another machine. All
containers of a cluster have a label of their own, by which the supervisor removes them however this process ends.
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

FILES = "/etc/epochal"  # the folder for files that are copied into a container
USUAL_ENGINE = "unix:///var/run/docker.sock"
PATIENCE = 5  # seconds for an engine to answer
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

        # Checked first, because Docker's client does not close a socket that nothing answers.
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
    """The address of the engine's machine, if the user has set one that is not this machine."""
    from testcontainers.core.config import testcontainers_config

    override = testcontainers_config.tc_host_override
    return override if override not in ("", "localhost", "127.0.0.1") else None


@dataclass(frozen=True, slots=True)
class Image:
    """The image of a kind of server."""

    public: str
    variable: str  # the environment variable that names another image

    @property
    def name(self) -> str:
        return os.environ.get(self.variable) or self.public


class Containers:
    """The containers of one cluster."""

    def __init__(self, image: Image, options: ServerOptions) -> None:
        if options.folder:
            raise ServerFailed(
                f"containers cannot use a local folder; set {ROUTES}=local for folder={str(options.folder)!r}"
            )
        if find_spec("testcontainers") is None:
            raise ServerFailed(f"{ROUTES} is docker, but testcontainers is not installed: pip install testcontainers")
        self.image = image
        self._label = f"epochal.{uuid.uuid4().hex}"
        self._supervisor = Supervisor()
        # Registered before the first container is made, so that none can be left behind.
        self._supervisor.at_end([sys.executable, container_removal.__file__, self._label])

    def end(self) -> None:
        """Remove them all. Idempotent."""
        self._supervisor.end()

    def network(self, **options: Any) -> Network:
        """Create a network; the options are those of Docker's client."""
        from testcontainers.core.network import Network

        try:
            return Network(docker_network_kw={"labels": {self._label: ""}, **options}).create()
        except Exception as fault:
            raise ServerFailed(f"the engine could not make a network: {fault}; {ROUTES}=local needs none") from fault

    def network_of(self, count: int) -> tuple[Network, list[str]]:
        """Create a network with `count` fixed addresses, which containers keep when they are restarted."""
        from docker.types import IPAMConfig, IPAMPool

        # Fixed addresses need a fixed range: let the engine choose a free one, then ask for that one.
        chosen = self.network()
        found: list[dict[str, str]] = chosen._unwrap_network.attrs["IPAM"]["Config"]
        chosen.remove()
        given = next(one["Subnet"] for one in found if ":" not in one["Subnet"])
        network = self.network(ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=given)]))
        first = IPv4Network(given)[2]  # the one before it is the engine's own
        return network, [str(first + number) for number in range(count)]

    def container(self, **options: Any) -> DockerContainer:
        """Describe a container, not yet created; the options are those of Docker's client."""
        from testcontainers.core.container import DockerContainer

        made = DockerContainer(self.image.name, docker_client_kw={"timeout": ENGINE_TIMEOUT})
        return made.with_kwargs(labels={self._label: ""}, **options)

    def container_at(self, network: Network, address: str) -> DockerContainer:
        """Describe a container with a fixed address on a network."""
        from docker.constants import DEFAULT_DOCKER_API_VERSION
        from docker.types import EndpointConfig

        there = {network.name: EndpointConfig(DEFAULT_DOCKER_API_VERSION, ipv4_address=address)}
        return self.container(networking_config=there).with_network(network)

    def launch(self, container: DockerContainer) -> None:
        """Create and start a container, without waiting for the server."""
        try:
            container.start()
        except Exception as fault:
            raise ServerFailed(
                f"the engine could not start {self.image.name}: {fault}. {self.image.variable} can name another image; "
                f"{ROUTES}=local needs none"
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
        """Wait until it answers. Raises `ServerFailed` if it ends instead."""

        def ready() -> bool:
            if not self.running:
                code = self._state["ExitCode"]
                raise ServerFailed(f"{self.name} ended with {code} while it started:\n{self.log_tail()}")
            return self.answers()

        message = f"{self.name} did not answer within {self._timeout:g} s"
        wait_until(ready, self._timeout, lambda: f"{message}:\n{self.log_tail()}")

    def answers(self) -> bool:
        """Whether the server answers requests."""
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
        """The container as an object of Docker's client."""
        return self.container.get_wrapped_container()

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._docker.attrs["State"]
        return state


def publish(container: DockerContainer, host: str, port: int) -> None:
    """Publish a port at an address of this machine, under the same number outside and inside."""
    published: dict[str, Any] = container.ports  # testcontainers' own method does not take an address
    published[f"{port}/tcp"] = port if elsewhere() else (host, port)


def carried(values: Mapping[str, Any], files: dict[Path, str]) -> dict[str, Any]:
    """The settings with each `Path` replaced by its place in the container. Adds these files to `files`."""

    def inside(value: Any) -> Any:
        if isinstance(value, Path):
            return files.setdefault(value, f"{FILES}/{len(files)}-{value.name}")
        if isinstance(value, Mapping):
            return carried(value, files)
        return [inside(one) for one in value] if isinstance(value, list | tuple) else value

    return {key: inside(value) for key, value in values.items()}


def copy_into(container: DockerContainer, files: Mapping[Path, str]) -> None:
    """Copy these files into the container when it starts."""
    for path, inside in files.items():
        container.with_copy_into_container(path, inside)
