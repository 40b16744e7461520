"""``epochal state``: what Spark's operators keep, and how long a recovery of it would take. Reads files only."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from epochal.cli.streams import reach
from epochal.cli.text import counted, key_values, paint, print_answer, size, table
from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery.model import Rates, RecoveryTime, predicted
from epochal.spark_plugins.recovery.reading import COUNTED, read_state
from epochal.spark_plugins.recovery.states import OperatorState, PartitionState, Rows, SparkState, StoreState
from epochal.txn.access import refuse_unreachable
from epochal.txn.errors import Refused
from epochal.txn.files import Files
from epochal.txn.model import Json

SHOWN = 8  # partitions of an operator, those with most to restore


@dataclass(frozen=True)
class Restorable:
    """The state of a query, and what a recovery of it would take."""

    state: SparkState
    rates: Rates
    slots: int
    recovery: RecoveryTime


def run(path: str, *, cores: int | None, every: bool, as_json: bool) -> int:
    """Print it. The exit code is 2 if Spark could not restore a store."""
    files, place = reach(path)
    with refuse_unreachable(
        f"the checkpoint {place}", "Name the checkpointLocation of a query, as a user who may read"
    ):
        if not files.names(place):
            raise Refused(f"{place}: there is no such folder, or it is empty. Name the checkpointLocation of a query")
        found = read(files, place, cores)
    print_answer(
        json.dumps(to_json(place, found), indent=2) if as_json else to_text(place, found, SHOWN if not every else None)
    )
    return 2 if any(operator.missing for operator in found.state.operators) else 0


def read(files: Files, place: str, cores: int | None = None, *, counted_bytes: int = COUNTED) -> Restorable:
    """The state in a checkpoint, with the prediction for this machine, or for a number of cores."""
    state, rates, slots = read_state(files, place, counted=counted_bytes), kept.load(), cores or os.cpu_count() or 1
    return Restorable(state, rates, slots, predicted(state, rates, slots=slots))


def to_json(place: str, found: Restorable) -> dict[str, Json]:
    """The answer as JSON."""
    state = found.state
    return {
        "checkpoint": place,
        "epoch": state.epoch if state.epoch >= 0 else None,
        "version": state.version,
        "bytes": state.bytes,
        "extent": state.extent,
        "operators": [operator_json(operator) for operator in state.operators],
        "recovery": recovery_json(found),
        "notes": list(state.notes),
    }


def recovery_json(found: Restorable) -> dict[str, Json]:
    """The prediction as JSON, in seconds."""
    recovery = found.recovery
    parts = {name: getattr(recovery, name) for name in ("session", "query", "load", "replay", "epoch", "total")}
    return {
        **{f"{name}_seconds": round(value, 3) for name, value in parts.items()},
        "cores": found.slots,
        "rates_measured": found.rates.measured,
    }


def operator_json(operator: OperatorState, *, partitions: bool = True) -> dict[str, Json]:
    """One operator as JSON."""
    answer: dict[str, Json] = {
        "operator": operator.metadata.operator,
        "name": operator.metadata.name,
        "provider": None if operator.provider is None else operator.provider.value,
        "stores": list(operator.metadata.stores),
        "families": list(operator.families),
        **_rows_json("rows", operator.rows),
        "bytes": operator.bytes,
        "stored_bytes": operator.stored_bytes,
        "extent": operator.extent,
        **_rows_json("replay_rows", operator.replay_rows),
        "replay_bytes": operator.replay_bytes,
        "skew": None if operator.skew is None else round(operator.skew, 3),
        "missing": len(operator.missing),
    }
    if partitions:
        answer["partitions"] = [_partition_json(partition) for partition in operator.partitions]
    return answer


def _partition_json(partition: PartitionState) -> dict[str, Json]:
    return {
        "partition": partition.partition,
        **_rows_json("rows", partition.rows),
        "bytes": partition.bytes,
        "stored_bytes": partition.stored_bytes,
        "snapshot": partition.snapshot,
        "extent": partition.extent,
        **_rows_json("replay_rows", partition.replay_rows),
        "replay_bytes": partition.replay_bytes,
        "stores": [_store_json(store) for store in partition.stores],
    }


def _store_json(store: StoreState) -> dict[str, Json]:
    return {
        "store": store.store,
        **_rows_json("rows", store.rows),
        "bytes": store.bytes,
        "snapshot": store.snapshot,
        "extent": store.extent,
        **_rows_json("replay_rows", store.replay_rows),
        "replay_bytes": store.replay_bytes,
        "missing": list(store.missing),
    }


def _rows_json(name: str, rows: Rows | None) -> dict[str, Json]:
    return {name: None if rows is None else rows.count, f"{name}_exact": rows is not None and rows.exact}


def to_text(place: str, found: Restorable, shown: int | None) -> str:
    """The answer as text; of each operator so many partitions, or all."""
    state = found.state
    epoch = "none" if state.epoch < 0 else f"{state.epoch}; a recovery restores version {state.version}"
    parts = [key_values([("checkpoint", place), ("Spark committed", epoch), *recovery_lines(found)])]
    if not state.operators:
        return "\n\n".join([*parts, "the query keeps no state"])
    cells = [
        [
            str(operator.metadata.operator),
            operator.metadata.name,
            "-" if operator.provider is None else operator.provider.value,
            str(len(operator.partitions)),
            rows_text(operator.rows),
            size(operator.bytes),
            str(operator.extent),
            replay_text(operator.replay_rows, operator.replay_bytes),
            "-" if operator.skew is None else f"{operator.skew:.2f}",
        ]
        for operator in state.operators
    ]
    headers = ["OPERATOR", "NAME", "PROVIDER", "PARTITIONS", "ROWS", "BYTES", "EXTENT", "REPLAY", "SKEW"]
    parts.append(table(headers, cells, right=["OPERATOR", "PARTITIONS", "ROWS", "BYTES", "EXTENT", "SKEW"]))
    parts.extend(_partitions(operator, shown) for operator in state.operators)
    for operator in state.operators:
        if operator.missing:
            partition, store, version = operator.missing[0]
            many = (
                f"{counted(len(operator.missing), 'version')} of operator {operator.metadata.operator} cannot be read"
            )
            first = f"the first is version {version} of partition {partition}, store {store}"
            parts.append(paint(f"{many}: {first}. Spark could not restore the query: restore the files", "red"))
    parts.extend(f"note: {note}" for note in state.notes)
    return "\n\n".join(parts)


def _partitions(operator: OperatorState, shown: int | None) -> str:
    """The partitions that take longest to restore, as a table."""
    largest = sorted(operator.partitions, key=lambda one: (-one.extent, -one.bytes, one.partition))[:shown]
    cells = [
        [
            str(one.partition),
            rows_text(one.rows),
            size(one.bytes),
            "none" if one.snapshot is None else str(one.snapshot),
            str(one.extent),
            replay_text(one.replay_rows, one.replay_bytes),
        ]
        for one in largest
    ]
    headers = ["PARTITION", "ROWS", "BYTES", "SNAPSHOT", "EXTENT", "REPLAY"]
    families = f" ({', '.join(operator.families)})" if operator.families else ""
    title = paint(f"operator {operator.metadata.operator}: {operator.metadata.name}{families}", "bold")
    left = len(operator.partitions) - len(largest)
    more = [f"and {counted(left, 'more partition')} (--all)"] if left else []
    return "\n".join([title, table(headers, cells, right=headers[:-1]), *more])


def recovery_lines(found: Restorable) -> list[tuple[str, str]]:
    """The prediction, as names and values."""
    recovery = found.recovery
    source = (
        "by guesses: `epochal plan-recovery` measures this machine"
        if found.rates.measured is None
        else f"by what this machine needed on {found.rates.measured}"
    )
    return [
        ("predicted recovery", f"{recovery.total:.1f} s on {counted(found.slots, 'core')}, {source}"),
        ("", parts_text(recovery)),
    ]


def parts_text(recovery: RecoveryTime) -> str:
    """The parts of a recovery in a line."""
    return (
        f"session {recovery.session:.1f} s, query {recovery.query:.1f} s, state {recovery.state:.1f} s "
        f"(load {recovery.load:.1f}, replay {recovery.replay:.1f}), first epoch {recovery.epoch:.1f} s"
    )


def rows_text(rows: Rows | None) -> str:
    """A number of rows; ``~`` for an estimate."""
    return "?" if rows is None else f"{'' if rows.exact else '~'}{rows.count:,}"


def replay_text(rows: Rows | None, size_of: int) -> str:
    """What is replayed."""
    return "none" if not size_of else f"{rows_text(rows)} {'row' if rows == Rows(1) else 'rows'}, {size(size_of)}"


def operator_line(operator: OperatorState) -> str:
    """One operator in a line, for ``epochal status``."""
    skew = "" if operator.skew is None or operator.skew < 2 else f", skew {operator.skew:.1f}"
    replay = f", replay {replay_text(operator.replay_rows, operator.replay_bytes)}" if operator.replay_bytes else ""
    lost = f", {counted(len(operator.missing), 'version')} missing" if operator.missing else ""
    provider = "" if operator.provider is None else f" ({operator.provider.value})"
    return (
        f"{operator.metadata.operator} {operator.metadata.name}{provider}: {rows_text(operator.rows)} rows, "
        f"{size(operator.bytes)} in {counted(len(operator.partitions), 'partition')}, "
        f"extent {operator.extent}{replay}{skew}{lost}"
    )
