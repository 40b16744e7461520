"""What operators of the user's own lack is said before a query starts. With Spark: integration_tests/operators."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from epochal.spark_plugins import stateful
from epochal.spark_plugins.stateful import MESSAGES, PROVIDER, ROCKSDB, UNFIT, provider_fault, python_fault


def test_a_new_query_needs_rocksdb_in_its_session() -> None:
    assert "epochal.rocksdb_settings()" in str(provider_fault(UNFIT, None))
    assert provider_fault(ROCKSDB, None) is None
    assert provider_fault("com.example.Provider", None) is None, "not ours to judge"


def test_the_provider_in_the_checkpoint_counts_whatever_the_session_says() -> None:
    assert provider_fault(UNFIT, {PROVIDER: ROCKSDB}) is None
    assert "new checkpoint" in str(provider_fault(ROCKSDB, {PROVIDER: UNFIT}))


def test_the_interpreter_of_the_tests_has_what_is_needed() -> None:
    assert python_fault(sys.executable) is None


def test_protobuf_that_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.runtime_version", None)

    assert python_fault(sys.executable) == (
        "transformWithState needs the package protobuf, which is not installed: pip install 'epochal[state]'"
    )


def test_protobuf_that_is_too_old_is_named_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.protobuf import runtime_version

    monkeypatch.setattr(runtime_version, "MAJOR", 5)
    monkeypatch.delitem(sys.modules, MESSAGES, raising=False)

    fault = python_fault(sys.executable)
    assert fault is not None
    assert "another version of the package protobuf" in fault
    assert "gencode 6." in fault
    assert "runtime 5." in fault


@pytest.mark.parametrize("code", [0, 1])
def test_another_interpreter_of_the_workers_is_asked(tmp_path: Path, code: int) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\nexit {code}\n")
    other.chmod(0o755)

    fault = python_fault(str(other))
    assert (fault is None) == (code == 0)
    if fault is not None:
        assert str(other) in fault
        assert f"Set PYSPARK_PYTHON to the driver's interpreter before the session starts ({sys.executable})" in fault


def test_an_interpreter_that_cannot_be_asked_is_left_to_spark(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("not a program")
    broken.chmod(0o755)

    assert python_fault(str(tmp_path / "nowhere")) is None
    assert python_fault(str(broken)) is None


def test_the_settings_name_the_provider() -> None:
    assert stateful.rocksdb_settings()[PROVIDER] == ROCKSDB
