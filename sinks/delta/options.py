"""The options of a Delta sink, checked all at once."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from epochal.sinks.config.options import Faults

MODES = ("append", "complete", "upsert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that are read more than once. Made by `checked_options`, so whoever has them need not look again."""

    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    keys: tuple[str, ...]
    order_by: tuple[str, ...]
    drop: tuple[str, ...]


def checked_options(
    path: str,
    *,
    mode: str,
    name: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str] | None,
    evolve: str | None,
    keys: Sequence[str],
    order_by: Sequence[str],
    delete_when: str | None,
    drop: Sequence[str],
    digest: bool,
) -> Options:
    """What a sink was given, if all of it is right; else every fault in one error."""
    faults = Faults(f"DeltaSink({path!r})")
    installed = all(importlib.util.find_spec(package) for package in ("deltalake", "delta"))
    faults.check(installed, "Delta's packages are not installed: pip install 'epochal[delta]'")
    faults.check(isinstance(path, str) and path.strip() != "", "path: a folder or URI, not empty")
    faults.one_of("mode", mode, MODES)
    faults.sink_name(name)
    partitions = faults.column_names("partition_by", partition_by)
    key_columns = faults.column_names("keys", keys)
    ordered_by = faults.column_names("order_by", order_by)
    dropped = faults.column_names("drop", drop)
    texts = _texts("properties", properties, faults)
    if evolve is not None:
        faults.one_of("evolve", evolve, ("add_columns",))
    faults.check(
        delete_when is None or (isinstance(delete_when, str) and delete_when.strip() != ""),
        f"delete_when={delete_when!r}: a SQL condition, such as \"op = 'D'\"",
    )
    if mode == "upsert":
        faults.check(bool(key_columns), "keys: an upsert needs them, such as keys=['order_id']")
        faults.check(evolve is None, "evolve: not for an upsert")
    else:
        for option, value in (("keys", keys), ("order_by", order_by), ("delete_when", delete_when), ("drop", drop)):
            faults.check(not value, f"{option}: only for mode='upsert'")
    faults.check(isinstance(digest, bool), f"digest={digest!r}: True or False")
    faults.check(
        not (digest and mode == "upsert"),
        "digest=True: not for an upsert, whose rows may be updated or deleted by any later epoch",
    )
    for key in key_columns:
        faults.check(key not in dropped, f"drop: {key!r} is a key")
    faults.done()
    return Options(partition_by=partitions, properties=texts, keys=key_columns, order_by=ordered_by, drop=dropped)


def _texts(option: str, given: object, faults: Faults) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in given.items()):
        faults.add(f"{option}: a dictionary of texts, such as {{'delta.appendOnly': 'true'}}")
        return {}
    return dict(given)
