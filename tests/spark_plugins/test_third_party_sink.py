"""A kind of sink that another package brings: known by its entry point, described by its declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest

from epochal.cli import streams
from epochal.sinks.config import kinds
from epochal.sinks.config.declaring import CheckedOptions, Option, SinkName, SinkOptions, declared
from epochal.spark_plugins.conf import writer_from_settings
from epochal.testing import DirectoryParticipant
from epochal.txn.errors import OptionError


@declared
@dataclass(frozen=True, kw_only=True)
class Login(CheckedOptions):
    token: Annotated[str | None, Option("a secret", secret=True)] = None
    retries: Annotated[int, Option("how often", journal=True)] = 3


@declared
@dataclass(frozen=True, eq=False, repr=False)
class QueueOptions(SinkOptions):
    kind: ClassVar[str] = "queue"

    path: Annotated[str, Option("where the queue is", journal="target")]
    _: KW_ONLY
    name: SinkName = "queue"
    ack: Annotated[Literal["one", "all"], Option("how many brokers have to answer", journal=True)] = "one"
    keys: Annotated[Sequence[str], Option("columns", journal=True)] = ()
    durable: Annotated[bool | None, Option("whether it is kept")] = None
    login: Annotated[Login, Option("who writes", flat=True, journal=True)] = Login()


class QueueSink(QueueOptions, DirectoryParticipant):
    def __post_init__(self) -> None:
        super().__post_init__()
        DirectoryParticipant.__init__(self, self.path, name=self.name)


class Point:
    name = "queue"

    def load(self) -> object:
        return QueueSink


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(*, group: str, name: str = "queue") -> list[Point]:
        return [Point()] if (group, name) == ("epochal.sinks", "queue") else []

    monkeypatch.setattr(kinds, "entry_points", points)


def settings(**given: str) -> dict[str, str]:
    own = {f"spark.epochal.orders.out.{name.replace('__', '.')}": text for name, text in given.items()}
    return {"spark.epochal.orders.sinks": "out", **own}


def test_it_is_built_from_settings_and_again_from_its_description(tmp_path: Path) -> None:
    target = str(tmp_path / "queue")
    given = settings(
        type="queue", path=target, ack="all", keys="a, b", durable="true", login__token="hunter2", retries="5"
    )

    sink: object = writer_from_settings(given, "orders").sinks[0]
    assert isinstance(sink, QueueSink)
    description = sink.describe()
    rebuilt = streams.build({**description, "keeps_open": True, "of_a_later_version": 1})

    assert (sink.ack, sink.keys, sink.durable) == ("all", ("a", "b"), True)
    assert sink.login == Login(token="hunter2", retries=5)
    assert description == {
        "type": "queue",
        "target": target,
        "name": "out",
        "ack": "all",
        "keys": ["a", "b"],
        "retries": 5,
    }
    assert isinstance(rebuilt, QueueSink)
    assert rebuilt.describe() == description


def test_a_description_of_an_older_version_gets_the_defaults_of_what_it_lacks(tmp_path: Path) -> None:
    rebuilt = streams.build({"type": "queue", "target": str(tmp_path), "name": "out"})

    assert isinstance(rebuilt, QueueSink)
    assert (rebuilt.ack, rebuilt.keys, rebuilt.login) == ("one", (), Login())


def test_a_description_without_what_the_sink_needs_is_refused() -> None:
    with pytest.raises(OptionError, match="description of a queue sink: 1 fault\n  - target: missing"):
        streams.build({"type": "queue", "name": "out"})


def test_its_faults_come_with_the_others_and_no_secret_among_them() -> None:
    given = settings(
        type="queue", pth="x", ack="al", login__token="hunter2", token="hunter3", retries="many", durable="no"
    )

    with pytest.raises(OptionError) as raised:
        writer_from_settings(given, "orders")

    out = "spark.epochal.orders.out."
    assert raised.value.faults == (
        f"{out}pth: no option of a queue sink; did you mean 'path'?",
        f"{out}token: differs from {out}login.token; set one of them",
        f"{out}retries='many': must be a whole number",
        f"{out}durable='no': must be true or false",
        f"{out}path: missing",
        f"{out}ack='al': must be one of 'one', 'all'; did you mean 'all'?",
    )


def test_a_kind_that_nobody_has_is_told_with_those_that_there_are() -> None:
    with pytest.raises(OptionError, match=r"type='queu': must be one of 'cassandra'.*'queue'; did you mean 'queue'"):
        writer_from_settings(settings(type="queu"), "orders")


def test_a_kind_that_declares_no_options_cannot_be_set() -> None:
    with pytest.raises(OptionError, match="type=directory: this kind of sink does not declare its options"):
        writer_from_settings(settings(type="directory"), "orders")
