"""What a driver meets that slept while others went on. Each of these was found by drivers held or racing for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal.txn import failpoints
from epochal.txn.errors import FencedOut
from epochal.txn.files import TEMPORARY, LocalFiles
from tests.txn.stream import Stream


def test_an_eager_driver_whose_decision_was_folded_away_meanwhile_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    sleeper = stream.coordinator(eager=True, retain=1)
    sleeper.begin()
    stream.plan(0)

    def sleep_until_others_are_far_ahead(name: str) -> None:
        if name == "before-decided":
            monkeypatch.undo()
            awake = stream.coordinator(eager=True, retain=1)
            awake.begin()
            stream.run(awake, *range(24))

    monkeypatch.setattr(failpoints, "hit", sleep_until_others_are_far_ahead)

    with pytest.raises(FencedOut):
        sleeper.run(0, [0])
    assert stream.journal().read().floor >= 0
    assert stream.sink().rows() == list(range(24))


def test_a_file_whose_name_is_taken_while_another_start_sweeps_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.link

    def taken_and_swept(source: str, target: str) -> None:
        monkeypatch.undo()
        Path(target).write_bytes(b"theirs")
        try:
            really(source, target)
        finally:
            os.unlink(source)

    monkeypatch.setattr(os, "link", taken_and_swept)

    assert LocalFiles().create(str(tmp_path / "record"), b"ours") is False
    assert (tmp_path / "record").read_bytes() == b"theirs"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(TEMPORARY)] == []
