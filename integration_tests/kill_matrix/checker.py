"""What must hold, read from the bare files: nothing here asks the code under test."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from epochal.txn.files import TEMPORARY
from integration_tests.kill_matrix.cases import Stream, rows_of
from integration_tests.kill_matrix.driver import CHECKPOINT, JOURNAL

_PUBLISHED = re.compile(r"(\d{12})\.\d{6}\..+")
_RECORD = re.compile(r"g\d{6}\.json|e\d{12}\.(g\d{6}|decided|done)\.json|s\d{12}\.json")
_CUT = re.compile(r"\d{12}\.json")
CUT = f"{JOURNAL}-cut"
_SPARKS_OWN = re.compile(rf"{CHECKPOINT}/(metadata|(offsets|commits)/\d+)")
_SPARKS_TEMPORARY = re.compile(rf"{CHECKPOINT}/((offsets|commits)/)?{re.escape(TEMPORARY)}[^/]+")


def shown(case: Path, stream: Stream) -> dict[str, list[int]]:
    """The epochs that a reader can see in each target."""
    return {target: shown_epochs(case / target) for target in stream.targets}


def early(case: Path, stream: Stream, seen: dict[str, list[int]]) -> list[str]:
    """Epochs that were seen and are not decided. Call it after looking: a decision made meanwhile is fair."""
    decided = _decided_by_journal(case) if stream.eager else _decided_by_spark(case)
    place = "the journal" if stream.eager else "commits/"
    return [
        f"early view: {target} shows epoch {epoch}, which {place} does not have"
        for target, epochs in seen.items()
        for epoch in sorted(set(epochs))
        if epoch not in decided
    ]


def frozen(case: Path, stream: Stream) -> list[str]:
    """What is wrong with a state that a crash has left."""
    faults = early(case, stream, shown(case, stream))
    for target in stream.targets:
        epochs = shown_epochs(case / target)
        if epochs != list(range(len(epochs))):
            faults.append(f"order: {target} shows epochs {epochs}")
        faults += _wrong_rows(case / target, target)
    return faults + cut_ahead(case, cut(case))


def finished(case: Path, stream: Stream) -> list[str]:
    """What is wrong with a state that a driver has run to its end."""
    faults = frozen(case, stream)
    for target in stream.targets:
        epochs = shown_epochs(case / target)
        if epochs != list(range(stream.epochs)):
            faults.append(f"not exactly once: {target} shows epochs {epochs} of {stream.epochs}")
    if (committed := len(_names(case / CHECKPOINT / "commits"))) < stream.epochs:
        faults.append(f"commits/ has {committed} of {stream.epochs} epochs")
    if (watermark := cut(case)) != stream.epochs - 1:
        faults.append(f"the watermark file says epoch {watermark} of {stream.epochs}")
    return faults + _left_over(case, stream) + _unsettled(case, stream)


def cut_ahead(case: Path, watermark: int) -> list[str]:
    """Whether readers were shown an epoch that is not done. Call it after looking, as `early`."""
    names = [*_names(case / JOURNAL), *_names(case / JOURNAL)]  # twice: a listing that overlaps a purge lacks both
    done = max((int(name[1:13]) for name in names if name.startswith("s") or name.endswith(".done.json")), default=-1)
    return (
        [f"the watermark file says epoch {watermark}, and the journal has {done} as done"] if watermark > done else []
    )


def cut(case: Path) -> int:
    """The epoch that the watermark file tells readers."""
    return max((int(name[:12]) for name in _names(case / CUT) if _CUT.fullmatch(name)), default=-1)


def shown_epochs(target: Path) -> list[int]:
    """The epochs that a reader of a target can see, one entry for each time."""
    return sorted(int(name[:12]) for name in _names(target) if _PUBLISHED.fullmatch(name))


def _wrong_rows(folder: Path, target: str) -> list[str]:
    faults = []
    for name in _names(folder):
        if _PUBLISHED.fullmatch(name):
            with open(f"{folder}/{name}") as published:
                lines = published.read().splitlines()[1:]
            if [json.loads(line) for line in lines] != rows_of(int(name[:12])):
                faults.append(f"rows: {target}/{name} holds {lines}")
    return faults


def _left_over(case: Path, stream: Stream) -> list[str]:
    """Every file must be one that is meant to stay."""
    below = len(f"{case}/")
    paths = (f"{folder}/{name}"[below:] for folder, _, names in os.walk(case) for name in names)
    return [f"left over: {path}" for path in paths if not (_is_sparks(path) or _is_ours(path, stream))]


def _is_sparks(path: str) -> bool:
    return bool(_SPARKS_OWN.fullmatch(path) or _SPARKS_TEMPORARY.fullmatch(path))


def _is_ours(path: str, stream: Stream) -> bool:
    folder, _, name = path.rpartition("/")
    if folder == JOURNAL:
        return _RECORD.fullmatch(name) is not None
    if folder == CUT:
        return _CUT.fullmatch(name) is not None
    if folder in stream.targets:
        return _PUBLISHED.fullmatch(name) is not None
    return folder in {f"{target}/_lineages" for target in stream.targets} and name.endswith(".json")


def _unsettled(case: Path, stream: Stream) -> list[str]:
    """Every epoch must be decided and done in the journal, or folded away."""
    names = set(_names(case / JOURNAL))
    folded = max((int(name[1:13]) for name in names if name.startswith("s")), default=-1)
    wanted = (
        f"e{epoch:012d}.{word}.json" for epoch in range(folded + 1, stream.epochs) for word in ("decided", "done")
    )
    return [f"journal: it lacks {name}" for name in wanted if name not in names]


def _decided_by_spark(case: Path) -> range:
    numbers = (int(name) for name in _names(case / CHECKPOINT / "commits") if name.isdecimal())
    return range(max(numbers, default=-1) + 1)


def _decided_by_journal(case: Path) -> set[int]:
    decided = {int(name[1:13]) for name in _names(case / JOURNAL) if name.endswith(".decided.json")}
    # Listed once more: a listing that overlaps a purge may lack both the records and the snapshot
    # that was made before they went.
    folded = [int(name[1:13]) for name in _names(case / JOURNAL) if name.startswith("s")]
    return decided.union(range(max(folded, default=-1) + 1))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
