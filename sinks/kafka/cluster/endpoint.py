"""Where the brokers are, how to speak to them, and with which secrets.

Passwords come from the sink's options or the environment. They are in no description, handle, log or error. Brokers
that only a journal names get them only if the user who runs the command named their hosts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from epochal.participant import TRUSTED_HOSTS, SinkUnavailable, distrusted

USER, PASSWORD = "EPOCHAL_KAFKA_USER", "EPOCHAL_KAFKA_PASSWORD"  # names of variables
KEY_PASSWORD = "EPOCHAL_KAFKA_KEY_PASSWORD"
TLS = "EPOCHAL_KAFKA_TLS"
PORT = 9092


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The brokers of one cluster."""

    servers: tuple[str, ...]
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    sasl: str | None = None
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    from_journal: bool = False  # only the journal names the hosts

    @property
    def place(self) -> str:
        """The cluster, for messages."""
        return f"Kafka at {', '.join(self.servers)}"

    def with_secrets(self) -> Endpoint:
        """The endpoint with user and password from the environment, if it has none and its hosts are trusted."""
        full = replace(
            self,
            user=self.user or os.environ.get(USER) or None,
            password=self.password or os.environ.get(PASSWORD) or None,
            key_password=self.key_password or os.environ.get(KEY_PASSWORD) or None,
        )
        if not self.from_journal or not (self.sasl or self.cert_file):
            return full
        if hosts := self._distrusted():
            names = ",".join(hosts)
            raise SinkUnavailable(
                f"{self.place}: only the journal names its hosts. No password and no certificate was sent there. If "
                f"they are yours, name them: --trust {names}, or {TRUSTED_HOSTS}={names}"
            )
        if self.sasl and not self.tls and os.environ.get(TLS, "").lower() != "off":
            raise SinkUnavailable(
                f"{self.place}: the journal describes it without TLS, so the password would be sent over a connection "
                f"that is not encrypted. Nothing was sent. If the brokers have no TLS, set {TLS}=off. If they have, "
                "the journal was changed"
            )
        return full

    def settings(self) -> dict[str, str | int | bool]:
        """The client's settings; they hold secrets."""
        full = self.with_secrets()
        protocol = {(False, False): "plaintext", (False, True): "ssl", (True, False): "sasl_plaintext"}
        given: dict[str, str | int | bool | None] = {
            "bootstrap.servers": ",".join(full.servers),
            "client.id": "epochal",
            "security.protocol": protocol.get((bool(full.sasl), full.tls), "sasl_ssl"),
            "ssl.ca.location": full.ca_file,
            "ssl.certificate.location": full.cert_file,
            "ssl.key.location": full.key_file,
            "ssl.key.password": full.key_password,
            "sasl.mechanism": full.sasl,
            "sasl.username": full.user if full.sasl else None,
            "sasl.password": full.password if full.sasl else None,
            "allow.auto.create.topics": False,  # a topic that is missing is an error
            "log_level": 0,  # what matters is raised, and logged with its epoch
        }
        return {name: value for name, value in given.items() if value is not None}

    def _distrusted(self) -> list[str]:
        return [server for server in self.servers if distrusted([host_of(server)[0]], host_of(server)[1])]


def host_of(server: str) -> tuple[str, int]:
    """Host and port of ``host:port``.

    >>> host_of("b1:9093"), host_of("[::1]:9092"), host_of("b1")
    (('b1', 9093), ('::1', 9092), ('b1', 9092))
    """
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = server, str(PORT)
    return host.removeprefix("[").removesuffix("]"), int(port)
