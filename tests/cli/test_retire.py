"""``epochal retire``: a stream that is over is well, cannot start, and can be taken back."""

from __future__ import annotations

import getpass
import platform
import shutil
import subprocess
import sys

import pytest

from epochal.cli import retire
from epochal.cli.stream_status import StreamStatus
from epochal.sinks.config import kinds
from epochal.txn import failpoints
from epochal.txn.errors import CommitFailed, FencedOut, Refused, TwoJournals
from tests.cli.scene import Scene, Scenery, dying, elsewhere, going_away
from tests.txn.keeping import Keeping

WHY = ("--why", "moved to the new cluster")


def dead(scene: Scene, epochs: int = 2) -> None:
    with dying():
        scene.run(scene.driver(), epochs)


def test_a_dead_stream_that_is_retired_is_well_in_status_top_and_report(scene: Scene) -> None:
    dead(scene)
    before = scene.command("status")
    retired = scene.command("retire", *WHY)
    after = scene.command("status", "--json")
    top = scene.command("top", "--once", "--json").json["streams"][0]["snapshot"]["headline"]
    report = scene.command("report", "-o", str(scene.root / "status.html"))

    assert before.code == 5
    assert retired.code == 0
    assert "`epochal status` exits with 0 from now on" in retired.out
    assert f"`epochal retire {scene.checkpoint} --undo` takes it back" in retired.out
    assert (after.code, after.json["state"], after.json["command"]) == (0, "retired", None)
    by = f"{getpass.getuser()}@{platform.node()}"
    found = after.json["retired"]
    assert (found["why"], found["by"]) == ("moved to the new cluster", by)
    told = f"retired {found['at']} by {by}: moved to the new cluster; epoch 1 is visible everywhere"
    assert after.json["summary"] == told
    assert scene.command("status").out.startswith(told)
    assert (top["standing"], top["level"], top["text"]) == ("retired", "ok", told)
    assert report.code == 0
    assert "moved to the new cluster" in (scene.root / "status.html").read_text()


def test_a_store_that_is_gone_does_not_keep_a_stream_from_being_retired_and_well(scene: Scene) -> None:
    dead(scene)
    (scene.root / "directory").rename(scene.root / "elsewhere")
    (scene.root / "directory").write_text("no folder any more")

    assert scene.command("status").code != 0
    assert scene.command("retire", *WHY).code == 0
    assert scene.command("status").code == 0


def test_a_retired_stream_does_not_start_until_that_is_undone(scene: Scene) -> None:
    dead(scene)
    scene.command("retire", *WHY)

    with pytest.raises(Refused, match=r"was retired .* moved to the new cluster.*epochal retire /\S+ --undo"):
        scene.driver()
    with pytest.raises(Refused, match="was retired"):
        scene.driver(scene.target("other"))
    undone = scene.command("retire", "--undo")
    assert undone.code == 0
    assert "may be started again" in undone.out
    assert scene.command("status", "--json").json["retired"] is None
    scene.run(scene.driver(), 3)
    assert scene.command("status", "--json").json["done"] == 2


def test_a_second_time_changes_nothing(scene: Scene) -> None:
    dead(scene)
    assert "nothing to do: the stream is not retired" in scene.command("retire", "--undo").out
    scene.command("retire", *WHY)
    disk = scene.disk()
    again = scene.command("retire", "--why", "another reason")

    assert again.code == 0
    assert "nothing to do: the stream was retired" in again.out
    assert "moved to the new cluster" in again.out
    assert scene.disk() == disk


def test_commands_that_fence_do_not_take_it_back_unnoticed(scene: Scene) -> None:
    dead(scene)
    scene.command("retire", *WHY)

    refused = scene.command("gc", "--yes", "--fence")
    assert refused.code == 2
    assert "was retired" in refused.err
    assert scene.command("gc", "--yes").code == 0
    assert scene.command("recover").code == 0
    assert scene.command("status", "--json").json["state"] == "retired"


def refused(scene: Scene) -> str:
    disk = scene.disk()
    answer = scene.command("retire", *WHY)
    assert answer.code == 2
    assert "cannot be retired. Nothing was changed" in answer.err
    assert scene.disk() == disk
    return answer.err


def test_a_driver_that_lives_is_stopped_first(scene: Scene) -> None:
    scene.run(scene.driver(), 1)

    assert "is alive. Stop it first" in refused(scene)


def test_a_driver_that_nobody_has_heard_of_is_fenced(scene: Scene) -> None:
    with elsewhere():
        driver = scene.driver()
    scene.run(driver, 1)
    assert scene.command("retire", *WHY).code == 0

    with pytest.raises(FencedOut, match=r"the stream was retired .* moved to the new cluster"):
        scene.prepare(driver, 1)


