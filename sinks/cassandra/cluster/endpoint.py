"""Where a cluster is, how to connect to it, and with which secrets.

Passwords come from the sink's options or the environment and go to the executors with the task. They are in no
description, handle, log or error. An endpoint that a journal describes gets them only if the user who runs the
command named its hosts, and without TLS only if the user allowed that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from epochal.sinks.config import checks, trust
from epochal.sinks.config.declaring import CheckedOptions, Option, declarations, declared
from epochal.sinks.config.options import Faults
from epochal.txn.errors import SinkUnavailable

USER, PASSWORD = "EPOCHAL_CASSANDRA_USER", "EPOCHAL_CASSANDRA_PASSWORD"  # names of variables
TLS, CA_FILE = "EPOCHAL_CASSANDRA_TLS", "EPOCHAL_CASSANDRA_CA_FILE"
Level = Literal["ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM"]


@declared
@dataclass(frozen=True, kw_only=True)
class Connection(CheckedOptions):
    """Where the cluster is, how to speak to it, and who speaks.

    >>> Connection(contact_points=["db1", "db2"], tls=True, user="writer", password="hunter2")  # secrets are not shown
    Connection(contact_points=('db1', 'db2'), tls=True)
    """

    contact_points: Annotated[
        Sequence[str],
        Option(
            "hosts to begin with; the others are found by them",
            check=checks.names("a list of hosts, such as ['127.0.0.1']"),
            shown_type="list of hosts",
            journal=True,
        ),
    ] = ("127.0.0.1",)
    port: Annotated[
        int,
        Option(
            "the port of clients, the same on all hosts",
            check=checks.whole(1, 65_535, "a number from 1 to 65535"),
            journal=True,
        ),
    ] = 9042
    datacenter: Annotated[str | None, Option("send to this one first", expects="a name", journal=True)] = None
    consistency: Annotated[Level, Option("of writes, and of the reads of accumulate", journal=True)] = "LOCAL_QUORUM"
    user: Annotated[
        str | None,
        Option(
            "or `EPOCHAL_CASSANDRA_USER`; see [secrets](#secrets)",
            expects="a text",
            secret="login",
            shown_default="environment",
        ),
    ] = None
    password: Annotated[
        str | None,
        Option("or `EPOCHAL_CASSANDRA_PASSWORD`", expects="a text", secret=True, shown_default="environment"),
    ] = None
    tls: Annotated[bool, Option("encrypted connections", journal=True)] = False
    ca_file: Annotated[
        str | None,
        Option(
            "the authority that signed the servers' certificates, in PEM",
            expects="the path of a PEM file",
            journal=True,
        ),
    ] = None
    cert_file: Annotated[
        str | None,
        Option("a certificate of this client, in PEM", expects="the path of a PEM file", journal=True),
    ] = None
    key_file: Annotated[
        str | None,
        Option("the key of that certificate, if it is in a file of its own", "the path of a PEM file", journal=True),
    ] = None

    def __repr__(self) -> str:
        """The options that were set, without secrets."""
        options = declarations(type(self)).values()
        given = {one.name: getattr(self, one.name) for one in options if not one.option.secret}
        shown = [
            f"{name}={value!r}" for name, value in given.items() if value != declarations(type(self))[name].default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def check_together(self, faults: Faults) -> None:
        for name in ("ca_file", "cert_file", "key_file"):
            faults.check(getattr(self, name) is None or self.tls is True, f"{name}: only with tls=True")
        both = (self.user is None) == (self.password is None)
        faults.check(both, "user and password: give both or neither (or set them in the environment)")


@dataclass(frozen=True, kw_only=True, repr=False)
class Endpoint(Connection):
    """A connection that knows whether only a journal names its hosts, and so whether they get secrets."""

    from_journal: bool = False  # only the journal names the hosts
    complete: bool = False  # `with_secrets` has been called
    withheld: bool = False  # there are secrets, and these hosts do not get them

    @classmethod
    def of(cls, connection: Connection, *, from_journal: bool = False) -> Endpoint:
        """The endpoint of a connection's options."""
        options: dict[str, Any] = {name: getattr(connection, name) for name in declarations(type(connection))}
        return cls(**options, from_journal=from_journal)

    def check_together(self, faults: Faults) -> None:
        """Nothing: its options were checked as a connection's, and the environment may have a user alone."""

    @property
    def place(self) -> str:
        """The cluster, for messages."""
        return f"Cassandra at {', '.join(self.contact_points)}, port {self.port}"

    def with_secrets(self) -> Endpoint:
        """The endpoint with user and password from the environment, if it has none and its hosts are trusted."""
        if self.complete:
            return self
        user = self.user or os.environ.get(USER) or None
        password = self.password or os.environ.get(PASSWORD) or None
        full = replace(self, user=user, password=password, complete=True)
        if not self.from_journal:
            return full
        if ca_file := os.environ.get(CA_FILE):
            full = replace(full, tls=True, ca_file=ca_file)
        if not (user or self.cert_file):
            return full
        if trust.distrusted(self.contact_points, self.port):
            if self.cert_file:
                raise SinkUnavailable(f"{self.place}: only the journal names its hosts. {self.how_to_trust()}")
            return replace(full, user=None, password=None, withheld=True)
        if user and not full.tls and os.environ.get(TLS, "").lower() != "off":
            raise SinkUnavailable(
                f"{self.place}: the journal describes it without TLS, so the password would be sent in plain text. "
                f"Nothing was sent. If the cluster has no TLS, set {TLS}=off. If it has, the journal was "
                f"changed: set {CA_FILE}"
            )
        return full

    def how_to_trust(self) -> str:
        """What to do to have secrets sent to hosts that a journal names."""
        hosts = ",".join(trust.distrusted(self.contact_points, self.port))
        return (
            "No password and no certificate was sent there. If they are yours, name them: "
            f"--trust {hosts}, or {trust.HOSTS}={hosts}"
        )
