"""Which hosts may get the secrets of this process if only a journal names them.

`epochal recover` and similar commands rebuild sinks from the journal. Whoever can write to the journal can name any
host there. So a password, or a client certificate, is sent only to hosts that the user of the command names, with
``--trust HOST`` or the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

HOSTS = "EPOCHAL_TRUSTED_HOSTS"
OLD_HOSTS = "EPOCHAL_CASSANDRA_HOSTS"  # its name when Cassandra was the only store with secrets


def distrusted(hosts: Sequence[str], port: int) -> list[str]:
    """Those of the hosts that only a journal names. A name with a port is for that port only."""
    given = ",".join(os.environ.get(name, "") for name in (HOSTS, OLD_HOSTS))
    named = {entry.strip().lower() for entry in given.split(",")}
    return [host for host in hosts if not named & set(_spellings(host.lower(), port))]


def _spellings(host: str, port: int) -> list[str]:
    """How a host may be named.

    >>> _spellings("::1", 9042)
    ['::1', '[::1]', '::1:9042', '[::1]:9042']
    """
    return [host, f"[{host}]", f"{host}:{port}", f"[{host}]:{port}"]


@contextmanager
def trusting(hosts: str | None) -> Iterator[None]:
    """Trust these hosts too, separated by commas, for the duration of a block."""
    before = os.environ.get(HOSTS)
    if hosts:
        os.environ[HOSTS] = f"{before},{hosts}" if before else hosts
    try:
        yield
    finally:
        if hosts and before is None:
            del os.environ[HOSTS]
        elif before is not None:
            os.environ[HOSTS] = before
