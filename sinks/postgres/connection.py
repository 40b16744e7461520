"""Where the server is, how to speak to it, with which secrets, and what its errors mean.

The password comes from the sink's options or the environment and goes to the executors with the task. It is in no
description, handle, log or error. A server that only a journal names gets it if the user who runs the command named its
hosts, and without TLS only if the user allowed that. libpq's own sources of secrets (PGPASSWORD, ~/.pgpass) are not
used: they would go to any host.

Messages of the server may quote values of rows. What is shown of an error is therefore its name and the column or
constraint, and the server's text only where it cannot have a value in it.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from epochal.participant import TRUSTED_HOSTS, BadRows, Refused, SinkUnavailable, StoreAway, distrusted

log = logging.getLogger("epochal")
USER, PASSWORD = "EPOCHAL_POSTGRES_USER", "EPOCHAL_POSTGRES_PASSWORD"  # names of variables
TLS, CA_FILE = "EPOCHAL_POSTGRES_TLS", "EPOCHAL_POSTGRES_CA_FILE"
ENCRYPTED = ("require", "verify-ca", "verify-full")
CONNECT = 10  # seconds
NO_FILE = os.path.join(os.devnull, "none")
SILENCE = 60_000  # milliseconds without an acknowledgement of what was sent
IDLE = 10.0  # seconds for which a connection waits for its next use; who drops idle ones takes longer
# For one transaction each, so that a pooler may stand between. A driver that stalls in a transaction is cut off by the
# server: it holds the fence. Acknowledged must mean durable, whatever the server's default is.
SETTINGS = """
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                                        ELSE current_setting('synchronous_commit') END, true),
       set_config('lock_timeout', '30s', true), set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '60s', true),
       set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true),
       set_config('IntervalStyle', 'postgres', true), set_config('extra_float_digits', '1', true),
       set_config('bytea_output', 'hex', true), set_config('array_nulls', 'on', true)
"""
# Classes of SQLSTATE and single ones that waiting may cure.
AWAY = ("08", "40", "53", "57", "58", "55P03", "55006", "25006")
QUIET = ("22", "23", "P0", "38", "39")  # of values
# Whose text is the server's own. Any other may quote values: a trigger raises what it likes.
SHOWN = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58", "XX000", "XX001", "XX002")
# What a server says to a client that it does not let in: waiting does not help.
REFUSALS = {
    "password authentication failed": (
        f"check the user and the password; a command takes them from {USER} and {PASSWORD}"
    ),
    "no password supplied": f"it requires a password: give password=, or set {PASSWORD}",
    "pg_hba.conf": "the server's pg_hba.conf does not let this user in from here, or only with TLS",
    "does not exist": f"check the user and the database; a command takes the user from {USER}",
    "certificate verify failed": "the server's certificate is not signed by ca_file",
    "does not match host name": "the server's certificate is for another host",
    "does not support SSL": "the server has no TLS: sslmode='disable', or turn it on there",
    "root certificate file": "give ca_file=, the authority that signed the server's certificate",
}
_IN_COPY = re.compile(r"^COPY staged_[0-9a-f]+, line \d+, column ([co]\d+)", re.MULTILINE)
STARTING = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server, and who speaks to it."""

    hosts: tuple[str, ...]
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sslmode: str = "prefer"
    ca_file: str | None = None
    from_journal: bool = False  # only the journal names the hosts
    withheld: bool = False  # there is a password, and these hosts do not get it

    @property
    def place(self) -> str:
        """The database, for messages."""
        return f"PostgreSQL at {','.join(self.hosts)}:{self.port}, database {self.database}"

    def with_secrets(self) -> Endpoint:
        """The endpoint with user and password from the environment, if it has none and its hosts are trusted."""
        user = self.user or os.environ.get(USER) or None
        password = self.password or os.environ.get(PASSWORD) or None
        full = replace(self, user=user, password=password)
        if not self.from_journal:
            return full
        if ca_file := os.environ.get(CA_FILE):
            full = replace(full, sslmode="verify-full", ca_file=ca_file)
        if password is None:
            return full
        if distrusted(self.hosts, self.port):
            return replace(full, password=None, withheld=True)
        if full.sslmode not in ENCRYPTED and os.environ.get(TLS, "").lower() != "off":
            raise SinkUnavailable(
                f"{self.place}: the journal describes it without TLS (sslmode={full.sslmode!r}), so the password could "
                f"be sent in plain text. Nothing was sent. If the server has no TLS, set {TLS}=off. If it has, the "
                f"journal was changed: set {CA_FILE}"
            )
        return full

    def how_to_trust(self) -> str:
        """What to do to have the password sent to hosts that a journal names."""
        hosts = ",".join(distrusted(self.hosts, self.port))
        return (
            f"it requires a password, and only the journal names its hosts. No password was sent there. If they are "
            f"yours, name them: --trust {hosts}, or {TRUSTED_HOSTS}={hosts}"
        )

    def connect(self, program: str) -> psycopg.Connection[Any]:
        """A connection to the one of the hosts that accepts writes."""
        options: dict[str, Any] = {
            "host": ",".join(self.hosts),
            "port": self.port,
            "dbname": self.database,
            "sslmode": self.sslmode,
            "passfile": NO_FILE,
            "password": self.password or "",
        }
        if self.user is not None:
            options["user"] = self.user
        if self.ca_file is not None:
            options["sslrootcert"] = self.ca_file
        return psycopg.connect(
            **options,
            connect_timeout=CONNECT,
            tcp_user_timeout=SILENCE,
            target_session_attrs="read-write",
            gssencmode="disable",
            client_encoding="UTF8",
            application_name=f"epochal {program}",
            prepare_threshold=None,
            autocommit=True,
        )


