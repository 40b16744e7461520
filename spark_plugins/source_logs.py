"""Which rows an epoch reads, by the logs of the query's sources. Read only.

``offsets/N`` is a line of version, a line of plan, and a line for each source: its number is the name of its folder in
``sources/`` (in version 2 the line begins with it). The content of the line depends on the source:

* a JSON object such as Kafka's ``{"orders":{"0":120}}`` identifies rows by itself, together with the one before it: it
  says where the epoch ends. The first epoch of a Kafka source begins at the offsets in ``sources/0/0``;
* ``{"logOffset":7}`` of a file source is a counter: the files are in ``sources/0/7``, or, for each tenth, in
  ``sources/0/9.compact`` together with all before them;
* a number is a second or an index, relative to a start: the rate source records that start in ``sources/0/0``; memory
  and socket sources do not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from epochal.txn.files import Files, join
from epochal.txn.model import Json
from epochal.txn.offsets import BEGINS, BY_ITSELF, UNKNOWN

Listed: TypeAlias = dict[
    str, tuple[list[str], int]
]  # source -> files that an epoch reads of it, and how many there are

LONGEST = 16_384  # characters of what is recorded for people, of all sources together
FILES = 100  # names that are recorded of a source
COUNTER = "logOffset"  # the only key in the offset of a file source; a topic may have this name too
NOTHING = "-"  # the offset of a source that has none yet
VERSIONS = (b"v1", b"v2")


class NotIdentifiable(Exception):
    """The log of a source does not identify the rows of an epoch."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources' offsets in one ``offsets/N``, by the name of the source's folder."""

    offsets: Mapping[str, str]

    @staticmethod
    def parse(data: bytes) -> Sources:
        """From the file's bytes. Raises NotIdentifiable for an unknown version."""
        version, *lines = data.split(b"\n")
        if version not in VERSIONS or not lines:
            raise NotIdentifiable(f"offsets of version {version[:20]!r}")
        texts = [line.decode("utf-8", "replace") for line in lines[1:] if line]
        if version == b"v1":
            return Sources({str(number): text for number, text in enumerate(texts)})
        named = [line.partition(":") for line in texts]
        return Sources({name: text for name, _, text in named})

    def counter(self, source: str) -> int:
        """The last batch of a file source; -1 before its first files."""
        text = self.offsets.get(source, NOTHING)
        return -1 if text == NOTHING else _counter(text)


FIRST = Sources({})


def proof(
    files: Files, checkpoint: str, now: bytes, before: Callable[[], Sources], listed: Listed | None = None
) -> str:
    """The middle part of a digest, from ``offsets/N`` and the offsets `before` it, which are read only if needed.

    Files that it meets are added to `listed`.
    """
    try:
        sources = Sources.parse(now)
        digests = {
            name: _log_digest(files, checkpoint, name, sources, before, {} if listed is None else listed)
            for name in sources.offsets
        }
    except (NotIdentifiable, ValueError, KeyError, TypeError):
        return UNKNOWN
    needed = {name: text for name, text in digests.items() if text is not None}
    kind = _digest(needed)[:32] if needed else BY_ITSELF
    ends = {name: text for name, text in sources.offsets.items() if name not in needed and text != NOTHING}
    begin = _begin(files, checkpoint, ends, before) if ends else None
    return kind if begin is None else kind + BEGINS + begin


def ends(now: bytes, listed: Listed) -> dict[str, Json]:
    r"""Where an epoch ends in each source, and which files it reads, as far as that is short enough to be recorded.

    >>> ends(b'v1\n{}\n{"orders":{"0":120}}', {})
    {'0': {'end': {'orders': {'0': 120}}}}
    """
    try:
        sources = Sources.parse(now)
    except NotIdentifiable:
        return {}
    found: dict[str, Json] = {}
    left = LONGEST
    for name, text in sources.offsets.items():
        if len(text) > left:
            continue
        left -= len(text)
        one: dict[str, Json] = {"end": _parsed(text)}
        if name in listed:
            paths, count = listed[name]
            shown: list[Json] = []
            for path in map(_without_user, paths):
                left -= len(path)
                if left < 0:
                    break
                shown.append(path)
            one |= {"files": shown, "file_count": count}
        found[name] = one
    return found


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _without_user(path: str) -> str:
    """A path without a user and a password, which a URI may have."""
    return re.sub(r"^([a-zA-Z][\w+.-]*://)[^/@]*@", r"\1", path)


def _begin(files: Files, checkpoint: str, ends: Mapping[str, str], before: Callable[[], Sources]) -> str | None:
    """A digest of where an epoch begins in sources whose offsets identify rows; None if that is not known."""
    try:
        previous = before()
        if previous is FIRST:
            if not all(_is_kafkas(json.loads(text)) for text in ends.values()):
                return None
            starts = {name: files.read(join(checkpoint, "sources", name, "0")).decode() for name in ends}
        else:
            starts = {name: previous.offsets.get(name, NOTHING) for name in ends}
    except (NotIdentifiable, FileNotFoundError, ValueError):
        return None
    return _digest(starts)[:16]


def _is_kafkas(offset: object) -> bool:
    """Whether an offset looks like Kafka's: a number for each partition of each topic."""
    return isinstance(offset, dict) and all(isinstance(partitions, dict) for partitions in offset.values())


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def _log_digest(
    files: Files, checkpoint: str, source: str, now: Sources, before: Callable[[], Sources], listed: Listed
) -> str | None:
    """A digest of what the offset refers to; None if the offset identifies rows by itself."""
    text = now.offsets[source]
    if text == NOTHING:
        return None
    folder = join(checkpoint, "sources", source)
    offset = json.loads(text)
    if isinstance(offset, dict) and (set(offset) != {COUNTER} or _is_kafkas(offset)):
        return None
    if isinstance(offset, dict):
        entries = sorted(_listed(files, folder, before().counter(source), now.counter(source)))
        listed[source] = [entry.partition(" ")[2] for entry in entries[:FILES]], len(entries)
        return hashlib.sha256("\n".join(entries).encode()).hexdigest()
    try:
        return hashlib.sha256(files.read(join(folder, "0"))).hexdigest()
    except FileNotFoundError:
        raise NotIdentifiable(f"{folder} does not record its start") from None


def _listed(files: Files, folder: str, after: int, through: int) -> Iterator[str]:
    for batch in range(after + 1, through + 1):
        mark = f'"batchId":{batch}}}'.encode()
        for line in _log(files, folder, batch).split(b"\n")[1:]:
            # A compact file lists every file that the query ever read: parse only the lines of this batch.
            if line.endswith(mark):
                entry = json.loads(line)
                yield f"{entry['timestamp']} {entry['path']}"


def _log(files: Files, folder: str, batch: int) -> bytes:
    """The file that lists a batch of a file source."""
    for name in (str(batch), f"{batch}.compact"):
        try:
            return files.read(join(folder, name))
        except FileNotFoundError:
            continue
    # Spark removes a log once a later compact file includes it.
    numbers = [name.removesuffix(".compact") for name in files.names(folder) if name.endswith(".compact")]
    later = sorted(int(number) for number in numbers if number.isdecimal() and int(number) > batch)
    if not later:
        raise NotIdentifiable(f"{folder} has no log of batch {batch}")
    return files.read(join(folder, f"{later[0]}.compact"))


def _counter(text: str) -> int:
    counter = json.loads(text)[COUNTER]
    if not isinstance(counter, int):
        raise NotIdentifiable(f"a counter that is not a number: {counter!r}")
    return counter
