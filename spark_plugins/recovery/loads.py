"""What a stream does to its state, from its checkpoint: how often it commits, what it changes, what it keeps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.recovery.knobs import Load, Setting
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.states import SparkState, StoreState
from epochal.txn.files import Files

LAST = 20  # commits whose times are looked at


def load_of(
    files: Files, checkpoint: str, state: SparkState, *, interval: float | None = None, updates: float | None = None
) -> Load:
    """The load of a stream; what the user says comes before what the files tell."""
    stores = [store for operator in state.operators for store in operator.stores]
    partitions = partitions_of(state)
    rows = sum(_rows(store) for store in stores)
    skews = [operator.skew for operator in state.operators if operator.skew is not None]
    return Load(
        interval=interval or _interval(files, checkpoint, state.epoch) or 1.0,
        updates=_updates(stores, rows, state.version) if updates is None else updates,
        rows=rows,
        bytes=sum(store.snapshot_bytes for store in stores),
        provider=provider_of(state),
        stores=max(1, round(len(stores) / partitions)),
        skew=max(skews, default=1.0),
    )


def partitions_of(state: SparkState) -> int:
    """How many partitions the operators have."""
    return max((len(operator.partitions) for operator in state.operators), default=1) or 1


def provider_of(state: SparkState) -> Provider:
    """Who writes the state."""
    return next((o.provider for o in state.operators if o.provider is not None), None) or Provider.HDFS_BACKED


def setting_of(state: SparkState, *, deltas: int = 10, maintenance: float = 60.0) -> Setting:
    """The setting in use, as far as a checkpoint tells: the distance of snapshots is Spark's default."""
    stores = [store for operator in state.operators for store in operator.stores]
    return Setting(
        provider=provider_of(state),
        changelog=any(store.has_changelog for store in stores),
        deltas=deltas,
        maintenance=maintenance,
        partitions=partitions_of(state),
    )


def _rows(store: StoreState) -> float:
    return store.rows.count if store.rows is not None else store.replayed


def _updates(stores: Sequence[StoreState], rows: float, version: int) -> float:
    """Changes in an epoch: as many as the replayed versions have, or as the rows came with all versions."""
    extent = max((store.extent for store in stores), default=0)
    if extent:
        return sum(store.replayed / store.extent for store in stores if store.extent)
    return rows / max(1, version)


def _interval(files: Files, checkpoint: str, epoch: int) -> float | None:
    """The median time between two commits."""
    reader = SparkCheckpoint(files, checkpoint)
    times = [at for e in range(max(0, epoch - LAST), epoch + 1) if (at := reader.committed_at(e)) is not None]
    gaps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return statistics.median(gaps) if gaps else None