def test_an_epoch_that_is_not_visible_is_recovered_first(scene: Scene) -> None:
    right = scene.target("right")
    with dying():
        driver = scene.driver(scene.target("left"), right)
    scene.decide(driver, 0)
    with going_away(right), pytest.raises(CommitFailed):
        driver.settle()

    assert f"epoch 0 is decided but not visible in every sink. Run `epochal recover {scene.checkpoint}`" in refused(
        scene
    )
    scene.command("recover")
    assert scene.command("retire", *WHY).code == 0


def test_an_epoch_in_doubt_is_decided_first_and_only_a_start_can(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.prepare(driver, 0)

    assert "epoch 0 is in doubt" in refused(scene)


def test_open_parts_are_published_first(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.BUILT_IN, "keeping", "tests.txn.keeping:Keeping")
    with dying():
        scene.run(scene.driver(Keeping(str(scene.root / "sink"), name="sink")), 2)

    assert f"committed rows are in 1 open part. Run `epochal roll {scene.checkpoint}` first" in refused(scene)
    monkeypatch.delitem(kinds.BUILT_IN, "keeping")
    assert "sink 'sink' may have open parts, which cannot be seen from here" in refused(scene)
    monkeypatch.setitem(kinds.BUILT_IN, "keeping", "tests.txn.keeping:Keeping")
    scene.command("roll")
    assert scene.command("retire", *WHY).code == 0


def test_staged_data_of_a_dead_driver_is_named_and_may_be_removed_afterwards(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    answer = scene.command("retire", *WHY)
    assert f"left by dead drivers: 1 staged attempt. `epochal gc {scene.checkpoint} --yes`" in answer.out
    assert len(scene.command("gc", "--yes", "--json").json["removed"]) == 1


@pytest.mark.parametrize("moment", ["before-generation", "after-generation"])
def test_a_kill_leaves_it_retired_or_not_and_a_repeat_finishes(scene: Scene, moment: str) -> None:
    dead(scene)
    command = [sys.executable, "-m", "epochal.cli", "retire", str(scene.checkpoint), *WHY]
    killed = subprocess.run(command, env={failpoints.VARIABLE: f"{moment}=kill"}, capture_output=True, check=False)
    state = scene.command("status", "--json").json["state"]
    again = scene.command("retire", *WHY)

    assert killed.returncode == -9, killed.stderr
    assert state == ("dead" if moment == "before-generation" else "retired")
    assert again.code == 0
    assert scene.command("status", "--json").json["state"] == "retired"


def test_a_start_between_the_check_and_the_record_is_not_overlooked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(scene)
    check = retire.check

    def checked(status: StreamStatus) -> None:
        check(status)
        scene.driver()  # it lives

    monkeypatch.setattr(retire, "check", checked)
    monkeypatch.setattr(retire, "TRIES", 2)
    answer = scene.command("retire", *WHY)

    assert answer.code == 2
    assert "is alive. Stop it first" in answer.err


def test_an_older_copy_elsewhere_is_refused_as_every_copy_is(scene: Scene) -> None:
    dead(scene)
    shutil.copytree(scene.checkpoint, scene.root / "copy")
    scene.command("retire", *WHY)

    with pytest.raises(TwoJournals, match=r"and this journal is in .*copy"):
        Scenery(scene.root, "copy").driver()


def test_an_older_copy_in_the_same_place_has_forgotten_it_and_doubles_nothing(scene: Scene) -> None:
    dead(scene)
    shutil.copytree(scene.checkpoint, scene.root / "copy")
    scene.command("retire", *WHY)
    shutil.rmtree(scene.checkpoint)
    shutil.copytree(scene.root / "copy", scene.checkpoint)

    assert scene.command("status", "--json").json["retired"] is None
    with dying():
        scene.run(scene.driver(), 3)
    assert scene.command("audit", "--fast").code == 0
    shutil.rmtree(scene.checkpoint)
    shutil.copytree(scene.root / "copy", scene.checkpoint)  # it does not know that start
    with pytest.raises(Refused, match=r"were rewound|knows only generations up to"):
        scene.driver()


@pytest.mark.parametrize("given", [[], ["--why", ""], ["--why", "x", "--undo"]])
def test_a_reason_or_undo_must_be_given(scene: Scene, given: list[str]) -> None:
    dead(scene)
    with pytest.raises(SystemExit) as ended:
        scene.command("retire", *given)
    assert ended.value.code == 64
