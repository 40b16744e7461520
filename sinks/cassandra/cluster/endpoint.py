"""Where a cluster is, how to speak to it, and with which secrets.

Passwords come from the sink's options or the environment and go to the executors with the task; they are in no
description, handle, log or error. An endpoint that a journal describes gets them only if its hosts were named by
whoever runs the command, and without TLS only if that was allowed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from epochal.sinks.config import trust
from epochal.txn.errors import Refused
from epochal.txn.model import Json

USER, PASSWORD = "EPOCHAL_CASSANDRA_USER", "EPOCHAL_CASSANDRA_PASSWORD"  # names of variables
TLS, CA_FILE = "EPOCHAL_CASSANDRA_TLS", "EPOCHAL_CASSANDRA_CA_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the cluster is and how to speak to it."""

    contact_points: tuple[str, ...]
    port: int = 9042
    datacenter: str | None = None
    consistency: str = "LOCAL_QUORUM"
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    from_journal: bool = False  # nobody else names the hosts
    complete: bool = False  # the secrets are there, or are not to be
    withheld: bool = False  # there are some, and these hosts do not get them

    @property
    def place(self) -> str:
        """The cluster, for messages."""
        return f"Cassandra at {', '.join(self.contact_points)}, port {self.port}"

    def with_secrets(self) -> Endpoint:
        """With user and password from the environment, where the options have none and the hosts may have them."""
        if self.complete:
            return self
        user, password = self.user or os.environ.get(USER), self.password or os.environ.get(PASSWORD)
        whole = replace(self, user=user, password=password, complete=True)
        if not self.from_journal:
            return whole
        if ca_file := os.environ.get(CA_FILE):
            whole = replace(whole, tls=True, ca_file=ca_file)
        if not (user or self.cert_file):
            return whole
        if trust.distrusted(self.contact_points, self.port):
            if self.cert_file:
                raise Refused(f"{self.place}: its hosts are named by the journal alone. {self.how_to_trust()}")
            return replace(whole, user=None, password=None, withheld=True)
        if user and not whole.tls and os.environ.get(TLS, "").lower() != "off":
            raise Refused(
                f"{self.place}: the journal describes it without TLS, and the password would be sent for anybody to "
                f"read. Nothing was sent. If the cluster has no TLS, set {TLS}=off. If it has, the journal was "
                f"changed: set {CA_FILE}"
            )
        return whole

    def how_to_trust(self) -> str:
        """What to do to have secrets sent to hosts that a journal names."""
        hosts = ",".join(trust.distrusted(self.contact_points, self.port))
        return (
            "No password and no certificate was sent there. If they are yours, name them: "
            f"--trust {hosts}, or {trust.HOSTS}={hosts}"
        )

    def describe(self) -> dict[str, Json]:
        """Everything but the secrets."""
        return {
            "contact_points": list(self.contact_points),
            "port": self.port,
            "datacenter": self.datacenter,
            "consistency": self.consistency,
            "tls": self.tls,
            "ca_file": self.ca_file,
            "cert_file": self.cert_file,
            "key_file": self.key_file,
        }
