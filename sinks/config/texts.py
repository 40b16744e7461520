"""Options as texts, the way Spark's settings carry them."""

from __future__ import annotations

_BOOLEANS = {"true": True, "false": False}


class NumberText(str):
    """The text of what a settings file has as a number or a truth value: not for an option that is a text."""

    __slots__ = ()


def number_of(text: NumberText) -> int | float:
    """The number that a settings file has, for an option that is a number or a text.

    >>> number_of(NumberText("0.5")), number_of(NumberText("65536"))
    (0.5, 65536)
    """
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:  # true or false
        raise ValueError("must be a number, or a text in quotes") from None


class ListText(str):
    """The text of what a settings file has as a list: not for an option that is one text."""

    __slots__ = ()


def parse_bool(text: str) -> bool:
    """A truth value.

    >>> parse_bool("True")
    True
    """
    if text.strip().lower() not in _BOOLEANS:
        raise ValueError("must be true or false")
    return _BOOLEANS[text.strip().lower()]


def parse_int(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def parse_seconds(text: str) -> float:
    """A number of seconds."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number of seconds") from None


def parse_names(text: str) -> list[str]:
    """Names with commas between them.

    >>> parse_names("order_id, day")
    ['order_id', 'day']
    """
    return [part.strip() for part in text.split(",") if part.strip()]
