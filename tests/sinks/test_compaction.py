"""One compaction after the other, on local disks: what is joined, what a crash leaves, what sleepers find."""

from __future__ import annotations

import bz2
import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import epochal
from epochal.sinks.files.compaction import records
from epochal.sinks.files.layout import Layout
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from tests.sinks.compacting import (
    LINEAGE,
    NOW,
    below_home,
    compactor,
    listed,
    name_of,
    publish,
    rows_by_manifest,
    rows_of_folder,
    visible,
)

ROOT = Path(__file__).parents[2]
FILES = LocalSinkFiles(sync=False)


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "target")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def fill(target: str, epochs: range, *, bucket: str = "") -> None:
    for epoch in epochs:
        publish(FILES, epoch, {f"{bucket}{name_of(epoch)}": b"%d\n" % epoch}, target=target)


def rows(epochs: int) -> Counter[bytes]:
    return Counter(b"%d" % epoch for epoch in range(epochs))


def check_whole(target: str, epochs: int) -> None:
    """Every row once for each kind of reader, and nothing left lying about."""
    known = records.read(FILES, Layout(target))

    assert rows_by_manifest(FILES, target) == rows(epochs)
    assert rows_of_folder(FILES, target) == rows(epochs)
    assert below_home(FILES, "compacting", target) == []
    assert known.removed == set(range(1, known.last + 1))


def test_small_files_become_one_in_the_order_of_epochs(target: str) -> None:
    fill(target, range(12), bucket="day=1/")

    report = compactor(FILES, target=target).run()

    (path,) = visible(FILES, target)
    assert path == "day=1/part-000000000011.c1-00000-1f0c9a2e.json"
    assert Path(target, path).read_bytes() == b"".join(b"%d\n" % epoch for epoch in range(12))
    assert report.number == 1
    check_whole(target, 12)


def test_a_joined_file_is_published_with_the_last_epoch_it_holds(target: str) -> None:
    fill(target, range(3))
    compactor(FILES, target=target).run()
    fill(target, range(3, 4))

    found = epochal.published(target)

    assert [(epoch.epoch, epoch.rows, [path for path, _ in epoch.files]) for epoch in found] == [
        (0, 1, []),
        (1, 1, []),
        (2, 1, ["part-000000000002.c1-00000-1f0c9a2e.json"]),
        (3, 1, [name_of(3)]),
    ]


def test_what_was_joined_is_joined_again_to_what_came_since(target: str) -> None:
    fill(target, range(2))
    compactor(FILES, target=target).run()
    fill(target, range(2, 4))

    report = compactor(FILES, target=target).run()

    assert report.number == 2
    assert visible(FILES, target) == ["part-000000000003.c2-00000-1f0c9a2e.json"]
    check_whole(target, 4)


def test_a_second_run_finds_nothing_to_do_and_records_nothing(target: str) -> None:
    fill(target, range(4))
    compactor(FILES, target=target).run()
    before = below_home(FILES, "compactions", target)

    report = compactor(FILES, target=target).run()

    assert (report.number, report.joined) == (None, ())
    assert below_home(FILES, "compactions", target) == before


def test_a_look_changes_nothing(target: str) -> None:
    fill(target, range(4))
    before = [*FILES.walk(target)]

    report = compactor(FILES, target=target).look()

    assert [len(group.files) for group in report.choice.groups] == [4]
    assert [*FILES.walk(target)] == before


def test_files_that_no_manifest_lists_are_never_touched(target: str) -> None:
    fill(target, range(3))
    stray = Path(target, name_of(3))
    stray.write_bytes(b"3\n")

    compactor(FILES, target=target).run()

    assert stray.read_bytes() == b"3\n"
    assert rows_by_manifest(FILES, target) == rows(3)


def test_a_folder_without_a_manifest_is_refused(target: str) -> None:
    with pytest.raises(Refused, match="no manifest of epochal"):
        compactor(FILES, target=target).run()
    assert not Path(target).exists()


def test_two_streams_of_one_target_stay_apart(target: str) -> None:
    for lineage in (LINEAGE, "2222bbbb-0000"):
        for epoch in range(3):
            name = name_of(epoch, lineage=lineage)
            publish(FILES, epoch, {name: b"%s\n" % lineage.encode()}, lineage=lineage, target=target)

    compactor(FILES, target=target).run()

    assert visible(FILES, target) == [
        "part-000000000002.c1-00000-1f0c9a2e.json",
        "part-000000000002.c1-00001-2222bbbb.json",
    ]
    assert rows_by_manifest(FILES, target) == {LINEAGE.encode(): 3, b"2222bbbb-0000": 3}


