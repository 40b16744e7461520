"""``epochal savepoint``, ``savepoints`` and ``restore``: streams without Spark, moved as a whole."""

from __future__ import annotations

import io
import json
import shutil
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal.sinks.config import kinds
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.moving.by_rename import ByRename
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.spark_plugins.moving.taking import Taking, take
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn.choices import Choices, tokens
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import FencedOut, ForeignTarget, OffsetsChanged, Refused, Rewound, TwoJournals
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from tests.cli.scene import ROWS, Answer, Scene, dying
from tests.txn.keeping import Keeping


class Elsewhere:
    """The stream of a scene in another checkpoint, with the same targets."""

    def __init__(self, scene: Scene, name: str = "new") -> None:
        self.scene = scene
        self.checkpoint = scene.root / name
        self.files = LocalFiles(sync=False)

    def driver(self, *targets: DirectoryParticipant, new: str = "") -> Coordinator[Sequence[Json]]:
        coordinator: Coordinator[Sequence[Json]] = Coordinator(
            journals=lambda n: Journal(self.files, str(self.checkpoint / "epochal") + ("" if n == 1 else f"~{n}")),
            checkpoint=SparkCheckpoint(self.files, str(self.checkpoint)),
            participants=targets or (self.scene.target(),),
            choices=Choices(new=tokens(new)),
            version="0.0.0",
        )
        coordinator.begin()
        return coordinator

    def run(self, driver: Coordinator[Sequence[Json]], epochs: int) -> None:
        query: StandInQuery[Sequence[Json]] = StandInQuery(self.files, str(self.checkpoint))
        query.run(epochs, lambda _: ROWS, driver.run, driver.settle)


def shown(scene: Scene, target: str = "directory") -> list[int]:
    """The epochs that a target shows, with repeats."""
    return sorted(int(path.name.split(".")[0]) for path in (scene.root / target).iterdir() if path.is_file())


def saved(scene: Scene) -> str:
    """Take a savepoint; what `restore` takes."""
    answer = scene.command("savepoint", str(scene.root / "backups"), "--json")
    assert answer.code == 0, answer.err
    return str(answer.json["savepoint"])


def restored(scene: Scene, savepoint: str, *options: str, to: str = "new") -> Answer:
    return scene.epochal("restore", savepoint, str(scene.root / to), *options)


def stopped(scene: Scene, epochs: int) -> None:
    with dying():
        scene.run(scene.driver(), epochs)


def with_state(scene: Scene, version: int) -> None:
    """The state of one store up to a version, as HDFSBacked writes it."""
    folder = scene.checkpoint / "state" / "0" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, version + 1):
        (folder / f"{number}.delta").write_bytes(b"%d" % number)
        (folder / f".{number}.delta.crc").write_bytes(b"crc")


def test_a_savepoint_says_what_it_holds_and_is_listed(scene: Scene) -> None:
    stopped(scene, 3)
    answer = scene.command("savepoint", str(scene.root / "backups"))
    listed = scene.epochal("savepoints", str(scene.root / "backups"))
    as_json = scene.epochal("savepoints", str(scene.root / "backups"), "--verify", "--json").json

    assert answer.code == listed.code == 0, answer.err
    assert "epoch 2:" in answer.out
    assert f"directory  {scene.root / 'directory'}      2     9" in answer.out
    (one,) = as_json["savepoints"]
    assert one["name"] in listed.out
    assert (one["epoch"], one["sinks"]["directory"]["rows"], one["missing"]) == (2, 9, 0)


def test_a_restored_stream_goes_on_with_its_lineage_and_the_original_is_closed(scene: Scene) -> None:
    stopped(scene, 3)
    answer = restored(scene, saved(scene), "--json")
    new = Elsewhere(scene)
    status = scene.command("status", "--json").json
    new.run(new.driver(), 5)

    assert answer.code == 0, answer.err
    assert (answer.json["epoch"], answer.json["through"], answer.json["closed"]) == (2, 2, str(scene.checkpoint))
    assert shown(scene) == [0, 1, 2, 3, 4]
    assert status["state"] == "retired"
    assert status["retired"]["moved_to"] == str(new.checkpoint / "epochal")
    with pytest.raises(Refused, match="the stream has moved to the journal"):
        scene.driver()
    undo = scene.command("retire", "--undo")
    assert undo.code == 2
    assert "goes on there" in undo.err
    assert "restore it into a folder that does not exist yet" in undo.err


