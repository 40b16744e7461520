"""Typed state: what a participant keeps over epochs, opened by name.

>>> before = {"target": "/archive", "open day=1/": {"files": 2}}
>>> state = Edit(before)
>>> parts = state.map("open")
>>> parts["day=2/"] = {"files": 1}
>>> del parts["day=1/"]
>>> state.list("marks").append("day=1/")
>>> state.value("target").get()
'/archive'
>>> sorted(state.changes)
['marks', 'marks #000000000000', 'open day=1/', 'open day=2/']

The changes go into `Staged.changes`. They become the state when the epoch is decided and vanish with an attempt that
loses. Reads see the state before the epoch and the changes made so far.

Each change puts or deletes one key. An append takes the next number of its list: every attempt at an epoch starts from
the same state, so the number is the same for each. So the last change of a key always wins, however they are grouped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

from epochal.txn.json_value import Json
from epochal.txn.state.keys import checked_name, element_key, entry_key, key_of_entry

BITS = 10_000  # of a number: Python reads 4,300 decimal digits, and a process may be set to read fewer
DEEPEST = 100  # levels: Python reads some hundreds, fewer when it is deep in calls itself

_Opened = TypeVar("_Opened", bound="ValueState | ListState | MapState")


class Edit:
    """The state of one participant, with the changes of one epoch."""

    def __init__(self, before: Mapping[str, Json]) -> None:
        self._before = before
        self._changes: dict[str, Json] = {}
        self._opened: dict[str, ValueState | ListState | MapState] = {}

    @property
    def changes(self) -> dict[str, Json]:
        """What this epoch changes: new values by flat key, None for a key that is deleted."""
        return {key: value for key, value in self._changes.items() if not _same(self._before.get(key), value)}

    def value(self, name: str) -> ValueState:
        """One JSON value."""
        return self._open(name, ValueState(self, checked_name(name)))

    def list(self, name: str) -> ListState:
        """JSON values in the order in which they were appended."""
        return self._open(name, ListState(self, checked_name(name)))

    def map(self, name: str) -> MapState:
        """JSON values by key."""
        return self._open(name, MapState(self, checked_name(name)))

    def get(self, key: str) -> Json:
        """The value under a flat key; None if there is none. For state of older versions, which has no names."""
        return _copy(self._changes[key] if key in self._changes else self._before.get(key))

    def put(self, key: str, value: Json) -> None:
        """Set the value under a flat key; None deletes it."""
        self._changes[key] = value

    def keys(self) -> Iterator[str]:
        """Every flat key, in no order."""
        yield from (key for key in self._before if self._changes.get(key, ...) is not None)
        yield from (key for key, value in self._changes.items() if value is not None and key not in self._before)

    def _open(self, name: str, opened: _Opened) -> _Opened:
        known = self._opened.setdefault(name, opened)
        if type(known) is not type(opened):
            raise TypeError(f"state {name!r} was opened as {_kind(known)} and cannot be opened as {_kind(opened)}")
        return known


class ValueState:
    """One JSON value."""

    def __init__(self, edit: Edit, name: str) -> None:
        self._edit, self._name = edit, name

    def get(self) -> Json:
        """The value; None if it was never set."""
        return self._edit.get(self._name)

    def set(self, value: Json) -> None:
        """Replace the value. It must not be None: `delete` removes it."""
        self._edit.put(self._name, _checked(self._name, value))

    def delete(self) -> None:
        """Remove the value."""
        self._edit.put(self._name, None)


class MapState(MutableMapping[str, Json]):
    """JSON values by key. Looking up a key is cheap; iterating goes over the participant's whole state."""

    def __init__(self, edit: Edit, name: str) -> None:
        self._edit, self._name = edit, name

    def __getitem__(self, key: str) -> Json:
        value = self._edit.get(self._flat(key)) if isinstance(key, str) else None
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Json) -> None:
        self._edit.put(self._flat(key), _checked(f"{self._name}[{key!r}]", value))

    def __delitem__(self, key: str) -> None:
        self[key]  # raises KeyError
        self._edit.put(self._flat(key), None)

    def _flat(self, key: str) -> str:
        return entry_key(self._name, _checked_key(self._name, key))

    def __iter__(self) -> Iterator[str]:
        for flat in list(self._edit.keys()):
            key = key_of_entry(self._name, flat)
            if key is not None:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ListState:
    """JSON values in the order in which they were appended."""

    def __init__(self, edit: Edit, name: str) -> None:
        self._edit, self._name = edit, name

    def append(self, value: Json) -> None:
        """Add a value at the end. It must not be None."""
        first, after = self._head()
        self._edit.put(element_key(self._name, after), _checked(f"{self._name}[{after - first}]", value))
        self._set_head(first, after + 1)

    def pop_first(self) -> Json:
        """Remove the oldest value and return it; IndexError if there is none."""
        first, after = self._head()
        if first == after:
            raise IndexError(f"list state {self._name!r} is empty")
        value = self._element(first)
        self._edit.put(element_key(self._name, first), None)
        self._set_head(first + 1, after)
        return value

    def clear(self) -> None:
        """Remove all values."""
        first, after = self._head()
        for number in range(first, after):
            self._edit.put(element_key(self._name, number), None)
        self._set_head(after, after)

    def __getitem__(self, index: int) -> Json:
        first, after = self._head()
        number = first + index if index >= 0 else after + index
        if not first <= number < after:
            raise IndexError(f"list state {self._name!r} has {after - first} values")
        return self._element(number)

    def __iter__(self) -> Iterator[Json]:
        for number in range(*self._head()):
            yield self._element(number)

    def __len__(self) -> int:
        first, after = self._head()
        return after - first

    def _element(self, number: int) -> Json:
        return self._edit.get(element_key(self._name, number))

    def _head(self) -> tuple[int, int]:
        head = self._edit.get(self._name)
        if head is None:
            return 0, 0
        first, after = (head.get("first"), head.get("next")) if isinstance(head, dict) else (None, None)
        if not isinstance(first, int) or not isinstance(after, int):
            raise TypeError(f"state {self._name!r} is no list: it holds a value")
        return first, after

    def _set_head(self, first: int, after: int) -> None:
        # An empty list goes on counting: a number is never used for two elements.
        self._edit.put(self._name, {"first": first, "next": after})