@pytest.mark.parametrize(("ending", "pack"), [(".json.gz", gzip), (".txt.bz2", bz2)])
def test_compressed_streams_are_joined_as_they_are(target: str, ending: str, pack: object) -> None:
    for epoch in range(3):
        data = pack.compress(b"%d\n" % epoch)  # type: ignore[attr-defined]
        publish(FILES, epoch, {name_of(epoch, ending=ending): data}, target=target)

    compactor(FILES, target=target).run()

    (path,) = visible(FILES, target)
    assert pack.decompress(Path(target, path).read_bytes()) == b"0\n1\n2\n"  # type: ignore[attr-defined]


def csv(target: str, *contents: bytes, ending: str = ".csv") -> None:
    for epoch, data in enumerate(contents):
        publish(FILES, epoch, {name_of(epoch, ending=ending): data}, target=target)


def test_a_header_is_kept_once(target: str) -> None:
    csv(target, b"id,text\r\n1,a\r\n", b"id,text\r\n", b"id,text\r\n2,b\r\n")

    compactor(FILES, target=target, header=True).run()

    (path,) = visible(FILES, target)
    assert Path(target, path).read_bytes() == b"id,text\r\n1,a\r\n2,b\r\n"


def test_without_a_header_every_line_is_a_row(target: str) -> None:
    csv(target, b"1,a\n", b"1,a\n")

    compactor(FILES, target=target, header=False).run()

    (path,) = visible(FILES, target)
    assert Path(target, path).read_bytes() == b"1,a\n1,a\n"


@pytest.mark.parametrize(
    ("header", "contents", "fault"),
    [
        (None, (b"id\n1\n", b"id\n2\n"), "--header yes or --header no"),
        (True, (b"id\n1\n", b"other\n2\n"), "does not begin with the same line as"),
    ],
)
def test_csv_is_refused_where_a_row_could_be_taken_for_a_header(
    target: str, header: bool | None, contents: tuple[bytes, ...], fault: str
) -> None:
    csv(target, *contents)
    before = [*FILES.walk(target)]

    with pytest.raises(Refused, match=fault) as told:
        compactor(FILES, target=target, header=header).run()
    assert "other" not in str(told.value)  # it may be a row
    assert [*FILES.walk(target)] == before


@pytest.mark.parametrize(
    ("ending", "header", "data", "reason"),
    [
        (".csv.gz", True, gzip.compress(b"id\n1\n", mtime=0), "compressed, with a header"),
        (".csv", True, b"no line end", "does not end with its first line"),
        (".csv", True, b'"a\nb",c\n1,2\n', "does not end with its first line"),
        (".json", None, '{"a":1}\n'.encode("utf-16"), "byte order mark"),
    ],
)
def test_what_bytes_cannot_join_is_left_alone_and_named(
    target: str, ending: str, header: bool | None, data: bytes, reason: str
) -> None:
    csv(target, data, data, ending=ending)

    report = compactor(FILES, target=target, header=header).run()

    assert report.number is None
    assert [path for path, _ in report.choice.unfit] == [name_of(epoch, ending=ending) for epoch in range(2)]
    assert all(reason in told for _, told in report.choice.unfit)
    assert len(visible(FILES, target)) == 2


def test_a_file_that_is_gone_is_named_and_the_others_are_joined(target: str) -> None:
    fill(target, range(6))
    Path(target, name_of(2)).unlink()

    report = compactor(FILES, target=target).run()

    assert report.choice.missing == [name_of(2)]
    assert listed(FILES, target)[2] == [name_of(2)]  # the manifest still says so
    assert len(visible(FILES, target)) == 2
    assert rows_of_folder(FILES, target) == rows(6) - Counter([b"2"])


def test_with_a_grace_old_files_stay_until_a_later_run(target: str) -> None:
    fill(target, range(3))

    report = compactor(FILES, target=target, grace=60.0).run()
    early = compactor(FILES, target=target, now=NOW + 59).run()

    assert report.waiting == early.waiting == {1: NOW + 60}
    assert rows_by_manifest(FILES, target) == rows(3)
    assert len(visible(FILES, target)) == 4
    late = compactor(FILES, target=target, now=NOW + 60).run()
    assert late.waiting == {}
    check_whole(target, 3)


def test_files_in_their_grace_are_not_joined_again(target: str) -> None:
    fill(target, range(3))
    compactor(FILES, target=target, grace=60.0).run()
    fill(target, range(3, 5))

    compactor(FILES, target=target, grace=60.0).run()

    assert rows_by_manifest(FILES, target) == rows(5)
    compactor(FILES, target=target, now=NOW + 60).run()
    check_whole(target, 5)


