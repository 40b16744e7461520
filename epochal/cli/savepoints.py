"""``epochal savepoints``: the savepoints in a folder; ``--verify`` reads them back, ``--remove`` removes one."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence

from epochal._version import __version__
from epochal.cli import progress
from epochal.cli.savepoint import to_json as savepoint_json
from epochal.cli.streams import reach, start_spark
from epochal.cli.text import counted, listed, paint, print_answer, size, table
from epochal.sinks.storage.hadoop import start_on_demand
from epochal.spark_plugins.moving.manifest import Manifest, SavedFile
from epochal.spark_plugins.moving.store import OBJECTS, TAKING, SavepointStore
from epochal.txn.access import refuse_unreachable
from epochal.txn.driver_facts import this_driver
from epochal.txn.errors import DataLost, Refused
from epochal.txn.model import Json


def run(target: str, *, remove: Sequence[str], verify: bool, as_json: bool) -> int:
    """List, and remove or verify."""
    start_on_demand(start_spark)
    store = SavepointStore(*reach(target))
    _check_is_store(store)
    removed = _removed(store, remove) if remove else 0
    found = store.manifests()
    damaged = {m.name: missing for m in found if (missing := store.missing(m))}
    if verify:
        with progress.task(f"reading {counted(len(found), 'savepoint')}"):
            _verify(store, found)
    if as_json:
        print_answer(json.dumps(to_json(store.place, found, damaged, list(remove), removed), indent=2))
    else:
        print_answer(to_text(store.place, found, damaged, remove, removed) + (_verified(found) if verify else ""))
    if damaged:
        names = ", ".join(sorted(damaged))
        raise DataLost(
            f"files of {names} are gone. Remove them by --remove, and look at what removes files in {store.place}"
        )
    return 0


def _check_is_store(store: SavepointStore) -> None:
    """Refuse any other folder: --remove would take its subfolders for savepoints."""
    with refuse_unreachable(f"the folder {store.place}", "Name a folder of savepoints, as a user who may read it"):
        names = store.files.names(store.place)
    if not names:
        raise Refused(f"{store.place}: no such folder, or it is empty. Name a folder of savepoints")
    if not {OBJECTS, TAKING} & {*names} and not store.manifests():
        raise Refused(
            f"{store.place}: no such folder of savepoints: there is something else in it. Nothing was changed. Name "
            "the TARGET of `epochal savepoint`"
        )


def _removed(store: SavepointStore, names: Sequence[str]) -> int:
    """Remove savepoints, and the files that no other one has; how many those were."""
    unknown = [name for name in names if not store.has(name)]
    if unknown:
        raise Refused(f"{store.place} has no savepoint {', '.join(unknown)}. Nothing was removed")
    for name in names:
        store.remove(name)
    me = this_driver(__version__).to_json()
    return store.sweep("", me, store.give_up_dead("", time.time()))


def _verify(store: SavepointStore, found: Sequence[Manifest]) -> None:
    """Read every file of every savepoint, each once. DataLost for the first that is not what was stored."""
    store.verify(_contents(found))


def _contents(found: Sequence[Manifest]) -> Collection[SavedFile]:
    """What savepoints have, each content once."""
    return {file.sha256: file for manifest in found for file in manifest.files}.values()


def _verified(found: Sequence[Manifest]) -> str:
    """What --verify has read, in a line."""
    contents = _contents(found)
    if not contents:
        return ""
    epochs = listed(sorted({manifest.epoch for manifest in found}))
    what = f"{counted(len(contents), 'file')}, {size(sum(file.bytes for file in contents))}"
    of = f"{counted(len(found), 'savepoint')} of epoch{'s' if len({m.epoch for m in found}) > 1 else ''} {epochs}"
    return f"\nverified: {of}: {what} read back, and each has the SHA-256 that was recorded"


def to_json(
    place: str, found: Sequence[Manifest], damaged: dict[str, list[str]], removed: Sequence[str], swept: int
) -> dict[str, Json]:
    """The savepoints as JSON."""
    savepoints: list[Json] = [{**savepoint_json(place, m), "missing": len(damaged.get(m.name, ()))} for m in found]
    return {"target": place, "savepoints": savepoints, "removed": list(removed), "swept": swept}


def to_text(
    place: str, found: Sequence[Manifest], damaged: dict[str, list[str]], removed: Sequence[str], swept: int
) -> str:
    """The savepoints as a table."""
    first = (
        f"removed {', '.join(removed)}, and {counted(swept, 'file')} that no other savepoint has\n" if removed else ""
    )
    if not found:
        return f"{first}{place} has no savepoint"
    rows = [
        [m.name, str(m.epoch), m.at, m.checkpoint, size(m.bytes), size(m.stored), _state(damaged.get(m.name, []))]
        for m in found
    ]
    headers = ["SAVEPOINT", "EPOCH", "TAKEN", "OF", "SIZE", "NEW", "FILES"]
    shown = table(headers, rows, right=["EPOCH", "SIZE", "NEW"])
    return f"{first}{shown}"


def _state(missing: Sequence[str]) -> str:
    return paint(f"{len(missing)} missing", "red") if missing else "there"