def test_a_stream_is_brought_back_as_retire_undo_says_in_a_new_folder(scene: Scene) -> None:
    stopped(scene, 3)
    assert restored(scene, saved(scene)).code == 0
    there = scene.epochal("savepoint", str(scene.root / "new"), str(scene.root / "backups"), "--json").json["savepoint"]
    disk = scene.disk()
    into_the_old = restored(scene, there, to="checkpoint")
    unchanged = scene.disk() == disk
    answer = restored(scene, there, to="back")
    back = Elsewhere(scene, "back")
    back.run(back.driver(), 5)

    assert into_the_old.code == 2
    assert unchanged
    assert answer.code == 0, answer.err
    assert shown(scene) == [0, 1, 2, 3, 4]


def test_a_savepoint_of_a_stream_that_has_moved_is_refused_and_names_its_place(scene: Scene) -> None:
    stopped(scene, 3)
    assert restored(scene, saved(scene)).code == 0
    disk = scene.disk()
    answer = scene.command("savepoint", str(scene.root / "backups"))

    assert answer.code == 2
    assert f"the stream has moved to the journal {scene.root / 'new' / 'epochal'} (" in answer.err
    assert "No savepoint was taken" in answer.err
    assert scene.disk() == disk
    with pytest.raises(Refused, match="has moved to the journal"):
        take(str(scene.checkpoint), str(scene.root / "backups"))
    assert scene.epochal("savepoint", str(scene.root / "new"), str(scene.root / "backups")).code == 0


def test_a_stream_that_was_retired_for_good_has_savepoints(scene: Scene) -> None:
    stopped(scene, 3)
    assert scene.command("retire", "--why", "over").code == 0

    assert scene.command("savepoint", str(scene.root / "backups")).code == 0