@pytest.mark.parametrize("point", failpoints.names("compaction"))
@pytest.mark.parametrize("again", [None, *failpoints.names("compaction")])
def test_wherever_one_stops_the_next_finishes_it(target: str, point: str, again: str | None) -> None:
    fill(target, range(4), bucket="a/")
    fill_other = {f"b/{name_of(9)}": b"4\n", f"b/{name_of(9, 1)}": b"5\n"}
    publish(FILES, 9, fill_other, target=target)
    for name in filter(None, (point, again)):
        failpoints.arm(f"{name}=raise")
        try:
            compactor(FILES, target=target).run()
        except OSError as fault:
            assert str(fault) == f"failpoint {name}"  # noqa: PT017  # the second may find nothing left to do
        failpoints.arm("")
        assert rows_by_manifest(FILES, target) == rows(6)

    compactor(FILES, target=target).run()

    assert len(visible(FILES, target)) == 2
    check_whole(target, 6)


def sleeping(point: str, meanwhile: Callable[[], object]) -> None:
    """At the first hit of a failpoint, let others do something."""

    def hit(name: str) -> None:
        if name == point:
            failpoints.hit = failpoints._nothing
            meanwhile()

    failpoints.hit = hit


@pytest.mark.parametrize("point", failpoints.names("compaction"))
def test_one_who_slept_while_others_replaced_its_results_does_no_harm(target: str, point: str) -> None:
    fill(target, range(3))

    def meanwhile() -> None:
        compactor(FILES, target=target).run()
        fill(target, range(3, 5))
        compactor(FILES, target=target).run()

    sleeping(point, meanwhile)
    compactor(FILES, target=target).run()
    compactor(FILES, target=target).run()

    assert len(visible(FILES, target)) == 1
    check_whole(target, 5)


def test_a_plan_whose_creation_was_answered_by_no_is_known_by_its_staging(target: str) -> None:
    """A file system may do what it was asked, lose its answer, and say no to the repeat."""

    class Forgetful(LocalSinkFiles):
        def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
            return super().create(path, data, durable=durable) and not path.endswith(".plan.json")

    fill(target, range(3))

    report = compactor(Forgetful(sync=False), target=target).run()

    assert (report.number, report.given_up) == (1, [])
    check_whole(target, 3)


def test_a_joined_file_that_is_lost_gives_the_plan_up_and_loses_nothing(target: str) -> None:
    fill(target, range(3))
    publish(FILES, 3, {f"b/{name_of(3)}": b"3\n", f"b/{name_of(3, 1)}": b"4\n"}, target=target)
    failpoints.arm("before-compact-rename=raise@2")
    with pytest.raises(OSError, match="before-compact-rename"):
        compactor(FILES, target=target).run()
    failpoints.arm("")
    (staging,) = below_home(FILES, "compacting", target)
    (left,) = Path(target, "_epochal", "compacting", staging).iterdir()
    left.unlink()

    report = compactor(FILES, target=target).run()

    assert (report.given_up, report.finished) == ([1], [])
    assert report.number == 2
    check_whole(target, 5)


def test_a_foreign_file_that_has_a_joined_ones_name_is_not_removed(target: str) -> None:
    fill(target, range(3))
    failpoints.arm("before-compact-rename=raise")
    with pytest.raises(OSError, match="before-compact-rename"):
        compactor(FILES, target=target).run()
    failpoints.arm("")
    foreign = Path(target, "part-000000000002.c1-00000-1f0c9a2e.json")
    foreign.write_bytes(b"of another program")

    report = compactor(FILES, target=target).run()

    assert report.given_up == [1]
    assert foreign.read_bytes() == b"of another program"
    assert rows_by_manifest(FILES, target) == rows(3)


def test_the_staging_of_one_who_died_while_joining_goes_with_the_next_compaction(target: str) -> None:
    fill(target, range(3))
    dead = Path(target, "_epochal", "compacting", f"{1:012d}-ab")
    dead.mkdir(parents=True)
    (dead / "0").write_bytes(b"half")

    compactor(FILES, target=target).run()

    check_whole(target, 3)


def test_every_step_of_a_compaction_has_its_pair_in_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "sinks" / "files" / "compaction").glob("*.py"))
    hit = re.findall(r'failpoints\.hit\("([a-z-]+)"\)', code)

    assert set(hit) == {*failpoints.names("compaction")}
    once = [name for name in failpoints.names("compaction") if not name.endswith("-stage")]
    assert all(hit.count(name) == 1 for name in once)
    assert hit.count("before-compact-stage") == hit.count("after-compact-stage") == 3  # bytes, blocks, merging
