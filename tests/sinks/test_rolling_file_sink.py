"""Commit, abort and memory of the rolling-file sink on files that are staged by hand: no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epochal.sinks.files import Rolling, RollingFileSink, published
from epochal.sinks.files.handle import StagedEpoch
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.files.sink import HANDLE_VERSION
from epochal.testing.contract import claim_for
from epochal.txn.errors import DataLost, JournalCorrupt, OptionError, Refused
from epochal.txn.files import LocalFiles
from epochal.txn.model import Attempt, Handle, Outcome

ATTEMPT = Attempt("1f0c9a2e-0000", 7, 2)


def stage(target: Path, attempt: Attempt = ATTEMPT, names: tuple[str, ...] = ("a", "b")) -> Handle:
    """What `stage` leaves behind, without Spark."""
    layout = Layout(str(target))
    home = Path(layout.attempt(attempt))
    (home / "data").mkdir(parents=True)
    moves: list[tuple[str, str, int]] = []
    for part, name in enumerate(names):
        text = f"{attempt.epoch}-{name}\n"
        (home / "data" / name).write_text(text)
        moves.append((f"data/{name}", f"day=1/part-{attempt.epoch:012d}-{part:05d}-1f0c9a2e.json", len(text)))
    (home / "marker-0").touch()
    work = StagedEpoch(
        EpochFacts(rows=2, offsets="digest"),
        files=tuple(moves),
        markers=(("marker-0", "day=1/_SUCCESS", 0),),
    )
    return Handle(HANDLE_VERSION, {"target": str(target), **work.to_json()})


def visible(target: Path) -> list[str]:
    return sorted(p.read_text() for p in target.rglob("part-*") if "_epochal" not in p.parts)


def staged(target: Path) -> list[Path]:
    return [p for p in (target / "_epochal" / "staged").rglob("*") if p.is_file()]


def test_staged_files_are_invisible_until_commit(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    before = visible(tmp_path)

    outcome = RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)

    assert before == []
    assert outcome is Outcome.COMMITTED
    assert visible(tmp_path) == ["7-a\n", "7-b\n"]
    assert staged(tmp_path) == []


def test_commit_repeated_shows_rows_once(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)

    again = RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)

    assert again is Outcome.ALREADY_COMMITTED
    assert visible(tmp_path) == ["7-a\n", "7-b\n"]


def test_commit_goes_on_where_a_crash_stopped_it(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    source = Path(Layout(str(tmp_path)).attempt(ATTEMPT)) / "data" / "a"
    target = tmp_path / "day=1" / "part-000000000007-00000-1f0c9a2e.json"
    target.parent.mkdir()
    target.hardlink_to(source)  # linked, not yet unlinked

    RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)

    assert visible(tmp_path) == ["7-a\n", "7-b\n"]
    assert staged(tmp_path) == []


def test_a_file_that_is_neither_staged_nor_published_is_data_loss(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    (Path(Layout(str(tmp_path)).attempt(ATTEMPT)) / "data" / "b").unlink()

    with pytest.raises(DataLost, match=r"neither published nor staged.* Put it back from a copy"):
        RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)


def test_another_file_under_the_published_name_is_not_taken_for_ours(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    target = tmp_path / "day=1" / "part-000000000007-00000-1f0c9a2e.json"
    target.parent.mkdir()
    target.write_text("something else")

    with pytest.raises(DataLost, match="another file with 14 bytes"):
        RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)

    assert target.read_text() == "something else"


def test_a_published_file_of_another_length_is_not_taken_for_ours(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    (Path(Layout(str(tmp_path)).attempt(ATTEMPT)) / "data" / "a").unlink()
    target = tmp_path / "day=1" / "part-000000000007-00000-1f0c9a2e.json"
    target.parent.mkdir()
    target.write_text("7-")

    with pytest.raises(DataLost, match="another file with 2 bytes"):
        RollingFileSink(str(tmp_path)).commit(ATTEMPT, handle)


def test_abort_removes_the_attempt_and_nothing_that_is_visible(tmp_path: Path) -> None:
    loser = Attempt(ATTEMPT.lineage, 7, 1)
    handle, lost = stage(tmp_path), stage(tmp_path, loser)
    sink = RollingFileSink(str(tmp_path))
    sink.commit(ATTEMPT, handle)

    sink.abort(loser, lost)
    sink.abort(loser, None)
    sink.abort(ATTEMPT, handle)

    assert visible(tmp_path) == ["7-a\n", "7-b\n"]
    assert sink.leftovers(ATTEMPT.lineage) == []


def test_leftovers_are_the_attempts_that_still_have_something_staged(tmp_path: Path) -> None:
    stage(tmp_path)
    stage(tmp_path, Attempt(ATTEMPT.lineage, 8, 3))
    sink = RollingFileSink(str(tmp_path))

    found = sink.leftovers(ATTEMPT.lineage)

    assert found == [ATTEMPT, Attempt(ATTEMPT.lineage, 8, 3)]
    assert sink.leftovers("another") == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"parquet.encryption.footer.key": "k1"}, True),
        ({"Parquet.Crypto.Factory.Class": "org.example.Factory"}, True),
        ({"parquet.block.size": "1048576"}, False),
    ],
)
def test_footers_of_files_with_keys_of_their_own_are_not_read(options: dict[str, str], expected: bool) -> None:
    assert RollingFileSink("target", options=options).encrypts is expected


def test_the_target_remembers_who_wrote_what(tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path))
    claim_for(sink, ATTEMPT.lineage)
    claim_for(sink, "2b-other", replaces=(ATTEMPT.lineage,))
    sink.commit(ATTEMPT, stage(tmp_path))

    mine, others = sink.open(ATTEMPT.lineage), sink.open("2b-other")

    assert (mine.enrolled, mine.last, mine.recent, mine.adopted_by) == (True, 7, {7: "digest"}, "2b-other")
    assert (others.enrolled, others.last, others.others) == (True, -1, {ATTEMPT.lineage: 7})


def test_the_manifest_lists_whole_epochs_with_their_files(tmp_path: Path) -> None:
    RollingFileSink(str(tmp_path)).commit(ATTEMPT, stage(tmp_path))
    stage(tmp_path, Attempt(ATTEMPT.lineage, 8, 2))

    (epoch,) = published(str(tmp_path))

    assert (epoch.epoch, epoch.generation, epoch.rows) == (7, 2, 2)
    assert [(tmp_path / name).stat().st_size for name, _ in epoch.files] == [length for _, length in epoch.files]


def test_a_path_that_is_no_target_is_refused_and_a_target_without_epochs_is_empty(tmp_path: Path) -> None:
    claim_for(RollingFileSink(str(tmp_path / "orders")), "1f0c9a2e")

    assert published(str(tmp_path / "orders")) == []
    with pytest.raises(Refused, match=r"ordres is not the target of a RollingFileSink.* Check the path"):
        published(str(tmp_path / "ordres"))


def test_a_torn_manifest_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path))
    sink.commit(ATTEMPT, stage(tmp_path))
    (entry,) = (tmp_path / "_epochal" / "manifest").rglob("*.json")
    entry.write_bytes(entry.read_bytes()[:-20])

    with pytest.raises(JournalCorrupt, match=entry.name):
        sink.open(ATTEMPT.lineage)


def test_a_newer_manifest_is_an_error_that_says_so(tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path))
    sink.commit(ATTEMPT, stage(tmp_path))
    (entry,) = (tmp_path / "_epochal" / "manifest").rglob("*.json")
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "format": 2}))

    with pytest.raises(JournalCorrupt, match="newer"):
        published(str(tmp_path))


def test_a_folder_of_sparks_own_file_sink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").touch()

    with pytest.raises(Refused, match="_spark_metadata"):
        RollingFileSink(str(tmp_path)).open(ATTEMPT.lineage)


def test_a_handle_of_another_version_or_target_is_refused(tmp_path: Path) -> None:
    handle = stage(tmp_path)
    sink = RollingFileSink(str(tmp_path))

    with pytest.raises(Refused, match="handle version 99"):
        sink.commit(ATTEMPT, Handle(99, handle.body))
    with pytest.raises(Refused, match="epochal recover"):
        RollingFileSink(str(tmp_path / "other")).commit(ATTEMPT, handle)


def test_a_sink_rebuilt_from_its_description_can_commit(tmp_path: Path) -> None:
    original = RollingFileSink(str(tmp_path), format="json", name="archive", options={"password": "s3cret"})
    description = json.loads(json.dumps(original.describe()))

    rebuilt = RollingFileSink.from_description(description)

    assert "s3cret" not in json.dumps(description)
    assert rebuilt.name == "archive"
    assert rebuilt.commit(ATTEMPT, stage(tmp_path)) is Outcome.COMMITTED


def test_all_faults_come_in_one_error_and_no_option_s_value_is_told() -> None:
    with pytest.raises(OptionError) as caught:
        RollingFileSink(
            "",
            format="parqet",  # type: ignore[arg-type]  # that is the point
            bucket_by=["a", "a"],
            name="9 lives",
            max_rows_per_file=0,
            marker="always",  # type: ignore[arg-type]  # that is the point
            options={"path": "x", "secret": 42},  # type: ignore[dict-item]  # that is the point
        )

    assert len(caught.value.faults) == 8
    assert "did you mean 'parquet'?" in str(caught.value)
    assert "42" not in str(caught.value)


def test_text_cannot_keep_bucket_columns() -> None:
    with pytest.raises(OptionError, match="text holds one column"):
        RollingFileSink("t", format="text", bucket_by=["day"], drop_bucket_columns=False)


@pytest.mark.parametrize("codec", ["snappy", "deflate", "zstandard", "bzip2", "xz", "uncompressed"])
def test_avro_takes_its_own_codecs(codec: str) -> None:
    RollingFileSink("t", format="avro", compression=codec)
    RollingFileSink("t", format="avro", options={"compression": codec})


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"options": {"Compression": "zstd"}}])
def test_a_codec_that_avro_does_not_have_is_told_with_those_that_it_has(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"compression='zstd'.* did you mean 'zstandard'\?"):
        RollingFileSink("t", format="avro", **options)


def test_without_rolling_an_avro_schema_may_lie_behind_an_address() -> None:
    RollingFileSink("t", format="avro", options={"avroSchemaUrl": "hdfs://host/order.avsc"})


@pytest.mark.parametrize(
    ("below", "told"), [("", "is a Delta table"), ("a/b", "lies inside .*/table, which is a Delta")]
)
def test_the_folder_of_a_delta_table_is_refused(tmp_path: Path, below: str, told: str) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").touch()
    sink = RollingFileSink(f"file:{tmp_path}/table/{below}")

    with pytest.raises(Refused, match=f"{told}.*Use a DeltaSink, or another folder"):
        sink.open("1f0c9a2e-77")
    assert [path.name for path in (tmp_path / "table").iterdir()] == ["_delta_log"]


def test_a_folder_beside_a_delta_table_is_as_good_as_any(tmp_path: Path) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").touch()

    assert not RollingFileSink(f"file:{tmp_path}/other").open("1f0c9a2e-77").enrolled


def test_a_stream_whose_claim_was_removed_is_known_by_its_epochs(tmp_path: Path) -> None:
    sink = RollingFileSink(f"file:{tmp_path}")
    work = StagedEpoch(EpochFacts(1, "digest"))
    entry = work.entry(ATTEMPT)
    layout = Layout(str(tmp_path))
    LocalFiles().create(f"{tmp_path}/{layout.manifest_name(ATTEMPT)}", entry.encode())

    assert sink.open("2b-other").others == {ATTEMPT.lineage: ATTEMPT.epoch}
    assert sink.open(ATTEMPT.lineage).enrolled


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bucket_by": [".x"]}, "begins with a dot, so Spark would not read it"),
        ({"format": "csv", "rolling": Rolling(max_rows=9), "options": {"codec": "deflate"}}, "cannot be joined"),
        (
            {"format": "json", "rolling": Rolling(max_rows=9), "options": {"encoding": "UTF-16"}},
            "with rolling use UTF-8",
        ),
        (
            {
                "format": "json",
                "rolling": Rolling(max_rows=9),
                "options": {"mapreduce.output.fileoutputformat.compress": "true"},
            },
            "with rolling give compression= instead",
        ),
    ],
    ids=["hidden folder", "codec by its other name", "marks of encodings", "Hadoop's compression"],
)
def test_what_readers_would_not_find_or_understand_is_refused(options: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        RollingFileSink("archive", **options)


def test_a_codec_may_be_spelled_in_capitals() -> None:
    RollingFileSink("archive", format="json", compression="GZIP", rolling=Rolling(max_rows=9))
