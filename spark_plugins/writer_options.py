"""Checks what a writer is made of: its sinks, and the options that are more than a number or a text."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from epochal.metrics import fault_of as metrics_fault
from epochal.sinks.config.options import Faults
from epochal.txn.choices import tokens
from epochal.txn.participant import faults_of


def check_tokens(faults: Faults, option: str, value: Any) -> Any:
    """Answers to a refusal: ``lineage@epoch``, one or several."""
    many = isinstance(value, Collection) and not isinstance(value, bytes) and all(isinstance(v, str) for v in value)
    if not faults.check(many, f"{option}={value!r}: what the refusal named, such as '1f0c9a2e@41'"):
        return value
    for token in tokens(value):
        good = "@" in token and (token.rpartition("@")[2].isdecimal() or token.endswith("@none"))
        faults.check(good, f"{option}={token!r}: must be what the refusal named, such as '1f0c9a2e@41'")
    return value


def check_observers(faults: Faults, option: str, value: Any) -> Any:
    """Functions that take an event."""
    listed = isinstance(value, Collection) and not isinstance(value, str | bytes)
    good = listed and all(callable(one) for one in value)
    faults.check(good, f"{option}: a list of functions that take an event, not {value!r}")
    return value


def check_metrics(faults: Faults, option: str, value: Any) -> Any:
    """A place for metrics whose package is installed."""
    if (fault := metrics_fault(value)) is not None:
        faults.add(f"{option}={value!r}: {fault}")
    return value


def check_sinks(sinks: tuple[object, ...], faults: Faults) -> None:
    """Sinks, one at least, each with a name of its own."""
    faults.check(len(sinks) > 0, "sinks: give one at least")
    names = []
    for sink in sinks:
        if isinstance(sink, list | tuple):
            faults.add("sinks: give them one by one, EpochWriter(one, other), not as a list")
            continue
        if isinstance(sink, type):
            faults.add(f"sinks: {sink.__name__} is a class; give a sink that was made of it, {sink.__name__}(...)")
            continue
        unfit = faults_of(sink)
        if faults.check(not unfit, f"{sink!r} is not a sink: {'; '.join(unfit)}"):
            names.append(str(sink.name))  # type: ignore[attr-defined]  # checked above
    twice = sorted({name for name in names if names.count(name) > 1})
    faults.check(
        not twice, f"sinks: {', '.join(map(repr, twice))} is the name of several; give each a name= of its own"
    )
