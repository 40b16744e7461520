"""What a stream holds open when its query has ended."""

from __future__ import annotations

from pathlib import Path

from epochal.spark_plugins.still_open import still_open
from tests.cli.scene import Scenery
from tests.txn.keeping import Keeping


def test_rows_in_open_parts_are_named_with_the_command_that_publishes_them(tmp_path: Path) -> None:
    scene, sink = Scenery(tmp_path), Keeping(str(tmp_path / "sink"))
    scene.run(scene.driver(sink), 2)

    left = str(still_open(str(scene.checkpoint), None, [sink]))

    assert left.startswith("rows wait in 1 open part of 'sink' and cannot be read yet")
    assert left.endswith(f"`epochal roll {scene.checkpoint}` does it now")


def test_a_journal_elsewhere_is_part_of_the_command(tmp_path: Path) -> None:
    scene, sink = Scenery(tmp_path), Keeping(str(tmp_path / "sink"))
    scene.run(scene.driver(sink), 2)
    journal = str(scene.checkpoint / "epochal")

    assert f"--journal {journal}` does it now" in str(still_open(str(scene.checkpoint), journal, [sink]))


def test_open_parts_of_a_sink_that_the_writer_no_longer_has_are_named(tmp_path: Path) -> None:
    scene, sink, plain = Scenery(tmp_path), Keeping(str(tmp_path / "sink")), Scenery(tmp_path).target("plain")
    scene.run(scene.driver(sink), 2)
    scene.run(scene.driver(plain), 4)

    left = str(still_open(str(scene.checkpoint), None, [plain]))
    both = str(still_open(str(scene.checkpoint), None, [sink, plain]))

    assert left == (
        "rows wait in open parts of 'sink' and cannot be read yet. No run publishes those of 'sink', which is not in "
        f"this writer; `epochal roll {scene.checkpoint}` does it now"
    )
    assert both.startswith("rows wait in 1 open part of 'sink' and cannot be read yet. The next run publishes each")


def test_nothing_is_said_of_a_stream_that_holds_nothing_open(tmp_path: Path) -> None:
    scene, sink = Scenery(tmp_path), Keeping(str(tmp_path / "sink"), most=1)
    scene.run(scene.driver(sink, scene.target("plain")), 2)

    assert still_open(str(scene.checkpoint), None, [sink, scene.target("plain")]) is None
