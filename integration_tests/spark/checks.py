"""What must hold, read from the bare files with plain Python: nothing here asks the code under test,
except that the journal must still be readable by it.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import orc

from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.spark import avro_files
from integration_tests.spark.driver import BYTES, MAX_ROWS
from integration_tests.spark.world import ROWS, Row, World, all_rows

_KEPT = re.compile(
    r"_epochal/(lineages/[^/.][^/]*\.json|manifest/[^/]+/\d{12}(\.\d{6}\.r\d{6})?\.json"
    r"|compactions/\d{12}\.(plan|done|removed)\.json)"
    r"|(.*/)?_SUCCESS(-[^/]*)?|_delta_log/[^/]+"
)
_PART = re.compile(r"(.*/)?part-(\d{12})(\.\d+\.\d+|\.c\d+)?-\d{5}-[0-9a-f]{8}(~\d+)?(\.[a-z0-9]+)+")


def visible_files(target: Path) -> list[Path]:
    """What any reader of the folder sees: names that begin with _ or . are passed over.

    A reader of a Delta table sees what its log names.
    """
    if (target / "_delta_log").exists():
        return _named_by_the_log(target)
    found = []
    for folder, folders, names in os.walk(target):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        found += [Path(folder, name) for name in names if not name.startswith(("_", "."))]
    return sorted(found)


def _named_by_the_log(target: Path) -> list[Path]:
    try:
        return sorted(Path(uri.removeprefix("file://")) for uri in DeltaTable(target).file_uris())
    except TableNotFoundError:
        return []  # its first entry is being made


def rows_in(file: Path) -> list[Row]:
    """The rows of one published file."""
    if file.suffix == ".parquet":
        found = pq.ParquetFile(file).read().to_pylist()
    elif file.suffix == ".orc":
        found = orc.ORCFile(file).read().to_pylist()
    elif file.suffix == ".avro":
        found = avro_files.rows_of(file)
    elif file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            text = [{**row, "kind": row["kind"].strip('"')} for row in csv.DictReader(lines)]
        found = [{**row, "id": int(row["id"]), "file": int(row["file"])} for row in text]
    else:
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row["id"], row["file"], row["kind"], row["word"]) for row in found]


def visible_rows(target: Path) -> Counter[Row]:
    """Every row that a reader sees, with how often."""
    return Counter(row for file in visible_files(target) for row in rows_in(file))


def committed(world: World) -> set[int]:
    """The epochs that Spark's commits/ has."""
    return {int(name) for name in _names(world.checkpoint / "commits") if name.isdecimal()}


def decided(world: World) -> set[int]:
    """The epochs that the journal has decided; those that were folded away too."""
    names = _names(world.journal)
    folded = max((int(name[1:13]) for name in names if re.fullmatch(r"s\d{12}\.json", name)), default=-1)
    return {*range(folded + 1), *(int(name[1:13]) for name in names if name.endswith(".decided.json"))}


def planned(world: World) -> dict[int, int]:
    """Which epoch each file of the source is in, by Spark's own logs.

    Nearly always the one of its number. A driver that dies between the source's log and offsets/N
    leaves a file that the next driver plans together with the one after it.
    """
    logged = {}
    for name in _names(world.checkpoint / "sources" / "0"):
        if name.removesuffix(".compact").isdecimal():
            for line in (world.checkpoint / "sources" / "0" / name).read_text().splitlines()[1:]:
                entry = json.loads(line)
                logged[int(Path(entry["path"]).stem)] = int(entry["batchId"])
    ends = {}
    for name in _names(world.checkpoint / "offsets"):
        if name.isdecimal():
            last = (world.checkpoint / "offsets" / name).read_text().splitlines()[-1]
            ends[int(name)] = json.loads(last)["logOffset"]
    epochs: dict[int, int] = {}
    for file, log in logged.items():
        covering = [epoch for epoch, end in ends.items() if end >= log]
        if covering:
            epochs[file] = min(covering)
    return epochs


def early(world: World, files: Iterable[int], *, eager: bool = False) -> set[int]:
    """Source files of which rows were seen before their epoch was decided.

    To be called after looking at the target: a decision that came meanwhile is fair.
    """
    fair = decided(world) if eager else committed(world)
    epoch_of = planned(world)
    return {file for file in files if epoch_of.get(file) not in fair}


