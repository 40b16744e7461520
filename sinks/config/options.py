"""Checking options: all faults in one error, with the nearest right name for a wrong one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from epochal.txn.errors import OptionError

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class Faults:
    """Collects what is wrong with an object's options, and raises it at once."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._faults: list[str] = []

    @property
    def found(self) -> tuple[str, ...]:
        """What was noted so far."""
        return tuple(self._faults)

    def add(self, fault: str) -> None:
        self._faults.append(fault)

    def check(self, holds: bool, fault: str) -> bool:
        """Note a fault unless a condition holds."""
        if not holds:
            self.add(fault)
        return holds

    def one_of(self, option: str, value: object, allowed: Iterable[str]) -> None:
        """Note a fault unless the value is one of those allowed."""
        names = list(allowed)
        if value not in names:
            self.add(f"{option}={value!r}: must be one of {', '.join(map(repr, names))}{nearest(str(value), names)}")

    def above_zero(self, option: str, value: object) -> None:
        """Note a fault unless the value is a whole number above 0."""
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        self.check(whole, f"{option}={value!r}: a number above 0")

    def sink_name(self, value: object) -> None:
        """Note a fault unless the value can name a sink in journals, settings and logs."""
        good = isinstance(value, str) and _NAME.fullmatch(value) is not None
        self.check(good, f"name={value!r}: a letter, then up to 63 letters, digits, '_', '.' or '-'")

    def column_names(self, option: str, given: object) -> tuple[str, ...]:
        """A list of different column names; a fault is noted if it is anything else."""
        names: tuple[object, ...] = ()
        if isinstance(given, Sequence) and not isinstance(given, str | bytes):
            names = tuple(given)
        found = tuple(name for name in names if isinstance(name, str) and name)
        if len(found) != len(names) or (given and not names):
            self.add(f"{option}={given!r}: a list of column names")
        self.check(len(set(found)) == len(found), f"{option}={list(found)!r}: names a column twice")
        return found

    def parsed(self, option: str, value: object, parse: Callable[[object], T]) -> T | None:
        """What a text stands for, None for None; a fault is noted if it stands for nothing."""
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as fault:
            self.add(f"{option}={value!r}: {fault}")
            return None

    def done(self) -> None:
        """Raise all faults in one error, if there are any."""
        if self._faults:
            raise OptionError(self._what, self._faults)


def nearest(wrong: str, right: Iterable[str]) -> str:
    """A hint for a misspelt name, or nothing: the right name that needs the fewest edits.

    Of names with dots each part is compared with its counterpart.

    >>> nearest("parqet", ["parquet", "orc"])
    "; did you mean 'parquet'?"
    >>> nearest("state.recovry", ["state.cpu", "state.recovery"])
    "; did you mean 'state.recovery'?"
    >>> nearest("state", ["state.cpu", "state.recovery"])
    "; it has options of its own: 'state.cpu', 'state.recovery'"
    """
    names = list(dict.fromkeys(right))
    found = [name for name in names if _is_near(wrong, name)]
    if found:
        return f"; did you mean {min(found, key=lambda name: edits(wrong, name))!r}?"
    below = [name for name in names if wrong and name.startswith(f"{wrong}.")]
    return f"; it has options of its own: {', '.join(map(repr, below))}" if below else ""


def _is_near(wrong: str, name: str) -> bool:
    ours, theirs = wrong.split("."), name.split(".")
    if len(ours) == len(theirs):
        return all(one == other or _looks_like(one, other) for one, other in zip(ours, theirs, strict=True))
    return not name.startswith(f"{wrong}.") and _looks_like(wrong, name)


def _looks_like(wrong: str, name: str) -> bool:
    return bool(difflib.get_close_matches(wrong, [name]))


def edits(one: str, other: str) -> int:
    """How many letters have to be added, removed, replaced, or exchanged with the next, to make one the other.

    >>> edits("recovry", "recovery"), edits("dya", "day"), edits("cpu", "recovery")
    (1, 1, 7)
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        row = [at]
        for to, wanted in enumerate(other, 1):
            best = min(last[to] + 1, row[to - 1] + 1, last[to - 1] + (letter != wanted))
            if at > 1 and to > 1 and (letter, one[at - 2]) == (other[to - 2], wanted):
                best = min(best, before[to - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]


def other_case(wrong: str, right: Collection[str]) -> str:
    """A hint for a name that differs from a right one in case only, or nothing.

    >>> other_case("Amount", ["amount"])
    " (but 'amount': names must be spelled alike)"
    """
    same = [name for name in right if name.lower() == wrong.lower()]
    return f" (but {same[0]!r}: names must be spelled alike)" if same else ""
