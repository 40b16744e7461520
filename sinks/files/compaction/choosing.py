"""Which published files become one. No I/O of its own: what it must know of the disk it asks for.

Files of one lineage, bucket and ending are taken in the order of epochs. A file that is large enough already, that is
missing, or that does not fit to the one before it ends a run; so what is read in the order of the list stays in the
order of epochs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from epochal.sinks.files.compaction.joinable import Format, format_of
from epochal.sinks.files.layout import ending_of
from epochal.sinks.files.manifest import PublishedEpoch


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the manifest lists now."""

    path: str  # relative to the target
    bytes: int
    lineage: str
    entry: str
    epoch: int

    @property
    def bucket(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Group:
    """Files that become one, and what they have in common."""

    files: tuple[LiveFile, ...]
    ending: str
    format: Format
    key: str

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class Unfit(Exception):
    """A file that cannot be joined to others; the text says why."""


@dataclass
class Choice:
    """What is joined, and what is not."""

    groups: list[Group] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # listed, and not there or of another length
    unfit: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    other: Counter[str] = field(default_factory=Counter)  # files by ending that nothing joins


T = TypeVar("T")
Lengths = Callable[[str], Mapping[str, int]]  # the names in a bucket's folder, with lengths
Key = Callable[[LiveFile, Format], str]  # what files must have in common, or Unfit


def live_files(entries: Iterable[PublishedEpoch]) -> list[LiveFile]:
    """What the epochs list, in their order."""
    ordered = sorted(entries, key=lambda e: (e.lineage, e.epoch, e.roll > 0, e.generation, e.roll))
    return [LiveFile(path, length, e.lineage, e.entry, e.epoch) for e in ordered for path, length in e.files]


def choose(live: Sequence[LiveFile], max_bytes: int, lengths: Lengths, key: Key) -> Choice:
    """Groups of at least two, each of at most `max_bytes`."""
    choice = Choice()
    shelves: dict[tuple[str, str, str], list[LiveFile]] = {}
    for file in live:
        shelves.setdefault((file.lineage, file.bucket, ending_of(file.path)), []).append(file)
    for (_, bucket, ending), files in shelves.items():
        format_ = format_of(ending)
        if format_ is None:
            choice.other[ending] += len(files)
            continue
        for small in _runs((file, file.bytes < max_bytes) for file in files):
            found = lengths(bucket)
            for there in _runs((file, _is_there(file, found, choice)) for file in small):
                keyed = [(file, _key(file, format_, key, choice)) for file in there]
                for run in _runs((pair, pair[1] is not None) for pair in keyed):
                    choice.groups += _groups(run, ending, format_, max_bytes)
    return choice


def _runs(items: Iterable[tuple[T, bool]]) -> Iterator[list[T]]:
    """Neighbours that fit, two or more."""
    run: list[T] = []
    for item, fits in items:
        if fits:
            run.append(item)
            continue
        if len(run) > 1:
            yield run
        run = []
    if len(run) > 1:
        yield run


def _is_there(file: LiveFile, found: Mapping[str, int], choice: Choice) -> bool:
    if found.get(file.name) == file.bytes:
        return True
    choice.missing.append(file.path)
    return False


def _key(file: LiveFile, format_: Format, key: Key, choice: Choice) -> str | None:
    try:
        return key(file, format_)
    except Unfit as fault:
        choice.unfit.append((file.path, str(fault)))
        return None


def _groups(
    run: Iterable[tuple[LiveFile, str | None]], ending: str, format_: Format, max_bytes: int
) -> Iterator[Group]:
    """Fill one file after the other; what has another key begins a new one."""
    current: list[LiveFile] = []
    common = ""
    for file, key in run:
        if current and (key != common or sum(f.bytes for f in current) + file.bytes > max_bytes):
            if len(current) > 1:
                yield Group(tuple(current), ending, format_, common)
            current = []
        common = str(key)
        current.append(file)
    if len(current) > 1:
        yield Group(tuple(current), ending, format_, common)