@contextmanager
def begun(connection: psycopg.Connection[Any], program: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of a connection, which is committed at the end."""
    # Whatever the default: who has waited for the fence must see what the one before it has written.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    with connection.transaction():
        connection.execute(f"{SETTINGS}, set_config('application_name', 'epochal {program}', true)".encode())
        yield connection


@contextmanager
def transaction(endpoint: Endpoint, program: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of a connection of this process, which is committed at the end. Errors are psycopg's own."""
    connection = _idle_one(endpoint) or endpoint.connect(program)
    try:
        with begun(connection, program) as db:
            yield db
    except BaseException:
        connection.close()
        raise
    try:
        # Triggers may have set, locked or made something for the session; it may be another sink that uses it next.
        connection.execute("DISCARD ALL")
    except psycopg.Error:
        connection.close()  # what was written is committed
        return
    with _lock:
        before, _idle[os.getpid(), endpoint] = _idle.get((os.getpid(), endpoint)), (connection, time.monotonic())
    if before is not None:
        before[0].close()


# A connection costs the server a process. In a forked process those of its parent are left alone.
_idle: dict[tuple[int, Endpoint], tuple[psycopg.Connection[Any], float]] = {}
_lock = threading.Lock()


def _idle_one(endpoint: Endpoint) -> psycopg.Connection[Any] | None:
    """The connection that was used last, if it is alive."""
    with _lock:
        connection, since = _idle.pop((os.getpid(), endpoint), (None, 0.0))
    if connection is None:
        return None
    try:
        if time.monotonic() - since < IDLE:
            connection.execute("SELECT")
            return connection
    except psycopg.Error:
        log.debug("an idle connection was lost")  # nothing depends on it: the next one says what is wrong
    connection.close()
    return None


@atexit.register
def _close_idle() -> None:
    for (process, _), (connection, _) in _idle.items():
        if process == os.getpid():
            connection.close()


@contextmanager
def translating(sink: str, endpoint: Endpoint, what: str = "") -> Iterator[None]:
    """Raise what psycopg raises as the coordinator expects it, without a value of a row: also not as the cause."""
    fault: Exception
    try:
        yield
        return
    except psycopg.Error as error:
        fault = translated(error, sink, endpoint, what)
    raise fault


@contextmanager
def waiting(sink: str, endpoint: Endpoint) -> Iterator[None]:
    """The same while a decided epoch is shown: then only a server that does not let us in is no reason to wait.

    An epoch that the table refuses all the same waits until somebody has made room for it.
    """
    fault: Exception
    try:
        yield
        return
    except psycopg.Error as error:
        fault = translated(error, sink, endpoint)
        if error.sqlstate is not None:
            fault = StoreAway(f"{endpoint.place}: {brief(error)}")
    raise fault


def translated(error: psycopg.Error, sink: str, endpoint: Endpoint, what: str = "") -> Exception:
    """StoreAway to try again, BadRows for values that the table refuses, Refused to stop."""
    text = f"sink {sink!r}: {what or endpoint.place}: {brief(error)}"
    if error.sqlstate is None and not isinstance(error, psycopg.OperationalError):
        return error  # a fault of ours
    if error.sqlstate is None:
        refusal = "" if any(sign in str(error) for sign in STARTING) else _refusal(str(error))
        if not refusal:
            return StoreAway(text)
        hint = endpoint.how_to_trust() if endpoint.withheld and "password" in refusal else refusal
        return (SinkUnavailable if endpoint.from_journal else Refused)(f"{text}; {hint}")
    if is_away(error):
        return StoreAway(text)
    if error.sqlstate.startswith(QUIET):
        return BadRows(f"{text}. Nothing of the epoch was written")
    return (SinkUnavailable if endpoint.from_journal else Refused)(text)


def is_away(error: psycopg.Error) -> bool:
    """Whether the same request may succeed later. A lost connection means "unknown", never "not done"."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(AWAY)


def brief(error: psycopg.Error) -> str:
    """The error in one line, without values of rows."""
    told = error.diag
    if error.sqlstate is None:
        return " ".join(str(error).split())
    where = [
        f"{kind} {name!r}"
        for kind, name in (("constraint", told.constraint_name), ("column", column_of(error)))
        if name
    ]
    if not error.sqlstate.startswith(SHOWN):
        return f"{type(error).__name__} ({error.sqlstate})" + (f", {', '.join(where)}" if where else "")
    return f"{told.message_primary} ({error.sqlstate})"


def column_of(error: psycopg.Error) -> str | None:
    """The column that an error names; of COPY into a staged table it is in the context, among values."""
    found = _IN_COPY.search(error.diag.context or "")
    return error.diag.column_name or (found[1] if found else None)


def _refusal(text: str) -> str:
    return next((hint for sign, hint in REFUSALS.items() if sign in text), "")
