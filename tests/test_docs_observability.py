"""docs/observability.md: its set-ups of logging work, and its tables are those of the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from epochal.metrics.instruments import INSTRUMENTS
from epochal.txn.events import Event

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
USE = """
from epochal.txn.events import EpochCommitted
from epochal.txn.model import Outcome
from epochal.txn.log_lines import LogLines

LogLines()(
    EpochCommitted(
        lineage="1f0c9a2e", stream="orders", at=0.0, epoch=42, generation=3, sink="lake", outcome=Outcome.COMMITTED,
        rows=50_000, bytes=3_100_000, seconds=0.09, lag=0.18,
    )
)
"""
LINE = "epoch 42 committed to lake: 50,000 rows, 3.1 MB, 0.18 s after Spark's checkpoint"


def block(beginning: str) -> str:
    """The example that begins so."""
    (found,) = re.findall(rf"```python\n({re.escape(beginning)}.*?)```", PAGE, re.DOTALL)
    return str(found)


def output(code: str) -> tuple[str, str]:
    """What a new interpreter writes to stdout and stderr."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout, done.stderr


def test_the_plain_set_up_shows_the_line_that_the_page_shows() -> None:
    _, shown = output(block("import logging\n") + USE)

    assert shown.endswith(f"INFO epochal: {LINE}\n")
    assert f"INFO epochal: {LINE}\n" in PAGE


def test_the_set_up_for_machines_shows_one_json_object_a_line() -> None:
    shown, errors = output(block("import logging.config\n") + USE)

    line = json.loads(shown)
    assert errors == ""
    assert (line["level"], line["logger"], line["message"]) == ("INFO", "epochal", LINE)
    facts = {"event": "committed", "stream": "orders", "epoch": 42, "sink": "lake", "rows": 50_000, "lag": 0.18}
    assert facts.items() <= line.items()
    (example,) = re.findall(r"```\n(\{\"time\".*?)\n```", PAGE, re.DOTALL)
    assert set(json.loads(example)) == set(line)


def test_without_any_set_up_there_is_no_line_at_info() -> None:
    assert output(USE) == ("", "")


def test_the_table_of_metrics_is_that_of_the_instruments() -> None:
    rows = re.findall(r"^\| `(epochal_\w+)` \((\w+)\) \| `([\w.]+)`, `(.+?)` \| ([\w, ]+) \|", PAGE, re.MULTILINE)

    assert rows == [(i.prometheus, i.kind, i.otel, i.unit, ", ".join(i.labels)) for i in INSTRUMENTS]


def test_the_table_of_events_is_that_of_the_classes_and_their_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .*? \| (.*?) \|$", PAGE, re.MULTILINE)
    kinds = {kind.__name__: kind for kind in Event.__subclasses__()}

    assert [(name, kind) for name, kind, _ in rows] == [(name, kind.kind) for name, kind in kinds.items()]
    for name, _, fields in rows:
        known = set(kinds[name].__annotations__)
        assert set(re.findall(r"`(\w+)`", fields.partition(":")[0])) <= known, name