def _copy(value: Json) -> Json:
    """A copy: whoever changes what was returned must put it back, or nothing is recorded."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _same(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON: to Python 1, 1.0 and True are equal."""
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _checked(what: str, value: Json) -> Json:
    """A copy of a value as the journal will read it back; raises if it is None or no JSON."""
    if value is None:
        raise ValueError(f"state {what} cannot be None: delete it instead")
    if type(value) is str:
        return _as_read_back(value)
    if (fault := _why_too_large(value)) is not None:
        raise ValueError(f"state {what} {fault}")
    if type(value) in (int, bool):
        return value
    try:
        copy: Json = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as fault:
        raise ValueError(f"state {what} must be JSON: {fault}") from None
    return copy


def _why_too_large(value: object) -> str | None:
    """Why not every process could read a value back; None if it could. Python has limits, and they can be set."""
    left = [(value, 0)]
    while left:
        inner, depth = left.pop()
        if isinstance(inner, int) and inner.bit_length() > BITS:
            return f"has a number of {inner.bit_length():,} bits, and the journal holds {BITS:,}: store it as text"
        if isinstance(inner, dict | list | tuple):
            if depth == DEEPEST:
                return f"is nested more than {DEEPEST} levels deep: store it as text, or as several entries"
            left += [(one, depth + 1) for one in (inner.values() if isinstance(inner, dict) else inner)]
    return None


def _as_read_back(text: str) -> str:
    """Text as the journal will read it back: the two halves of a character, if they are next to each other, as one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = str(json.loads(json.dumps(text)))
    return text


def _checked_key(name: str, key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"map state {name!r} has keys of text, not {key!r}")
    return _as_read_back(key)


def _kind(opened: ValueState | ListState | MapState) -> str:
    return {"ValueState": "a value", "ListState": "a list", "MapState": "a map"}[type(opened).__name__]