def check_after_a_kill(world: World, *, eager: bool = False) -> None:
    """Nothing is visible that is not decided, nothing twice, and no epoch before an earlier one is whole."""
    for target in world.targets:
        rows = visible_rows(target)
        files = Counter(row[1] for row in rows.elements())
        late = early(world, files, eager=eager)
        epoch_of = planned(world)
        last = max((epoch_of[file] for file in files), default=-1)
        torn = [file for file, count in files.items() if count != ROWS and epoch_of[file] != last]

        assert not late, f"{target.name} shows files {late} of the source before their epochs are decided"
        assert max(rows.values(), default=1) == 1, f"{target.name} shows rows twice"
        assert sorted(files) == list(range(len(files))), f"{target.name} shows files {sorted(files)} of the source"
        assert not torn, f"{target.name} shows a part of files {torn}, and epochs after them"


def check_parts_after_a_kill(world: World) -> None:
    """With parts that stay open: nothing twice, and nothing that is not decided."""
    for target in world.targets:
        rows = visible_rows(target)

        assert max(rows.values(), default=1) == 1, f"{target.name} shows rows twice"
        late = early(world, {row[1] for row in rows})
        assert not late, f"{target.name} shows files {late} of the source before their epochs are decided"


def check_at_the_end(world: World, *, files: int) -> None:
    """Every row once in every target, everything settled, and nothing left lying about."""
    for target in world.targets:
        assert visible_rows(target) == all_rows(files), target.name
        assert leftovers(target) == [], target.name
    assert set(planned(world).values()) <= committed(world)
    assert [name for name in _names(world.journal) if name.startswith(".")] == []
    view = Journal(LocalFiles(), str(world.journal)).read()
    assert view.waiting() == []
    assert view.done_through == max(committed(world))


def check_closed_by_policy(world: World, policy: str, formats: str, *, files: int) -> None:
    """Parts were joined, and as the policy says: of each bucket only the last, which nobody waited for, is small."""
    for target, format_ in zip((world.first, world.second), formats.split(","), strict=False):
        buckets: dict[Path, list[Path]] = {}
        for file in visible_files(target):
            buckets.setdefault(file.parent, []).append(file)
        for bucket, parts in buckets.items():
            rows = [len(rows_in(part)) for part in parts]

            assert 1 < len(parts) < sum(rows), f"{bucket}: {len(parts)} files with {rows} rows"
            if policy in ("rows", "bytes"):
                assert len(parts) < files, f"{bucket}: {len(parts)} files of {files} epochs"
            if policy == "rows":
                assert min(rows[:-1]) >= MAX_ROWS, f"{bucket}: {rows} rows"
            if policy == "bytes" and format_ in ("json", "csv"):  # others are smaller than their pieces
                sizes = [part.stat().st_size for part in parts]
                assert min(sizes[:-1]) >= BYTES[format_], f"{bucket}: {sizes} bytes"


def leftovers(target: Path) -> list[str]:
    """Files that are not meant to stay, and staging areas that are not gone."""
    if (target / "_delta_log").exists():
        named = {file.name for file in visible_files(target)}
        stray = [path for path in _files_below(target) if not (_KEPT.fullmatch(path) or path in named)]
    else:
        stray = [path for path in _files_below(target) if not (_KEPT.fullmatch(path) or _PART.fullmatch(path))]
    staged = [*(target / "_epochal" / "staged").glob("*/*"), *(target / "_epochal" / "compacting").glob("*")]
    return stray + [str(path) for path in staged]


def published_by_manifest(target: Path) -> dict[str, int]:
    """The files that the manifests list, with their lengths."""
    listed = {}
    for path in sorted((target / "_epochal" / "manifest").glob("*/*.json")):
        for file in json.loads(path.read_text())["files"]:
            assert file["path"] not in listed, file
            listed[file["path"]] = file["bytes"]
    return listed


def _files_below(target: Path) -> Iterator[str]:
    for folder, _, names in os.walk(target):
        for name in names:
            yield Path(folder, name).relative_to(target).as_posix()


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
