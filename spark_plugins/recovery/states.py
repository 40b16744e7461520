"""Spark's state as a checkpoint holds it: operators, partitions, stores; extent, replay and skew. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.stored import EpochSettings, OperatorMetadata

BYTES_A_ROW = 12.0  # of a changelog, compressed, where no row was counted


@dataclass(frozen=True, slots=True)
class Rows:
    """A number of rows. `exact` is False for an estimate."""

    count: int
    exact: bool = True

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.count + other.count, self.exact and other.exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """One state store: what a recovery reads to restore it."""

    partition: int
    store: str
    provider: Provider | None  # None if it has no file yet
    snapshot: int | None  # the newest version that a recovery can load whole; None if it begins with the empty store
    extent: int  # versions that it replays after that
    snapshot_bytes: int = 0
    replay_bytes: int = 0
    replay_rows: Rows | None = None  # changes that it replays
    rows: Rows | None = None
    stored_bytes: int = 0  # all files of the store
    missing: tuple[int, ...] = ()  # versions that must be replayed and have no file: the store cannot be restored
    families: tuple[str, ...] = ()
    has_changelog: bool = False  # RocksDB with changelog

    @property
    def bytes(self) -> int:
        """What a recovery reads."""
        return self.snapshot_bytes + self.replay_bytes

    @property
    def replayed(self) -> float:
        """Changes to replay, for the model: counted, or guessed from their bytes."""
        return self.replay_rows.count if self.replay_rows is not None else self.replay_bytes / BYTES_A_ROW


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The stores of one operator in one partition. One task restores them, one after the other."""

    partition: int
    stores: tuple[StoreState, ...]
    rows: Rows | None  # of the stores that hold the operator's rows

    @property
    def bytes(self) -> int:
        return sum(store.bytes for store in self.stores)

    @property
    def stored_bytes(self) -> int:
        return sum(store.stored_bytes for store in self.stores)

    @property
    def extent(self) -> int:
        return max((store.extent for store in self.stores), default=0)

    @property
    def snapshot(self) -> int | None:
        """The version of the oldest snapshot that a recovery loads; None if a store has none."""
        numbers = [store.snapshot for store in self.stores]
        return None if None in numbers else min((n for n in numbers if n is not None), default=None)

    @property
    def replay_bytes(self) -> int:
        return sum(store.replay_bytes for store in self.stores)

    @property
    def replay_rows(self) -> Rows | None:
        return total([store.replay_rows for store in self.stores])


@dataclass(frozen=True)
class OperatorState:
    """One stateful operator."""

    metadata: OperatorMetadata
    stores: tuple[StoreState, ...]

    @cached_property
    def partitions(self) -> tuple[PartitionState, ...]:
        numbers = sorted({store.partition for store in self.stores})
        return tuple(self._partition(number) for number in numbers)

    def _partition(self, number: int) -> PartitionState:
        own = tuple(store for store in self.stores if store.partition == number)
        return PartitionState(number, own, total([s.rows for s in own if self.metadata.holds_rows(s.store)]))

    @property
    def provider(self) -> Provider | None:
        return next((store.provider for store in self.stores if store.provider is not None), None)

    @property
    def rows(self) -> Rows | None:
        return total([partition.rows for partition in self.partitions])

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    @property
    def stored_bytes(self) -> int:
        return sum(partition.stored_bytes for partition in self.partitions)

    @property
    def extent(self) -> int:
        """Of the partition that has most to replay."""
        return max((partition.extent for partition in self.partitions), default=0)

    @property
    def replay_bytes(self) -> int:
        return sum(partition.replay_bytes for partition in self.partitions)

    @property
    def replay_rows(self) -> Rows | None:
        return total([partition.replay_rows for partition in self.partitions])

    @property
    def missing(self) -> tuple[tuple[int, str, int], ...]:
        """Partition, store and version of what cannot be read."""
        return tuple((store.partition, store.store, number) for store in self.stores for number in store.missing)

    @property
    def families(self) -> tuple[str, ...]:
        """The state variables of transformWithState. Spark's own column families begin with ``$``."""
        found = {family for store in self.stores for family in store.families if not family.startswith("$")}
        return self.metadata.variables or tuple(sorted(found - {"default"}))

    @property
    def skew(self) -> float | None:
        """The largest partition against the median: by rows, or by bytes where rows are not known."""
        rows = [partition.rows for partition in self.partitions]
        sizes: Sequence[float] = (
            [partition.bytes for partition in self.partitions]
            if any(one is None for one in rows)
            else [one.count for one in rows if one is not None]
        )
        median = statistics.median(sizes) if sizes else 0
        return max(sizes) / median if median else None


@dataclass(frozen=True)
class SparkState:
    """The state of a query after an epoch."""

    epoch: int  # the last one that Spark has checkpointed; -1 if there is none
    operators: tuple[OperatorState, ...]
    settings: EpochSettings = field(default_factory=EpochSettings)
    notes: tuple[str, ...] = ()
    unique: bool = False  # checkpoint format 2: each attempt's files have an id of their own

    @property
    def version(self) -> int:
        """The version that a recovery loads: epoch N leaves version N + 1."""
        return self.epoch + 1

    @property
    def extent(self) -> int:
        return max((operator.extent for operator in self.operators), default=0)

    @property
    def bytes(self) -> int:
        return sum(operator.bytes for operator in self.operators)


def total(parts: Sequence[Rows | None]) -> Rows | None:
    """The sum; None if a part is not known, or if there is none."""
    if not parts or any(part is None for part in parts):
        return None
    return sum((part for part in parts if part is not None), Rows(0))
