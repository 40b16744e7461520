"""The settings that decide how long a recovery takes, what they cost, and the cheapest that hold an objective. Pure.

With a changelog, a commit writes only what changed, and maintenance uploads a snapshot every `maintenance` seconds, if
one was taken: at every `deltas`-th version. So just before the next one arrives, a recovery replays up to
``deltas + maintenance / interval`` versions. Without a changelog each commit uploads a snapshot, and nothing is
replayed. HDFSBacked writes deltas; its maintenance writes a snapshot once there are more than `deltas` of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from epochal.spark_plugins.recovery.model import Rates, RecoveryTime, recovery, restored
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.states import OperatorState, Rows, SparkState, StoreState
from epochal.spark_plugins.recovery.stored import OperatorMetadata

DELTAS = (1, 2, 5, 10, 20, 50)
MAINTENANCE = (5.0, 10.0, 20.0, 30.0, 60.0)
MARGIN = 0.8  # of the objective, for what the model does not know


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Setting:
    """One choice of the knobs. The values are those of Spark's settings."""

    provider: Provider = field(compare=False)
    changelog: bool = False
    deltas: int = 10  # minDeltasForSnapshot
    maintenance: float = 60.0  # maintenanceInterval, in seconds
    partitions: int = 200

    @property
    def name(self) -> str:
        """For tables."""
        if self.provider is Provider.ROCKSDB and not self.changelog:
            return f"RocksDB, no changelog, {self.partitions} partitions"
        kind = "RocksDB, changelog" if self.provider is Provider.ROCKSDB else "HDFSBacked"
        return f"{kind}, {self.deltas} deltas, maintenance {self.maintenance:g} s, {self.partitions} partitions"

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "provider": self.provider.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Setting:
        """From JSON."""
        return cls(**{**value, "provider": Provider(value["provider"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a stream does to its state."""

    interval: float  # seconds between two commits
    updates: float  # changes in an epoch, of all stores
    rows: float  # rows of the state
    bytes: float  # of a snapshot of all of it, as `provider` writes it
    provider: Provider = Provider.ROCKSDB
    stores: int = 1  # in each partition
    skew: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCosts:
    """Processor seconds that an epoch's commit takes: for each store, and for each changed row."""

    store: float
    row: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What keeping state costs on a machine. The first values are guesses."""

    changelog: CommitCosts = CommitCosts(store=0.010, row=12e-6)
    snapshots: CommitCosts = CommitCosts(store=0.060, row=14e-6)  # RocksDB without changelog
    hdfs_backed: CommitCosts = CommitCosts(store=0.008, row=10e-6)
    rewritten: float = 4e-6  # processor seconds for a row of a snapshot of HDFSBacked
    row_bytes: Mapping[Provider, float] = field(  # of a row in a snapshot, to guess the size under another provider
        default_factory=lambda: {Provider.ROCKSDB: 14.0, Provider.HDFS_BACKED: 5.0}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A setting, with what it is predicted to take and to cost."""

    setting: Setting
    extent: int  # versions that a recovery replays at worst
    recovery: RecoveryTime  # at worst
    cpu: float  # share of one processor that keeping the state takes

    @property
    def seconds(self) -> float:
        return self.recovery.total


def worst_extent(setting: Setting, interval: float) -> int:
    """How many versions a recovery replays at worst."""
    if setting.provider is Provider.ROCKSDB and not setting.changelog:
        return 0
    turn = setting.maintenance / interval if interval > 0 else 1.0  # versions between two rounds of maintenance
    if setting.provider is Provider.ROCKSDB:
        return max(1, setting.deltas - 1 + math.ceil(turn) + 1)
    # A round that finds no more than `deltas` of them leaves it to the next one.
    return max(1, math.ceil(math.ceil((setting.deltas + 1) / max(turn, 1e-9)) * turn))


def state_under(setting: Setting, load: Load, costs: Costs, extent: int) -> SparkState:
    """The state that a recovery would find."""
    size_of_all = load.bytes * costs.row_bytes[setting.provider] / costs.row_bytes[load.provider]
    others = setting.partitions - 1
    largest = min(1.0, load.skew / (load.skew + others))  # the others are of one size, which is the median
    sizes = [largest, *[(1 - largest) / others] * others] if others else [1.0]
    stores = [
        StoreState(
            partition=partition,
            store=f"store-{number}",
            provider=setting.provider,
            snapshot=1,
            extent=extent,
            snapshot_bytes=round(size_of_all * size / load.stores),
            has_changelog=setting.changelog,
            replay_rows=Rows(round(extent * load.updates * size / load.stores)),
        )
        for partition, size in enumerate(sizes)
        for number in range(load.stores)
    ]
    metadata = OperatorMetadata(0, "plan", tuple(f"store-{n}" for n in range(load.stores)), setting.partitions)
    return SparkState(extent, (OperatorState(metadata, tuple(stores)),))


def planned(setting: Setting, load: Load, rates: Rates, costs: Costs, *, slots: int) -> Plan:
    """What a setting takes and costs."""
    extent = worst_extent(setting, load.interval)
    work = restored(state_under(setting, load, costs, extent).operators, rates, slots=slots)
    return Plan(
        setting=setting, extent=extent, recovery=recovery(work, rates), cpu=_cpu(setting, load, costs) / load.interval
    )


def _cpu(setting: Setting, load: Load, costs: Costs) -> float:
    """Processor seconds for an epoch."""
    stores = setting.partitions * load.stores
    if setting.provider is Provider.HDFS_BACKED:
        every = max(setting.deltas + 1.0, setting.maintenance / load.interval)
        own = costs.hdfs_backed
        return stores * own.store + load.updates * own.row + load.rows * costs.rewritten / every
    if not setting.changelog:
        return stores * costs.snapshots.store + load.updates * costs.snapshots.row
    every = max(float(setting.deltas), setting.maintenance / load.interval)
    extra = stores * max(0.0, costs.snapshots.store - costs.changelog.store)
    extra += load.updates * max(0.0, costs.snapshots.row - costs.changelog.row)
    return stores * costs.changelog.store + load.updates * costs.changelog.row + extra / every


def candidates(partitions: Sequence[int], providers: Sequence[Provider] = tuple(Provider)) -> Iterator[Setting]:
    """The settings that are tried."""
    for number in partitions:
        for provider in providers:
            if provider is Provider.ROCKSDB:
                yield Setting(provider=provider, changelog=False, partitions=number)
            for deltas in DELTAS:
                for maintenance in MAINTENANCE:
                    yield Setting(
                        provider=provider,
                        changelog=provider is Provider.ROCKSDB,
                        deltas=deltas,
                        maintenance=maintenance,
                        partitions=number,
                    )


def cheapest(plans: Sequence[Plan], objective: float) -> Plan | None:
    """The cheapest that holds an objective, in seconds; of several that cost the same, the quickest."""
    holding = [plan for plan in plans if plan.seconds <= objective * MARGIN]
    return min(holding, key=lambda plan: (round(plan.cpu, 4), plan.seconds, plan.setting), default=None)


def quickest(plans: Sequence[Plan], budget: float) -> Plan | None:
    """The shortest recovery within a share of a processor; of several that take the same, the cheapest."""
    within = [plan for plan in plans if plan.cpu <= budget]
    return min(within, key=lambda plan: (round(plan.seconds, 2), plan.cpu, plan.setting), default=None)


def curve(plans: Sequence[Plan]) -> list[Plan]:
    """The plans that no other beats in both: by cost, the cheapest first."""
    best: list[Plan] = []
    for plan in sorted(plans, key=lambda one: (one.cpu, one.seconds, one.setting)):
        if not best or plan.seconds < best[-1].seconds - 0.01:
            best.append(plan)
    return best
