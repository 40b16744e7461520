"""A drill: what a recovery of a checkpoint really takes, by part, beside what was predicted.

The last epoch is copied to a scratch folder, and its commit is taken back: the crash came just before it. Then new
processes recover from the copy. The stream, its checkpoint and its sinks are only read.

Spark does not report how long it restores stores. So they are restored alone in a process of their own, by Spark's
state reader; what is left of the first epoch's time is the epoch itself. Loading and replaying share the stores' time
in the proportion of the model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery import trial
from epochal.spark_plugins.recovery.copying import copy_checkpoint, copy_journal, rewind
from epochal.spark_plugins.recovery.model import Rates, RecoveryTime, predicted
from epochal.spark_plugins.recovery.reading import read_state
from epochal.spark_plugins.recovery.states import SparkState
from epochal.txn.errors import Refused
from epochal.txn.files import Files, LocalFiles, is_local

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Where a stream's query is defined."""

    file: str
    stream: str


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """What a drill measured, in seconds; None for what was not run."""

    epoch: int  # the one that the recovery ran again
    state: SparkState
    predicted: RecoveryTime
    by_guesses: bool  # the prediction: nothing was measured on this machine before
    session: float
    query: float | None
    load: float
    replay: float
    first: float | None  # the first epoch without restoring its state
    sinks: float | None  # restoring the sinks' state from the journal
    sinks_predicted: float | None
    total: float | None  # from the start of the process until the first epoch is committed, with the sinks' state

    @property
    def error(self) -> float | None:
        """How far the prediction was off, as a part of what was measured."""
        if self.total is None:
            return None
        expected = self.predicted.total + (self.sinks_predicted or 0.0)
        return abs(expected - self.total) / self.total


def drill(
    files: Files,
    checkpoint: str,
    *,
    query: Query | None = None,
    journal: str | None = None,
    cores: int,
    rates: Rates | None = None,
    say: Say = lambda _: None,
) -> Drilled:
    """Recover a copy of a checkpoint. Without a `query` the stores are restored, and no epoch is run."""
    with tempfile.TemporaryDirectory(prefix="epochal-drill-") as made:
        copy = Path(made, "checkpoint")
        say("copying the checkpoint")
        copy_checkpoint(files, checkpoint, copy)
        epoch = rewind(copy)
        if epoch < 1:
            raise Refused(f"{checkpoint}: only epoch 0 is committed, so a recovery has no state to restore yet")
        if journal is not None and not is_local(journal):
            copy_journal(files, journal, Path(made, "journal"))
            journal = str(Path(made, "journal"))
        return recover_copy(copy, epoch, query=query, journal=journal, cores=cores, rates=rates, say=say)


def recover_copy(
    copy: Path,
    epoch: int,
    *,
    query: Query | None,
    journal: str | None,
    cores: int,
    rates: Rates | None = None,
    say: Say = lambda _: None,
) -> Drilled:
    """Recover a checkpoint that nobody else uses, whose next epoch is `epoch`. It is changed."""
    state = read_state(LocalFiles(), str(copy))
    rates = rates or kept.load()
    expected = predicted(state, rates, slots=cores)
    say("restoring the stores")
    alone = trial.run(stores_task(copy, state, cores))
    seconds = float(alone["state"])
    whole = None
    if query is not None:
        say("recovering with the query")
        whole = trial.run(
            {
                "kind": "stream",
                "checkpoint": str(copy),
                "epoch": epoch,
                "cores": cores,
                "file": query.file,
                "stream": query.stream,
            }
        )
    sinks = None
    if journal is not None:
        say("restoring the sinks' state")
        sinks = trial.run({"kind": "journal", "journal": journal})
    by_guesses = rates.measured is None
    return _drilled(epoch, state, expected, by_guesses, seconds, alone if whole is None else whole, sinks)


def _drilled(
    epoch: int,
    state: SparkState,
    expected: RecoveryTime,
    by_guesses: bool,
    seconds: float,
    measured: Mapping[str, Any],
    sinks: Mapping[str, Any] | None,
) -> Drilled:
    replayed = expected.replay / expected.state if expected.state else 0.0
    begun, end = measured.get("begun"), measured.get("epoch")
    if begun is not None and end is not None:
        seconds = min(seconds, end - begun)  # a busy moment of the machine: the whole epoch was quicker
    sinks_seconds = None if sinks is None else float(sinks["sinks"])
    return Drilled(
        epoch=epoch,
        state=state,
        predicted=expected,
        by_guesses=by_guesses,
        session=measured["session"],
        query=None if begun is None else begun - measured["session"],
        load=seconds * (1 - replayed),
        replay=seconds * replayed,
        first=None if begun is None or end is None else end - begun - seconds,
        sinks=sinks_seconds,
        sinks_predicted=None if sinks is None else float(sinks["predicted"]),
        total=None if end is None else end + (sinks_seconds or 0.0),
    )


def stores_task(copy: Path, state: SparkState, cores: int) -> dict[str, Any]:
    """The task that restores all stores by Spark's state reader."""
    stores = []
    for operator in state.operators:
        metadata = operator.metadata
        for store in dict.fromkeys(store.store for store in operator.stores):
            options = {"operatorId": str(metadata.operator)}
            if metadata.variables:
                options["stateVarName"] = metadata.variables[0]  # any of them: they are in one store
            elif store != "default":
                options["storeName"] = store
            stores.append(options)
    return {"kind": "stores", "checkpoint": str(copy), "stores": stores, "unique": state.unique, "cores": cores}
