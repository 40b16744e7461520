"""A server that npm fetches and node runs, without either: a script stands in for npm."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.testing.processes import in_threads
from epochal.testing.servers import ServerFailed, azure, go_programs, node_programs
from epochal.testing.servers.node_programs import AZURITE, fetched


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def npm(tmp_path: Path, script: str) -> str:
    path = tmp_path / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_package_is_fetched_once_without_its_scripts_and_of_many_by_one(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    script = f'echo "$1 $4 $9" >> {made}; mkdir -p "$3/node_modules/azurite"'
    monkeypatch.setattr(node_programs, "find_npm", lambda: npm(tmp_path, script))

    paths = in_threads([lambda: fetched(AZURITE, lambda _: None)] * 4)

    assert paths == [cache / "azurite-3.35.0/node_modules/azurite/dist/src/blob/main.js"] * 4
    assert (cache / "azurite-3.35.0/node_modules/azurite").is_dir()
    assert made.read_text() == "install --ignore-scripts azurite@3.35.0\n"


def test_a_fetch_that_fails_is_told_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_programs, "find_npm", lambda: npm(tmp_path, "echo no such package >&2; exit 1"))

    with pytest.raises(ServerFailed, match=r"`npm install azurite@3\.35\.0` ended with 1: no such package"):
        fetched(AZURITE, lambda _: None)
    assert [path.name for path in cache.iterdir()] == ["azurite-3.35.0.lock"]


def test_without_npm_or_node_the_error_says_what_is_needed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_programs, "find_npm", lambda: None)
    monkeypatch.setattr(node_programs, "find_node", lambda: None)

    with pytest.raises(ServerFailed, match="fetched by npm, which is not in PATH"):
        fetched(AZURITE)
    with pytest.raises(ServerFailed, match="run by node, which is not in PATH"):
        azure.start()


def test_a_go_module_that_is_a_program_itself_has_its_name() -> None:
    program = go_programs.FAKE_GCS

    assert (program.name, program.target) == (
        "fake-gcs-server",
        f"github.com/fsouza/fake-gcs-server@v{program.version}",
    )
