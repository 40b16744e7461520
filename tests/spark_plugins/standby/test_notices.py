"""Who stands by, as files beside the journal: what is torn, foreign, old or of the dead is left out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.spark_plugins.standby.notices import Notice, Notices, decode, encode, read_notices, standby_beside
from epochal.txn.files import LocalFiles
from epochal.txn.live import HEARTBEAT, SILENT
from epochal.txn.process import Process, this_process

FILES = LocalFiles(sync=False)
NOW = 1_000_000.0
ELSEWHERE = Process(host="spark-9", pid=7, ticks=1, machine="m9")
NOTICE = Notice(
    process=ELSEWHERE, at=NOW, since=NOW - 5, ready=True, lease=10.0, kept="checkpoint", journal="/j/epochal"
)


@pytest.fixture
def journal(tmp_path: Path) -> str:
    (tmp_path / "epochal").mkdir()
    (tmp_path / "epochal" / "g000001.json").touch()
    return str(tmp_path / "epochal")


def put(journal: str, name: str, notice: Notice | bytes) -> None:
    folder = Path(standby_beside(journal))
    folder.mkdir(exist_ok=True)
    data = notice if isinstance(notice, bytes) else encode(replace(notice, journal=journal))
    (folder / name).write_bytes(data)


def test_a_notice_is_read_back_as_it_was_written() -> None:
    assert decode(encode(NOTICE)) == NOTICE


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", encode(NOTICE)[:-30], encode(NOTICE).replace(b'"format":1', b'"format":2'),
     encode(NOTICE).replace(b'"pid":7', b'"pid":"7"')],
)  # fmt: skip
def test_a_torn_or_foreign_file_is_left_out(journal: str, data: bytes) -> None:
    put(journal, "spark-9-7-00000000.000001.json", data)
    put(journal, "spark-9-7-00000001.000001.json", NOTICE)
    put(journal, "notes.txt", b"")

    assert len(read_notices(FILES, journal, NOW)) == 1


def test_one_that_is_silent_and_one_that_is_gone_are_left_out(journal: str) -> None:
    gone = replace(this_process(), ticks=1)  # another process had this pid
    put(journal, "spark-9-7-00000000.000001.json", replace(NOTICE, at=NOW - SILENT - 1))
    put(journal, "spark-8-7-00000001.000001.json", replace(NOTICE, process=gone))
    put(journal, "spark-7-7-00000002.000001.json", replace(NOTICE, process=this_process(), at=0.0))

    assert [one.process for one in read_notices(FILES, journal, NOW)] == [this_process()]


def test_the_notice_of_a_copied_checkpoint_is_left_out(journal: str) -> None:
    put(journal, "spark-9-7-00000000.000001.json", encode(NOTICE))

    assert read_notices(FILES, journal, NOW) == []


def test_the_next_one_replaces_the_one_before_and_the_end_removes_it(journal: str) -> None:
    now = [0.0]
    notices = Notices(lambda: (FILES, journal), lease=10.0, ticks=lambda: now[0])
    folder = Path(standby_beside(journal))
    seen = []
    for ready in (False, False, True, True):
        notices.renew(ready=ready)
        seen.append([path.name.split(".")[-2] for path in folder.iterdir()])
    now[0] += HEARTBEAT
    notices.renew(ready=True)
    seen.append([path.name.split(".")[-2] for path in folder.iterdir()])
    notices.remove()

    assert seen == [["000001"], ["000001"], ["000002"], ["000002"], ["000003"]]
    assert os.listdir(folder) == []


def test_nothing_is_written_into_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    notices = Notices(lambda: (FILES, str(tmp_path / "checkpoint" / "epochal")), lease=10.0)
    notices.renew(ready=True)
    notices.remove()

    assert os.listdir(tmp_path) == []


def test_a_folder_that_holds_something_else_is_left_alone(journal: str) -> None:
    put(journal, "important.txt", b"mine")
    notices = Notices(lambda: (FILES, journal), lease=10.0)
    notices.renew(ready=True)
    notices.remove()

    assert os.listdir(standby_beside(journal)) == ["important.txt"]
