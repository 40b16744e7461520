"""Which files of Spark's checkpoint belong to epoch N. Pure: names only.

::

    metadata                          the query's id
    offsets/N, commits/N              the plan of epoch N, and that it is complete
    sources/0/7, sources/0/9.compact  the log of a file source
    state/0/1/...                     operator 0, partition 1: `state_files`
    epochal/                          the journal, which is copied by its records

Names are relative to the checkpoint. Hadoop's checksums and files that are being written begin with a dot: they are
left out, and Hadoop reads files without checksums.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from epochal.spark_plugins.moving.state_files import version_of
from epochal.txn.incarnations import incarnation_path

LOGS = ("offsets", "commits")
SOURCES, STATE, METADATA = "sources", "state", "metadata"
JOURNAL = "epochal"
_OWN = re.compile(r"epochal(~\d+)?(-[a-z]+)?$")
_OPERATOR_METADATA = re.compile(r"state/\d+/_metadata/v2/(\d+)$")


def belongs(name: str, epoch: int, counters: Mapping[str, int]) -> bool:
    """Whether a file belongs to a copy at an epoch. `counters` are the last batches of the file sources at it.

    >>> names = ("offsets/4", "offsets/5", "sources/0/3", "sources/0/4", "state/0/0/5.zip", "state/0/0/6.zip")
    >>> [belongs(name, 4, {"0": 3}) for name in names]
    [True, False, True, False, True, False]
    """
    top, _, rest = name.partition("/")
    if name.rpartition("/")[2].startswith(".") or _OWN.match(top):
        return False
    if top in LOGS:
        return rest.isascii() and rest.isdecimal() and int(rest) <= epoch
    if top == SOURCES:
        source, _, entry = rest.partition("/")
        number = entry.removesuffix(".compact")
        return source not in counters or not number.isdecimal() or int(number) <= counters[source]
    if top == STATE:
        batch = _OPERATOR_METADATA.match(name)
        if batch is not None:
            return int(batch[1]) <= epoch
        version = version_of(name)
        return version is None or version <= epoch + 1
    return True


def is_of_journal(name: str) -> bool:
    """Whether a name in a checkpoint is of epochal: its journal, or what lies beside it.

    >>> [is_of_journal(name) for name in ("epochal", "epochal~2", "epochal-live", "epochal~2-cut", "offsets")]
    [True, True, True, True, False]
    """
    return _OWN.match(name) is not None


def required(epoch: int) -> tuple[str, ...]:
    """The files without which Spark cannot go on after an epoch.

    >>> required(4)
    ('metadata', 'offsets/4', 'commits/4')
    """
    return (METADATA, f"offsets/{epoch}", f"commits/{epoch}")


def journal_folder(incarnation: int) -> str:
    """Where a journal of the query is in a checkpoint.

    >>> journal_folder(1), journal_folder(2)
    ('epochal', 'epochal~2')
    """
    return incarnation_path(JOURNAL, incarnation)


def reach(entries: Iterable[str], counters: Mapping[str, int]) -> bool:
    """Whether the log of each file source reaches its last batch, without a gap after what was compacted last.

    >>> reach(["sources/0/9.compact", "sources/0/10"], {"0": 10}), reach(["sources/0/10"], {"0": 10})
    (True, False)
    """
    logs: dict[str, list[str]] = {source: [] for source in counters}
    for entry in entries:
        _, source, name = entry.split("/", 2)
        logs.setdefault(source, []).append(name)
    for source, last in counters.items():
        compacted = [int(name.removesuffix(".compact")) for name in logs[source] if name.endswith(".compact")]
        single = {int(name) for name in logs[source] if name.isdecimal()}
        if any(batch not in single for batch in range(max(compacted, default=-1) + 1, last + 1)):
            return False
    return True
