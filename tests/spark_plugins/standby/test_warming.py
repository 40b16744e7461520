"""What a standby's throw-away query logs does not reach the user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from epochal.sinks.storage.hadoop_errors import in_short
from epochal.spark_plugins.standby.warming import FOLDER, NAME, _brief, _is_of_another, _writer
from epochal.testing import DirectoryParticipant
from epochal.txn.events import EpochBegun
from epochal.txn.log_lines import facts_of


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    logger = logging.getLogger("epochal")
    caplog.set_level(logging.DEBUG, logger.name)
    with patch.object(logger, "filters", [_is_of_another]):
        yield logger


def test_lines_of_the_throw_away_query_are_dropped(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    of_query = {"lineage": "q", "at": 0.0, "epoch": 0, "generation": 1}
    for stream in (NAME, "orders"):
        log.info("epoch 0 begun", extra=facts_of(EpochBegun(stream=stream, **of_query)))  # type: ignore[arg-type]
        log.error("epoch not staged: %s", "java.lang.InterruptedException", extra={"epoch": 0, "stream": stream})
    log.warning("no log checkpoint", extra={"table": f"/tmp/{FOLDER}x/sink-0"})
    log.error("query ended: %s", OSError(f"/tmp/{FOLDER}x/checkpoint is gone"))

    assert [getattr(record, "stream", None) for record in caplog.records] == ["orders", "orders"]


def test_the_writer_of_the_throw_away_query_has_the_name_that_is_dropped(tmp_path: object) -> None:
    assert _writer([DirectoryParticipant(str(tmp_path))]).stream == NAME


def test_an_error_without_a_text_is_named_without_a_colon() -> None:
    assert _brief(OSError()) == "OSError"
    assert _brief(OSError("java.lang.InterruptedException: \n\tat Java")) == "java.lang.InterruptedException"
    assert in_short(OSError()) == "OSError"
    assert in_short(OSError("no route")) == "OSError: no route"
