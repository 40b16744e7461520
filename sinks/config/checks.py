"""The usual checks of one option. Each notes its faults, and returns the value in its final form.

A check of a declaration is called with the faults, the option's name and what was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from epochal.sinks.config.options import Faults

Check: TypeAlias = Callable[[Faults, str, Any], Any]


def sink_name(faults: Faults, _: str, value: Any) -> Any:
    """A name for journals, settings and logs."""
    faults.sink_name(value)
    return value


def text(expected: str, *, secret: bool = False) -> Check:
    """A text that is not empty. A secret is not repeated in the message."""

    def check(faults: Faults, option: str, value: Any) -> Any:
        shown = option if secret else f"{option}={value!r}"
        faults.check(isinstance(value, str) and value.strip() != "", f"{shown}: {expected}")
        return value

    return check


def flag(faults: Faults, option: str, value: Any) -> Any:
    """True or False."""
    faults.check(isinstance(value, bool), f"{option}={value!r}: True or False")
    return value


def above_zero(faults: Faults, option: str, value: Any) -> Any:
    """A whole number above 0."""
    faults.above_zero(option, value)
    return value


def whole(lowest: int, highest: int | None, expected: str) -> Check:
    """A whole number in a range."""

    def check(faults: Faults, option: str, value: Any) -> Any:
        good = isinstance(value, int) and not isinstance(value, bool) and lowest <= value
        faults.check(good and (highest is None or value <= highest), f"{option}={value!r}: {expected}")
        return value

    return check


def seconds(faults: Faults, option: str, value: Any) -> Any:
    """A number of seconds, 0 or more."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    faults.check(good, f"{option}={value!r}: seconds, 0 or more")
    return value


def columns(faults: Faults, option: str, value: Any) -> Any:
    """A list of different column names."""
    return faults.column_names(option, value)


def names(expected: str) -> Check:
    """A list of texts, one at least."""

    def check(faults: Faults, option: str, value: Any) -> Any:
        found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()
        good = bool(found) and all(isinstance(name, str) and name.strip() for name in found)
        faults.check(good, f"{option}={value!r}: {expected}")
        return found

    return check


def texts(expected: str) -> Check:
    """A dictionary of texts. Its values are not repeated in the message: they may be secrets."""

    def check(faults: Faults, option: str, value: Any) -> Any:
        good = isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
        return dict(value) if faults.check(good, f"{option}: {expected}") else {}

    return check


def parsed(parse: Callable[[object], object]) -> Check:
    """A value that `parse` understands; it stays as it was given."""

    def check(faults: Faults, option: str, value: Any) -> Any:
        faults.parsed(option, value, parse)
        return value

    return check
