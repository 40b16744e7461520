"""Real Spark whose journal is on a store of any provider, checkpoint and targets on a disk, killed around records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epochal.cli import main
from epochal.testing.servers.store_server import StoreServer
from integration_tests.objects.remote import Remote
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end
from integration_tests.spark.children import Children

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(3600)]

CHAIN = (
    "after-generation",
    "before-prepared",  # leaves an attempt without a record
    "before-seal",
    "after-prepared",
    "before-decided@2",
    "after-decided",
    "before-done",
    "before-snapshot",
    "after-purge",
)


@pytest.fixture
def remote(any_store: StoreServer, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    for name, value in any_store.environment.items():
        monkeypatch.setenv(name, value)
    return Remote(any_store, folder, tmp_path)


def test_a_kill_around_every_record_loses_and_doubles_nothing(
    drivers: Children, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = f"{remote.uri}/journal"
    arguments = ["--sinks", "2", "--small-journal", "--journal", journal]

    def look() -> None:
        remote.copy_journal("journal")
        check_after_a_kill(remote.world)

    files = killed_at_each(drivers, remote.world, CHAIN, arguments, look)
    remote.copy_journal("journal")
    check_at_the_end(remote.world, files=files)
    capsys.readouterr()
    main(["status", str(remote.world.checkpoint), "--journal", journal, "--json"])

    assert not json.loads(capsys.readouterr().out)["held"]
