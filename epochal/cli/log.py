"""``epochal log``: the epochs of a journal and what each of them read. The checkpoint may be lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from epochal.cli.streams import reach_journal
from epochal.cli.text import counted, print_answer, table
from epochal.txn.access import refuse_unreachable
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.incarnations import all_journals, incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.records import Prepared, is_record_name
from epochal.txn.states import State

SHOWN = 60  # characters of what was read, in the table


@dataclass(frozen=True, slots=True)
class LoggedEpoch:
    """One attempt at an epoch."""

    incarnation: int
    state: State
    record: Prepared
    winner: int | None = None  # the generation whose attempt became the epoch

    @property
    def rows(self) -> dict[str, Json]:
        return {sink: staged.rows for sink, staged in self.record.sinks.items()}

    @property
    def said(self) -> str:
        """The state in words. The rows of an attempt that was replaced are in the one that became the epoch."""
        if self.state is not State.LOST:
            return str(self.state.value)
        return "not the epoch" if self.winner is None else f"replaced by generation {self.winner}"

    def to_json(self) -> dict[str, Json]:
        return {
            "epoch": self.record.epoch,
            "incarnation": self.incarnation,
            "generation": self.record.generation,
            "state": self.state.value,
            "replaced_by": self.winner if self.state is State.LOST else None,
            "prepared": self.record.at,
            "rows": self.rows,
            "sources": dict(self.record.sources),
            "repartitioned": None if self.record.repartitioned is None else self.record.repartitioned.to_json(),
        }


def run(path: str, *, as_json: bool) -> int:
    """Print what the journal knows of its last epochs."""
    journals = _journals(path)
    epochs = [one for incarnation, journal in journals for one in _epochs(incarnation, journal)]
    folded = journals[-1][1].view.floor
    if as_json:
        answer: dict[str, Json] = {
            "journal": journals[-1][1].path,
            "folded_through": folded if folded >= 0 else None,
            "epochs": [one.to_json() for one in epochs],
        }
        print_answer(json.dumps(answer, indent=2))
        return 0
    headers = ["EPOCH", "STATE", "PREPARED", "ROWS", "READ UP TO"]
    cells = [
        [
            str(one.record.epoch),
            one.said,
            one.record.at,
            ", ".join(f"{sink} {rows:,}" for sink, rows in one.rows.items()),
            _read(one.record.sources)
            if one.record.repartitioned is None
            else f"nothing: Spark's state went {one.record.repartitioned}",
        ]
        for one in epochs
    ]
    parts = [table(headers, cells, right=["EPOCH"])] if cells else ["no epoch was prepared yet"]
    if folded >= 0:
        parts.append(f"epochs up to {folded} are folded away")
    print_answer("\n\n".join(parts))
    return 0


def _journals(path: str) -> list[tuple[int, Journal]]:
    """The journals of a checkpoint, or those of which the first is in this folder."""
    files, place = reach_journal(path)
    with refuse_unreachable(path, "Name a checkpoint, or a journal's folder, as a user who may read it"):
        for folder in (join(place, "epochal"), place):
            if any(is_record_name(name) for name in files.names(folder)):
                return list(all_journals(partial(_journal, files, folder)))
    raise Refused(f"{place}: neither a checkpoint that epochal has written nor a journal: it holds no record")


def _journal(files: Files, first: str, incarnation: int) -> Journal:
    return Journal(files, incarnation_path(first, incarnation), with_states=False)


def _epochs(incarnation: int, journal: Journal) -> Iterator[LoggedEpoch]:
    view = journal.view
    for epoch in sorted(view.attempts):
        for generation, record in sorted(view.prepared(epoch).items()):
            yield LoggedEpoch(incarnation, view.state(epoch, generation), record, view.decided.get(epoch))


def _read(sources: Mapping[str, Json]) -> str:
    """What an epoch read, in a few words; all of it is in the JSON.

    >>> _read({"0": {"end": {"orders": {"0": 120}}}, "1": {"end": {"logOffset": 7}, "files": ["a"], "file_count": 1}})
    '{"orders":{"0":120}}; 1 file: a'
    """
    parts = []
    for one in sources.values():
        match one:
            case {"files": [first, *_], "file_count": int(count)}:
                parts.append(f"{counted(count, 'file')}: {first}{', …' if count > 1 else ''}")
            case {"end": end}:
                parts.append(json.dumps(end, separators=(",", ":"), ensure_ascii=False))
    shown = "; ".join(parts) or "not recorded"
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
