"""Checks the columns that the options of an upsert name, before anything is written. No job runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochal.sinks.config.options import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def option_faults(
    rows: DataFrame, *, keys: Sequence[str], order_by: Sequence[str], drop: Sequence[str], delete_when: str | None
) -> list[str]:
    """What is wrong with the columns that `keys`, `order_by`, `drop` and `delete_when` name."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    faults = []
    for option, names in (("keys", keys), ("order_by", order_by), ("drop", drop)):
        for name in names:
            if name not in rows.columns:
                faults.append(
                    f"{option}: {name!r} is not in the frame, which has {', '.join(rows.columns)}"
                    f"{nearest(name, rows.columns)}"
                )
            elif option != "drop" and isinstance(kind := rows.schema[name].dataType, t.MapType | t.VariantType):
                faults.append(f"{option}: {name!r} is {kind.simpleString()}, which cannot be compared")
    if delete_when is not None:
        try:
            made = rows.select(f.expr(delete_when).alias("c")).schema["c"].dataType
        except PySparkException as fault:
            message = str(fault.getMessage() or fault).partition("\n")[0]
            faults.append(f"delete_when={delete_when!r}: {message}")
        else:
            if not isinstance(made, t.BooleanType):
                faults.append(f"delete_when={delete_when!r}: {made.simpleString()}, and not a condition")
    return faults
