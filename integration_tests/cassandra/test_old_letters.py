"""A stream of an old version into Cassandra, with dead letters that stay open over epochs, is finished by this one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import epochal.cli
from epochal.cli.exit_codes import DEAD
from integration_tests.cassandra.old_letters import ARCHIVE, letters_of, put_back, sink_of
from integration_tests.cassandra.tables import Keyspace
from integration_tests.old_versions import streams
from integration_tests.old_versions.streams import Place, Row, rows_of, to_checkpoint
from integration_tests.spark.checks import leftovers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ARCHIVES = sorted(Path(streams.__file__).parent.glob(f"v*/{ARCHIVE}"))
LAST = 4  # the epoch that is decided in the journal and that neither sink has committed


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, exit_code: int = 0) -> Any:
    """What a command answers."""
    capsys.readouterr()
    code = epochal.cli.main([*arguments, "--json"])
    answer = capsys.readouterr()

    assert code == exit_code, answer
    return json.loads(answer.out)


def in_table(space: Keyspace) -> Counter[Row]:
    found = space.execute(f"SELECT id, kind, word FROM {space.name}.kinds")
    return Counter((row.id, row.kind, row.word) for row in found)


def wanted(epochs: int, *, letters: bool) -> Counter[Row]:
    return Counter(row for row in rows_of(epochs) if (row[1] == "") is letters)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.parent.name)
def test_a_decided_epoch_of_an_old_version_reaches_the_table_and_the_open_dead_letters(
    spark: SparkSession, space: Keyspace, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path.resolve() / "stream")
    put_back(archive, place, space)
    before = in_table(space)
    recovered = ask(capsys, "recover", str(place.checkpoint))
    after = in_table(space)
    open_parts = ask(capsys, "status", str(place.checkpoint), exit_code=DEAD)["open"]
    writer = epochal.EpochWriter(sink_of(place, list(space.hosts), space.port, space.name))
    writer.start(to_checkpoint(spark, place).trigger(availableNow=True)).awaitTermination()
    audit = ask(capsys, "audit", str(place.checkpoint))
    ask(capsys, "roll", str(place.checkpoint))

    assert before == wanted(LAST, letters=False)
    assert [(c["sink"], c["epoch"], c["outcome"]) for c in recovered["commits"]] == [
        ("kinds", LAST, "committed"),
        ("letters", LAST, "committed"),
    ]
    assert after == wanted(LAST + 1, letters=False)
    assert [(part["sink"], part["pieces"], part["rows"]) for part in open_parts] == [("letters", 2, 4)]
    # No audit can count a table whose rows are overwritten: it is read below.
    assert {sink["name"]: sink["verdict"] for sink in audit["sinks"]} == {"kinds": "not provable", "letters": "exact"}
    assert in_table(space) == wanted(LAST + 2, letters=False)
    assert streams.seen(letters_of(place)) == wanted(LAST + 2, letters=True)
    assert leftovers(letters_of(place)) == []
    assert list(place.checkpoint.glob("epochal-staged/*/*/*")) == []
