"""The options of a Delta sink: each is declared once, here."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Literal

from epochal.sinks.config.declaring import Option, SinkName, SinkOptions, declared
from epochal.sinks.config.options import Faults
from epochal.sinks.storage.paths import spark_path

Mode = Literal["append", "complete", "upsert"]


@declared
@dataclass(frozen=True, eq=False, repr=False)
class DeltaOptions(SinkOptions):
    """How rows become a Delta table."""

    kind: ClassVar[str] = "delta"

    path: Annotated[
        str,
        Option(
            "the table: a local folder, the URI of a Hadoop file system, or on S3",
            expects="a folder or URI, not empty",
            journal="target",
            restore=spark_path,
        ),
    ]
    _: KW_ONLY
    mode: Annotated[
        Mode,
        Option(
            'add the epoch\'s rows, put them in place of all rows (`"complete"`), or update and insert by `keys` '
            '(`"upsert"`)',
            journal=True,
        ),
    ] = "append"
    name: SinkName = "delta"
    partition_by: Annotated[
        Sequence[str], Option("columns, for a new table; for an existing one they must be the same")
    ] = ()
    properties: Annotated[
        Mapping[str, str] | None,
        Option("properties of a new table", expects="a dictionary of texts, such as {'delta.appendOnly': 'true'}"),
    ] = None
    evolve: Annotated[
        Literal["add_columns"] | None,
        Option("columns that the table does not have are added in the epoch's own commit"),
    ] = None
    keys: Annotated[
        Sequence[str], Option("upsert: the columns that identify a row; none may be null", journal=True)
    ] = ()
    order_by: Annotated[
        Sequence[str], Option("upsert: of several rows of a key the last by these wins; ties are refused")
    ] = ()
    delete_when: Annotated[
        str | None,
        Option("upsert: a SQL condition; the row deletes its key", expects="a SQL condition, such as \"op = 'D'\""),
    ] = None
    drop: Annotated[Sequence[str], Option("upsert: columns that are there for `order_by` and `delete_when` only")] = ()
    digest: Annotated[
        bool,
        Option(
            "append and complete: digest each epoch's rows while they are written, for "
            "[`epochal audit`](operations.md#audit-is-every-row-there-exactly-once); for its cost see "
            "[files](files.md#digests)"
        ),
    ] = False

    def __repr__(self) -> str:
        return f"DeltaSink({self.path!r}, mode={self.mode!r}, name={self.name!r})"

    @property
    def table_properties(self) -> Mapping[str, str]:
        return self.properties or {}

    def check_together(self, faults: Faults) -> None:
        installed = all(importlib.util.find_spec(package) for package in ("deltalake", "delta"))
        faults.check(installed, "Delta's packages are not installed: pip install 'epochal[delta]'")
        if self.mode == "upsert":
            faults.check(bool(self.keys), "keys: an upsert needs them, such as keys=['order_id']")
            faults.check(self.evolve is None, "evolve: not for an upsert")
        else:
            for option in ("keys", "order_by", "delete_when", "drop"):
                faults.check(not getattr(self, option), f"{option}: only for mode='upsert'")
        faults.check(
            not (self.digest and self.mode == "upsert"),
            "digest=True: not for an upsert, whose rows may be updated or deleted by any later epoch",
        )
        for key in self.keys:
            faults.check(key not in self.drop, f"drop: {key!r} is a key")
