"""Predicts how long a recovery takes. Pure.

A recovery starts a process with its session, starts the query, restores the state, and runs the first epoch. Each
partition of an operator is restored by one task, `slots` of them at a time: its stores are opened one after the other,
their snapshots are loaded, and the changes after them are replayed. So a recovery lasts as long as the busiest slot,
and the largest partition bounds it from below.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.states import OperatorState, SparkState, StoreState


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRates:
    """How quickly a new process restores stores of one provider, in one slot."""

    opened: float  # seconds to open a store
    loaded: float  # bytes of snapshots in a second
    replayed: float  # changes in a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a machine needs. The first values are guesses for a small one; `measured` says whether they are."""

    session: float = 8.0  # seconds until a new process has a session
    query: float = 2.5  # seconds from there until the first epoch begins
    epoch: float = 3.0  # seconds of the first epoch without state
    stores: Mapping[Provider, StoreRates] = field(
        default_factory=lambda: {
            Provider.ROCKSDB: StoreRates(opened=0.12, loaded=40e6, replayed=120_000),
            Provider.HDFS_BACKED: StoreRates(opened=0.03, loaded=8e6, replayed=300_000),
        }
    )
    uploaded: float = 0.04  # seconds for a store of RocksDB without changelog, whose first commit uploads a snapshot
    measured: str | None = None  # when, in UTC; None for guesses


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryTime:
    """The seconds of a recovery, by part."""

    session: float
    query: float
    load: float  # opening stores and loading snapshots
    replay: float
    epoch: float

    @property
    def state(self) -> float:
        return self.load + self.replay

    @property
    def total(self) -> float:
        return self.session + self.query + self.state + self.epoch


@dataclass(frozen=True, slots=True)
class _Work:
    load: float = 0.0
    replay: float = 0.0

    def __add__(self, other: _Work) -> _Work:
        return _Work(self.load + other.load, self.replay + other.replay)

    @property
    def total(self) -> float:
        return self.load + self.replay


def predicted(state: SparkState, rates: Rates, *, slots: int) -> RecoveryTime:
    """How long a recovery would take now. Operators that follow each other are restored in one task."""
    return recovery(restored(state.operators, rates, slots=slots), rates)


def recovery(work: tuple[float, float], rates: Rates) -> RecoveryTime:
    """The whole recovery, with the seconds to load and to replay."""
    load, replay = work
    return RecoveryTime(session=rates.session, query=rates.query, load=load, replay=replay, epoch=rates.epoch)


def restored(operators: Iterable[OperatorState], rates: Rates, *, slots: int) -> tuple[float, float]:
    """The seconds to load and to replay of the busiest slot, over all operators: one stage comes after the other."""
    load = replay = 0.0
    for operator in operators:
        busiest = makespan(
            [sum((_work(s, rates) for s in partition.stores), _Work()) for partition in operator.partitions], slots
        )
        load, replay = load + busiest.load, replay + busiest.replay
    return load, replay


def makespan(tasks: Iterable[_Work], slots: int) -> _Work:
    """What the slot does that ends last. Each task goes to the slot that is free first, in the order of partitions."""
    busy = [(0.0, number, _Work()) for number in range(max(1, slots))]
    for task in tasks:
        at, slot, done = heapq.heappop(busy)
        heapq.heappush(busy, (at + task.total, slot, done + task))
    return max(busy)[2]


def _work(store: StoreState, rates: Rates) -> _Work:
    if store.provider is None:
        return _Work()
    own = rates.stores[store.provider]
    uploads = store.provider is Provider.ROCKSDB and not store.has_changelog
    opened = own.opened + (rates.uploaded if uploads else 0.0)
    return _Work(opened + store.snapshot_bytes / own.loaded, store.replayed / own.replayed)
