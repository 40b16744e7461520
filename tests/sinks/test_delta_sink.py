"""The options of a Delta sink are checked when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epochal import DeltaSink, OptionError
from epochal.sinks.delta.handle import NewFile, StagedEpoch, StagedFile
from epochal.txn.audit import Expected, Scope
from epochal.txn.errors import Refused
from epochal.txn.model import Handle
from epochal.txn.row_digests import RowDigest


def test_all_faults_come_in_one_error() -> None:
    with pytest.raises(OptionError) as error:
        DeltaSink("", mode="upsrt", name="1", partition_by="day", properties={"a": 1}, evolve="all")  # type: ignore[arg-type, dict-item]

    assert len(error.value.faults) == 6
    assert "did you mean 'upsert'?" in str(error.value)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"mode": "upsert"}, "keys: an upsert needs them"),
        ({"mode": "upsert", "keys": ["a", "a"]}, "names a column twice"),
        ({"mode": "upsert", "keys": ["a"], "drop": ["a"]}, "drop: 'a' is a key"),
        ({"mode": "upsert", "keys": ["a"], "evolve": "add_columns"}, "evolve: not for an upsert"),
        ({"mode": "upsert", "keys": ["a"], "delete_when": " "}, "delete_when=' ': a SQL condition"),
        ({"keys": ["a"]}, "keys: only for mode='upsert'"),
        ({"order_by": ["a"]}, "order_by: only for mode='upsert'"),
        ({"delete_when": "true"}, "delete_when: only for mode='upsert'"),
        ({"partition_by": [1]}, r"partition_by=\[1\]: a list of column names"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        DeltaSink("t", **options)


def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "deltalake" else object())

    with pytest.raises(OptionError, match=r"pip install 'epochal\[delta\]'"):
        DeltaSink("t")


EPOCH = StagedEpoch(
    target="/t",
    mode="upsert",
    native=False,
    schema={"type": "struct", "fields": []},
    files=(StagedFile("data/x", NewFile("part-0", 7, {"day": None}, "{}")),),
    offsets="abc",
    keys=("id",),
    deletes=True,
)


def test_a_handle_is_read_back_equal() -> None:
    assert StagedEpoch.read(Handle.from_json(EPOCH.handle().to_json())) == EPOCH


def test_a_handle_of_another_version_is_refused() -> None:
    with pytest.raises(Refused, match="handle version 9"):
        StagedEpoch.read(Handle(9, {}))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"digest": "yes"}, "digest='yes': True or False"),
        ({"digest": True, "mode": "upsert", "keys": ["a"]}, "digest=True: not for an upsert"),
    ],
)
def test_a_digest_that_could_prove_nothing_is_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        DeltaSink("t", **options)


@pytest.mark.parametrize(("epochs", "said"), [({}, []), ({0: RowDigest(1)}, ["there is no table any more"])])
def test_a_table_is_missed_only_if_an_epoch_was_given_to_it(
    tmp_path: Path, epochs: dict[int, RowDigest], said: list[str]
) -> None:
    scope = Scope(lineage="1f0c9a2e", expected=Expected(since=0, epochs=epochs, through=len(epochs) - 1))

    found = DeltaSink(str(tmp_path / "table")).audit(scope)

    assert [difference.what for difference in found.differences] == said
