"""What an audit sees in a target by names and lengths alone, and what a digest is refused for: no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epochal import OptionError
from epochal.sinks.files import PublishedEpoch, RollingFileSink
from epochal.sinks.files.formats.digesting import format_of
from epochal.sinks.files.layout import Layout
from epochal.txn.audit import Expected, Scope, StoreReport
from epochal.txn.model import Attempt
from epochal.txn.row_digests import RowDigest

LINEAGE = "1f0c9a2e-0000-4000-8000-000000000000"


def publish(target: Path, epoch: int, *names: str, lineage: str = LINEAGE, rows: int = 1) -> list[Path]:
    """An epoch's files and its manifest."""
    paths = [target / f"day={epoch}" / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}\n")
    files = tuple((str(path.relative_to(target)), path.stat().st_size) for path in paths)
    entry = PublishedEpoch(lineage, epoch, 1, "", rows, files, digest="x64:0000000000000001:1")
    manifest = target / Layout("").manifest_name(Attempt(lineage, epoch, 1))
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_bytes(entry.encode())
    return paths


def part(epoch: int, number: int = 0, tag: str = "1f0c9a2e") -> str:
    return f"part-{epoch:012d}-{number:05d}-{tag}.json"


def audit(target: Path, *, through: int = 1, state: dict[str, Any] | None = None) -> StoreReport:
    scope = Scope(lineage=LINEAGE, expected=Expected(since=0, epochs={}, through=through), state=state or {}, fast=True)
    return RollingFileSink(str(target), format="json").audit(scope)


def test_a_target_that_is_as_its_manifests_say_shows_nothing(tmp_path: Path) -> None:
    publish(tmp_path, 0, part(0))
    publish(tmp_path, 1, part(1), part(1, 1))
    (tmp_path / "_SUCCESS-000000000000-1f0c9a2e").touch()
    (tmp_path / "day=1" / "_SUCCESS").touch()

    found = audit(tmp_path)

    assert found.differences == ()
    assert found.unproven == ("rows were not read",)
    assert found.epochs_present == frozenset({0, 1})
    assert found.recorded[1] == RowDigest(1, "x64:0000000000000001:1")


def test_a_file_that_is_gone_is_not_provable_and_named(tmp_path: Path) -> None:
    (file,) = publish(tmp_path, 0, part(0))
    file.unlink()

    found = audit(tmp_path)

    assert found.differences == ()
    assert part(0) in found.unproven[0]


def test_a_file_of_another_length_differs(tmp_path: Path) -> None:
    (file,) = publish(tmp_path, 0, part(0))
    file.write_text("x")

    (difference,) = audit(tmp_path).differences
    assert (difference.epoch, difference.file) == (0, f"day=0/{part(0)}")
    assert "has 1 bytes and was published with" in difference.what


def test_a_part_of_this_stream_that_no_manifest_lists_differs(tmp_path: Path) -> None:
    publish(tmp_path, 0, part(0))
    (tmp_path / "day=0" / part(0, 7)).write_text("once more")

    (difference,) = audit(tmp_path).differences
    assert (difference.epoch, difference.file) == (0, f"day=0/{part(0, 7)}")


def test_a_part_of_an_epoch_that_is_not_done_is_under_way(tmp_path: Path) -> None:
    publish(tmp_path, 0, part(0))
    (tmp_path / "day=0" / part(2)).write_text("soon")

    assert audit(tmp_path).differences == ()


def test_files_of_another_stream_are_its_own(tmp_path: Path) -> None:
    publish(tmp_path, 0, part(0))
    publish(tmp_path, 1, part(1, tag="c0ffee00"), lineage="c0ffee00-0000")

    found = audit(tmp_path)

    assert (found.differences, len(found.unproven), found.epochs_present) == ((), 1, frozenset({0}))


def test_a_file_that_nobody_published_is_told(tmp_path: Path) -> None:
    publish(tmp_path, 0, part(0))
    (tmp_path / "copy.json").write_text("{}")
    (tmp_path / "_hidden.json").write_text("{}")

    found = audit(tmp_path)

    assert found.differences == ()
    assert [reason for reason in found.unproven if "no epoch published it" in reason] == [
        "copy.json is there and no epoch published it: readers of the folder read it too"
    ]


def test_a_bucket_whose_name_begins_with_an_underscore_is_seen(tmp_path: Path) -> None:
    publish(tmp_path, 0, part(0))
    (tmp_path / "_day=1").mkdir()
    (tmp_path / "_day=1" / part(0, 1)).write_text("once more")

    assert audit(tmp_path).differences[0].file == f"_day=1/{part(0, 1)}"


def test_a_piece_that_is_gone_was_never_shown(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    state = {
        "target": str(tmp_path),
        "000000000000 ": {"at": 1.0, "shape": "json 1", "files": [["part-0.json", 3, 1], ["part-1.json", 3, 1]]},
    }
    home = tmp_path / "_epochal" / "open" / LINEAGE / "000000000000"
    home.mkdir(parents=True)
    (home / "part-0.json").write_text("{}\n")
    (home / "part-2.json").write_text("{}\n")

    found = audit(tmp_path, state=state)

    assert [difference.file for difference in found.differences] == [
        f"_epochal/open/{LINEAGE}/000000000000/part-1.json"
    ]
    assert "part-2.json" in found.notes[0]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"format": "xml"}, "digest=True: not for format='xml'"),
        ({"format": "json", "options": {"LineSep": "\r\n"}}, "a digest needs lines that end with a line feed"),
        ({"format": "csv", "options": {"encoding": "UTF-16"}}, "lines are read as UTF-8"),
        ({"format": "csv", "options": {"charset": "latin1"}}, "lines are read as UTF-8"),
        ({"digest": 1}, "digest=1: True or False"),
    ],
)
def test_a_digest_that_is_not_certain_is_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        RollingFileSink("t", **{"digest": True, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"format": "parquet", "options": {"lineSep": ";"}},
        {"format": "json", "options": {"lineSep": "\n", "encoding": "utf-8"}},
        {"format": "csv", "options": {"header": "true", "sep": "|"}},
    ],
)
def test_a_digest_that_is_certain_is_taken(options: dict[str, Any]) -> None:
    RollingFileSink("t", digest=True, **options)


def test_a_manifest_carries_digest_and_header_only_where_there_are_some() -> None:
    bare = PublishedEpoch("l", 1, 1, "", 2, ())
    full = PublishedEpoch("l", 1, 1, "", 2, (), digest="x64:0123456789abcdef:3", header="id,word")

    assert PublishedEpoch.decode("path", full.encode()) == full
    assert b"digest" not in bare.encode()
    assert b"header" not in bare.encode()


def test_a_description_tells_what_an_audit_must_know(tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path), format="csv", options={"header": "true"})

    again = RollingFileSink.from_description(sink.describe())

    assert again.describe() == sink.describe()
    assert again.has_header


@pytest.mark.parametrize(
    ("name", "format_"),
    [("part-1.snappy.parquet", "parquet"), ("a.b/part.txt.bz2", "text"), ("part.csv", "csv"), ("part", None)],
)
def test_a_files_format_is_known_by_its_ending(name: str, format_: str | None) -> None:
    assert format_of(name) == format_
