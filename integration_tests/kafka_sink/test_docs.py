"""The example of docs/kafka-sink.md, as it stands there but for broker and topic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from integration_tests.cassandra.test_docs import ROOT, run
from integration_tests.kafka_sink.consuming import Target

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.usefixtures("java_options")]


def test_the_example_sends_its_rows(target: Target, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "kafka-sink.md").read_text()
    code, rows = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("python", "json"))
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "1.json").write_text(rows)
    code = code.replace("127.0.0.1:9092", target.bootstrap).replace('KafkaSink("orders"', f'KafkaSink("{target.topic}"')
    run(["-c", code], tmp_path)

    sent = {(message.key() or b"").decode(): (message.value() or b"").decode() for message in target.messages()}
    assert sent == {"ann": '{"customer":"ann","id":1,"amount":1.50}', "bob": '{"customer":"bob","id":2}'}
    assert all(f"`{key}`" in text and f"`{value}`" in text for key, value in sent.items())
