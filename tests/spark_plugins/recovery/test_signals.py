"""Signals that come while a process is being started."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from epochal.spark_plugins.recovery.signals import signals_held


class Ended(BaseException):
    """What the handler raises."""


@pytest.fixture
def raising() -> Iterator[None]:
    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("raising")
def test_a_signal_is_handled_at_the_end_of_the_block_and_its_handler_is_back() -> None:
    started: list[str] = []

    def start() -> None:
        with signals_held():
            signal.raise_signal(signal.SIGTERM)
            started.append("whole")

    with pytest.raises(Ended):
        start()
    assert started == ["whole"]
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_held():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