def test_a_savepoint_needs_nothing_of_the_original(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    shutil.rmtree(scene.checkpoint)
    refused = restored(scene, savepoint)
    answer = restored(scene, savepoint, "--lost-original")
    new = Elsewhere(scene)
    new.run(new.driver(), 5)

    assert refused.code == 2
    assert "the original cannot be closed: there is no journal in" in refused.err
    assert answer.code == 0, answer.err
    assert shown(scene) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", [False, True], ids=["original at hand", "original lost"])
def test_epochs_that_sinks_hold_beyond_the_savepoint_are_not_written_twice(scene: Scene, lost: bool) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    stopped(scene, 6)
    if lost:
        shutil.rmtree(scene.checkpoint)
    answer = restored(scene, savepoint, *(["--lost-original"] if lost else []))
    new = Elsewhere(scene)
    new.run(new.driver(), 8)
    again = new.driver()

    assert answer.code == 0, answer.err
    assert (
        "epochs 3 to 5 were written before: directory shows epoch 5. They are skipped if Spark plans them" in answer.out
    )
    assert shown(scene) == list(range(8))
    assert again.generation > 0


def test_one_epoch_that_sinks_hold_beyond_the_savepoint_is_named_alone(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    stopped(scene, 4)
    answer = restored(scene, savepoint)

    assert "\nepoch 3 was written before: directory shows epoch 3. It is skipped if Spark plans it with" in answer.out


@pytest.mark.parametrize("lost", [False, True], ids=["original at hand", "original lost"])
def test_an_epoch_that_is_replayed_with_other_offsets_is_refused_before_anything_is_written(
    scene: Scene, lost: bool
) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    stopped(scene, 6)
    if lost:
        shutil.rmtree(scene.checkpoint)
    assert restored(scene, savepoint, *(["--lost-original"] if lost else [])).code == 0
    new = Elsewhere(scene)
    driver = new.driver()
    if not lost:
        new.run(driver, 4)  # the original's plan of epoch 3 came with the checkpoint
    epoch = 3 if lost else 4
    (new.checkpoint / "offsets" / str(epoch)).write_text('v1\n{"batchWatermarkMs":0}\n{"epoch":77}')

    with pytest.raises(OffsetsChanged):
        driver.run(epoch, ROWS)
    assert shown(scene) == list(range(6))


def test_a_driver_of_the_original_that_runs_is_fenced_and_nothing_is_doubled(scene: Scene) -> None:
    running = scene.driver()
    scene.run(running, 3)
    savepoint = saved(scene)
    scene.run(running, 4)
    answer = restored(scene, savepoint, "--wait", "0")
    new = Elsewhere(scene)
    newer = new.driver()

    with pytest.raises((FencedOut, TwoJournals)):
        scene.run(running, 5)
    new.run(newer, 6)
    assert answer.code == 0, answer.err
    assert shown(scene) == list(range(6))


def test_an_original_that_is_said_to_be_lost_and_still_runs_can_show_nothing(scene: Scene) -> None:
    running = scene.driver()
    scene.run(running, 3)
    savepoint = saved(scene)
    hidden = scene.root / "hidden"
    scene.checkpoint.rename(hidden)
    assert restored(scene, savepoint, "--lost-original").code == 0
    hidden.rename(scene.checkpoint)  # it was only cut off

    with pytest.raises(TwoJournals):
        scene.run(running, 4)
    with pytest.raises(TwoJournals):
        scene.driver()
    new = Elsewhere(scene)
    new.run(new.driver(), 5)
    assert shown(scene) == list(range(5))


def test_a_fork_is_another_stream_and_is_refused_on_the_originals_targets(scene: Scene) -> None:
    stopped(scene, 3)
    answer = restored(scene, saved(scene), "--fork", "--json")
    fork = Elsewhere(scene)

    assert answer.code == 0, answer.err
    with pytest.raises(
        ForeignTarget, match="is a fork of stream 1f0c9a2e, which has written it up to epoch 2"
    ) as refused:
        fork.driver()
    assert refused.value.offers == ()
    fork.run(fork.driver(scene.target("green")), 5)
    stopped(scene, 4)
    assert answer.json["query"] != SparkCheckpoint(LocalFiles(), str(scene.checkpoint)).query_id()
    assert shown(scene, "green") == [3, 4]
    assert shown(scene) == [0, 1, 2, 3]


def test_a_fork_never_forgets_whose_targets_refuse_it(scene: Scene) -> None:
    """Its first start says so; that record is folded away. A fork of it descends from the original too."""
    stopped(scene, 3)
    restored(scene, saved(scene), "--fork", to="fork")
    fork = Elsewhere(scene, "fork")
    for epochs in (*range(4, 14), 60):
        with dying():
            fork.run(fork.driver(scene.target("green")), epochs)
    again = scene.epochal("savepoint", str(fork.checkpoint), str(scene.root / "backups"), "--json").json
    restored(scene, again["savepoint"], "--fork", to="again")

    assert not list((fork.checkpoint / "epochal").glob("g000001*")), "the first start's record is still there"
    for one in (fork, Elsewhere(scene, "again")):
        with pytest.raises(ForeignTarget, match="is a fork of stream 1f0c9a2e") as refused:
            one.driver()
        assert refused.value.offers == ()
    with pytest.raises(ForeignTarget, match="is a fork of stream"):
        Elsewhere(scene, "again").driver(scene.target("green"))


def test_a_fork_that_goes_on_as_a_new_stream_is_still_a_fork(scene: Scene) -> None:
    stopped(scene, 3)
    restored(scene, saved(scene), "--fork", to="fork")
    fork, green = Elsewhere(scene, "fork"), scene.target("green")
    with dying():
        fork.run(fork.driver(green), 5)
    (fork.checkpoint / "commits" / "4").unlink()  # a copy that is older
    with pytest.raises(Rewound) as rewound:
        fork.driver(green)
    new = dict(rewound.value.offers)["new"]
    with pytest.raises(ForeignTarget, match="is a fork of stream 1f0c9a2e"):
        fork.driver(green, scene.target(), new=new)  # nor does it take its parent's target by the way
    with dying():
        fork.run(fork.driver(green, new=new), 5)
    with pytest.raises(ForeignTarget, match="is a fork of stream 1f0c9a2e") as refused:
        fork.driver()
    assert refused.value.offers == ()
    again = scene.epochal("savepoint", str(fork.checkpoint), str(scene.root / "backups"), "--json").json
    restored(scene, again["savepoint"], "--fork", to="again")

    with pytest.raises(ForeignTarget, match="is a fork of stream 1f0c9a2e") as refused:
        Elsewhere(scene, "again").driver()
    assert refused.value.offers == ()


@pytest.mark.parametrize("fork", [False, True], ids=["restore", "fork"])
@pytest.mark.parametrize("days", [-2, 2], ids=["set back", "set forward"])
def test_a_clock_that_was_changed_between_savepoint_and_restore_changes_nothing(
    scene: Scene, days: int, fork: bool
) -> None:
    real = time.time
    stopped(scene, 3)
    savepoint = saved(scene)
    stopped(scene, 4)
    left = scene.root / "backups" / "taking" / "1f0c9a2e-000000000009-0000.json"
    left.write_text(json.dumps({"host": "elsewhere", "pid": 1, "at": real()}))  # one that is taken on another machine
    with patch("time.time", lambda: real() + days * 86_400):
        listed = scene.epochal("savepoints", str(scene.root / "backups"), "--verify")
        answer = restored(scene, savepoint, *(["--fork"] if fork else []))
        new, targets = Elsewhere(scene), [scene.target("green")] if fork else []
        new.run(new.driver(*targets), 6)
        again = scene.epochal("savepoint", str(new.checkpoint), str(scene.root / "backups"))

    assert (listed.code, answer.code, again.code) == (0, 0, 0), answer.err + again.err
    assert shown(scene) == ([0, 1, 2, 3] if fork else list(range(6)))
    assert not fork or shown(scene, "green") == [3, 4, 5]


def test_of_two_forks_on_one_target_the_second_is_told_that_both_read_the_same(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint, green = saved(scene), scene.target("green")
    for name in ("one", "two"):
        restored(scene, savepoint, "--fork", to=name)
    one, two = Elsewhere(scene, "one"), Elsewhere(scene, "two")
    with dying():
        one.run(one.driver(green), 5)
    with pytest.raises(ForeignTarget, match="This stream is a fork: what both read after their savepoints") as refused:
        two.driver(green)

    assert "Give it a target of its own" in str(refused.value)
    assert "starts from the beginning of its source" not in str(refused.value)


def test_a_second_savepoint_stores_only_what_is_new(scene: Scene) -> None:
    with_state(scene, 3)
    stopped(scene, 3)
    backups = str(scene.root / "backups")
    first = scene.command("savepoint", backups, "--json").json
    second = scene.command("savepoint", backups, "--json").json
    with_state(scene, 4)
    stopped(scene, 4)
    third = scene.command("savepoint", backups, "--json").json

    assert first["stored"] > third["stored"] > 0
    assert second["stored"] == 0
    assert scene.epochal("savepoints", backups, "--verify").code == 0


def test_removing_a_savepoint_leaves_what_others_share_with_it(scene: Scene) -> None:
    stopped(scene, 3)
    first = saved(scene)
    stopped(scene, 4)
    second = saved(scene)
    removed = scene.epochal("savepoints", str(scene.root / "backups"), "--remove", Path(second).name, "--json")
    told = scene.epochal("savepoints", str(scene.root / "backups"), "--verify").out
    verified = scene.epochal("savepoints", str(scene.root / "backups"), "--verify", "--json")

    assert "verified: 1 savepoint of epoch 2: " in told.splitlines()[-1]
    assert "read back, and each has the SHA-256 that was recorded" in told
    assert removed.json["swept"] > 0
    assert [one["savepoint"] for one in verified.json["savepoints"]] == [first]
    assert restored(scene, first).code == 0


def test_a_folder_that_has_lost_its_last_savepoint_is_still_a_folder_of_savepoints(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    removed = scene.epochal("savepoints", str(scene.root / "backups"), "--remove", Path(savepoint).name)
    listed = scene.epochal("savepoints", str(scene.root / "backups"))

    assert removed.code == listed.code == 0, listed.err
    assert "has no savepoint" in listed.out


@pytest.mark.parametrize("options", [(), ("--remove", "offsets")], ids=["list", "remove"])
@pytest.mark.parametrize("place", ["backup", "checkpoint"])
def test_what_is_no_folder_of_savepoints_is_refused_and_nothing_of_it_is_removed(
    scene: Scene, place: str, options: tuple[str, ...]
) -> None:
    stopped(scene, 3)
    disk = scene.disk()
    answer = scene.epochal("savepoints", str(scene.root / place), *options)

    assert answer.code == 2
    assert f"{scene.root / place}: no such folder" in answer.err
    assert scene.disk() == disk


def test_state_newer_than_the_savepoint_is_left_out(scene: Scene) -> None:
    stopped(scene, 3)
    with_state(scene, 5)  # versions 4 and 5 are of epochs 3 and 4
    restored(scene, saved(scene))

    found = {path.name for path in (scene.root / "new" / "state" / "0" / "0").iterdir()}
    assert found == {"1.delta", "2.delta", "3.delta"}


def test_an_epoch_in_doubt_is_left_out_and_written_anew(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
        scene.run(driver, 3)
        scene.prepare(driver, 3)
    assert restored(scene, saved(scene)).code == 0
    new = Elsewhere(scene)
    new.run(new.driver(), 5)

    assert shown(scene) == list(range(5))


def test_an_epoch_that_a_dead_driver_has_not_shown_is_finished_first(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
        scene.run(driver, 3)
        scene.decide(driver, 3)
    answer = scene.command("savepoint", str(scene.root / "backups"), "--json")

    assert answer.json["epoch"] == 3
    assert shown(scene) == list(range(4))


def test_files_that_vanish_during_the_copy_lead_to_a_newer_epoch(scene: Scene) -> None:
    with_state(scene, 3)
    stopped(scene, 3)
    listed = Taking._listed
    calls: list[int] = []

    def vanishing(taking: Taking, epoch: int) -> object:
        found = listed(taking, epoch)
        if not calls:
            calls.append(epoch)
            with_state(scene, 4)
            stopped(scene, 4)
            for name in ("1.delta", "2.delta", "3.delta"):
                (scene.checkpoint / "state" / "0" / "0" / name).unlink()
            (scene.checkpoint / "state" / "0" / "0" / "4.snapshot").write_bytes(b"4")
        return found

    with patch.object(Taking, "_listed", vanishing):
        manifest = take(str(scene.checkpoint), str(scene.root / "backups"))

    assert (calls, manifest.epoch) == ([2], 3)


@pytest.mark.parametrize("metadata", [None, b"v1", b"v1\n{", b'v1\n{"sstFiles":[{"dfsSstFileName":"a.sst"}]}'])
def test_a_snapshot_whose_list_of_files_cannot_be_read_is_named_and_no_savepoint_is_taken(
    scene: Scene, metadata: bytes | None
) -> None:
    stopped(scene, 3)
    snapshot = scene.checkpoint / "state" / "0" / "0" / "3.zip"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(b"no zip" if metadata is None else zipped(metadata))
    answer = scene.command("savepoint", str(scene.root / "backups"))

    assert answer.code == 2
    assert f"{snapshot}: " in answer.err
    assert "No savepoint was taken" in answer.err
    assert SavepointStore(LocalSinkFiles(), str(scene.root / "backups")).manifests() == []


def zipped(metadata: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("metadata", metadata)
    return data.getvalue()


def test_a_changed_object_is_noticed(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    (largest, *_) = sorted(
        (scene.root / "backups" / "objects").rglob("*"), key=lambda p: -p.stat().st_size * p.is_file()
    )
    largest.write_bytes(b"x" * largest.stat().st_size)
    verified = scene.epochal("savepoints", str(scene.root / "backups"), "--verify")
    answer = restored(scene, savepoint)

    assert verified.code == answer.code == 2
    assert "is not what was stored" in verified.err
    assert "is not what was stored" in answer.err
    assert not (scene.root / "new").exists()
    scene.run(scene.driver(), 4)  # the original was not closed


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("savepoint", "checkpoint", "checkpoint/backups"), "inside each other"),
        (("restore", "backups/none", "new"), "no such savepoint"),
    ],
)
def test_what_cannot_work_is_refused(scene: Scene, arguments: tuple[str, ...], reason: str) -> None:
    stopped(scene, 1)
    saved(scene)
    command, *places = arguments
    answer = scene.epochal(command, *(str(scene.root / place) for place in places))

    assert answer.code == 2
    assert reason in answer.err


@pytest.mark.parametrize("place", ["directory", "directory/backups", "."], ids=["equal", "inside", "above"])
def test_a_savepoint_into_a_target_of_the_stream_is_refused_before_anything_is_written(
    scene: Scene, place: str
) -> None:
    with dying():
        driver = scene.driver()
        scene.run(driver, 3)
        scene.decide(driver, 3)
    disk = scene.disk()
    answer = scene.command("savepoint", str(scene.root / place))

    assert answer.code == 2
    assert "inside each other. Nothing was written. Give savepoints a folder of their own" in answer.err
    assert scene.disk() == disk


@pytest.mark.parametrize("marker", ["_epochal", "_delta_log"])
def test_a_savepoint_into_a_target_of_another_stream_is_refused(scene: Scene, marker: str) -> None:
    stopped(scene, 1)
    table = scene.root / "table"
    (table / marker).mkdir(parents=True)
    (table / marker / "0").touch()
    (scene.root / "link").symlink_to(table)
    inside = scene.command("savepoint", str(table / "deep" / "backups"))
    linked = scene.command("savepoint", str(scene.root / "link" / "backups"))
    equal = scene.command("savepoint", str(table))

    assert inside.code == linked.code == equal.code == 2
    assert f"is inside {table}, which is the target of a sink. Nothing was written" in inside.err
    assert [path.name for path in table.iterdir()] == [marker]


def test_a_folder_of_savepoints_instead_of_one_is_refused_with_the_names_in_it(scene: Scene) -> None:
    stopped(scene, 1)
    savepoint = saved(scene)
    disk = scene.disk()
    answer = restored(scene, str(scene.root / "backups"))

    assert answer.code == 2
    assert f"backups: this is a folder of savepoints; name one: {savepoint}." in answer.err
    assert scene.disk() == disk


def test_a_place_that_is_taken_is_refused_and_nothing_is_closed(scene: Scene) -> None:
    stopped(scene, 1)
    savepoint = saved(scene)
    (scene.root / "new").mkdir()
    (scene.root / "new" / "file").touch()
    answer = restored(scene, savepoint)

    assert answer.code == 2
    assert "is not empty" in answer.err
    scene.run(scene.driver(), 2)


def test_a_stream_moves_on_and_an_older_savepoint_finds_where_it_is(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    assert restored(scene, savepoint).code == 0
    new = Elsewhere(scene)
    with dying():
        new.run(new.driver(), 5)
    again = restored(scene, savepoint, "--json", to="newest")
    newest = Elsewhere(scene, "newest")
    newest.run(newest.driver(), 6)

    assert again.json["closed"] == str(new.checkpoint)
    assert shown(scene) == list(range(6))
    with pytest.raises(Refused, match="has moved"):
        new.driver()


def test_metadata_of_state_names_the_new_place(scene: Scene) -> None:
    stopped(scene, 1)
    folder = scene.checkpoint / "state" / "0" / "_metadata" / "v2"
    folder.mkdir(parents=True)
    schema = f"file:{scene.checkpoint}/state/0/_stateSchema/default/0_7f"
    (folder / "0").write_text("v2\n" + json.dumps({"stateStoreInfo": [{"stateSchemaFilePaths": [schema]}]}))
    restored(scene, saved(scene))

    moved = (scene.root / "new" / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    assert f"file:{scene.root}/new/state/0/_stateSchema/default/0_7f" in moved
    assert str(scene.checkpoint) not in moved


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> Callable[[], Keeping]:
    """A sink whose parts stay open until they are rolled."""
    monkeypatch.setitem(kinds.BUILT_IN, "keeping", "tests.txn.keeping:Keeping")
    return lambda: Keeping(str(scene.root / "sink"))


def rolled(scene: Scene, checkpoint: Path) -> None:
    answer = scene.epochal("roll", str(checkpoint))
    assert answer.code == 0, answer.err


def rows_shown(scene: Scene) -> int:
    """The rows that are in closed parts; the first line of a file is no row."""
    folder = scene.root / "sink"
    files = [path for path in [*folder.iterdir(), *(folder / "rolls").glob("*")] if path.is_file()]
    return sum(len(path.read_text().splitlines()) - 1 for path in files)


def test_parts_that_the_original_has_closed_since_the_savepoint_are_not_shown_twice(
    scene: Scene, parts: Callable[[], Keeping]
) -> None:
    with dying():
        scene.run(scene.driver(parts()), 3)
    savepoint = saved(scene)
    rolled(scene, scene.checkpoint)
    with dying():
        scene.run(scene.driver(parts()), 5)
    answer = restored(scene, savepoint)
    new = Elsewhere(scene)
    new.run(new.driver(parts()), 6)
    rolled(scene, new.checkpoint)

    assert answer.code == 0, answer.err
    assert rows_shown(scene) == 6 * len(ROWS)


def test_parts_that_were_closed_without_a_further_epoch_are_not_shown_twice(
    scene: Scene, parts: Callable[[], Keeping]
) -> None:
    with dying():
        scene.run(scene.driver(parts()), 3)
    savepoint = saved(scene)
    rolled(scene, scene.checkpoint)
    assert restored(scene, savepoint).code == 0
    new = Elsewhere(scene)
    new.run(new.driver(parts()), 4)
    rolled(scene, new.checkpoint)

    assert rows_shown(scene) == 4 * len(ROWS)


def test_open_parts_of_an_original_that_is_lost_and_went_on_are_refused(
    scene: Scene, parts: Callable[[], Keeping]
) -> None:
    with dying():
        scene.run(scene.driver(parts()), 3)
    savepoint = saved(scene)
    with dying():
        scene.run(scene.driver(parts()), 5)
    shutil.rmtree(scene.checkpoint)
    answer = restored(scene, savepoint, "--lost-original")

    assert answer.code == 2
    assert "had open parts at the savepoint" in answer.err
    assert not (scene.root / "new").exists()


def test_a_stream_that_was_started_anew_by_its_user_is_moved_with_all_its_journals(scene: Scene) -> None:
    stopped(scene, 3)
    shutil.rmtree(scene.checkpoint / "epochal")
    with dying():
        with pytest.raises(Refused) as refused:
            scene.driver()
        ((_, token),) = (offer for offer in refused.value.offers if offer[0] == "new")
        scene.run(scene.driver(new=token), 5)
    answer = restored(scene, saved(scene), "--json")
    new = Elsewhere(scene)
    new.run(new.driver(), 6)

    assert answer.code == 0, answer.err
    assert (new.checkpoint / "epochal~2").is_dir()
    assert shown(scene) == list(range(6))
    with pytest.raises(Refused, match="has moved"):
        scene.driver()


def test_a_restore_that_is_given_up_leaves_the_original_open_to_its_owner(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    with patch.object(ByRename, "publish", side_effect=OSError("no space left")):
        assert restored(scene, savepoint).code == 1
    with pytest.raises(Refused, match="has moved"):
        scene.driver()
    undone = scene.command("retire", "--undo")

    assert undone.code == 0, undone.err
    with pytest.raises(TwoJournals, match="adopt="):
        scene.driver()  # the targets were claimed already
    assert restored(scene, savepoint).code == 0
    new = Elsewhere(scene)
    new.run(new.driver(), 4)
    assert shown(scene) == list(range(4))


def test_a_store_that_does_not_answer_leaves_the_original_as_it_was(scene: Scene) -> None:
    stopped(scene, 3)
    savepoint = saved(scene)
    with patch.object(DirectoryParticipant, "open", side_effect=ConnectionRefusedError("nobody listens")):
        answer = restored(scene, savepoint)

    assert answer.code == 2
    assert "does not answer" in answer.err
    scene.run(scene.driver(), 4)
