"""The state of a sink after each epoch, without a copy for each.

The newest version holds the dict. When a version is made from it, the dict moves on to the new version and is changed
in place; the old one holds what it had otherwise and refers to the new one. So a change costs what it changes, the
newest version is as quick as a dict, and old versions vanish when nobody holds them. A version that is made from an
older one (which happens if the journal was read anew) holds its own changes and refers to that one.

Versions are made by one thread; others may look up keys meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from epochal.txn.json_value import Json

Position: TypeAlias = tuple[int, ...]  # in the order of steps: an epoch is (N, 0), the rolls after it (N, 1, ...)


class _Absent:
    """Instead of a value: this version has no such key."""


ABSENT: Final = _Absent()


class SinkState(Mapping[str, Json]):
    """The state of one sink after one step. It never changes."""

    __slots__ = ("__weakref__", "_cause", "_diff", "_next", "_position", "_root", "_size")

    def __init__(self, entries: dict[str, Json] | None = None) -> None:
        """A first version. It takes the dict over: nobody else may change it."""
        self._root: dict[str, Json] | None = {} if entries is None else entries
        self._next: SinkState | None = None
        self._diff: dict[str, Json | _Absent] = {}
        self._size = len(self._root)
        self._position: Position = ()
        self._cause: Mapping[str, Json] | None = None

    def then(self, position: Position, changes: Mapping[str, Json]) -> SinkState:
        """The version after a step. The same step, applied again to this version, gives the same object."""
        if not changes:
            return self
        made = self._next
        if made is not None and made._position == position and (made._cause is changes or made._cause == changes):
            return made
        made = SinkState.__new__(SinkState)
        made._position, made._cause, made._next, made._diff, made._root = position, changes, None, {}, None
        if self._root is None:
            made._diff = {key: ABSENT if value is None else value for key, value in changes.items()}
            made._next = self
            made._size = self._size + sum((value is not None) - (key in self) for key, value in changes.items())
            return made
        root = self._root
        before = {key: root.get(key, ABSENT) for key in changes}
        made._root = root
        # Readers in other threads look at `_root` before and after: it must be gone before the dict is changed.
        self._diff, self._next, self._root = before, made, None
        for key, value in changes.items():
            if value is None:
                root.pop(key, None)
            else:
                root[key] = value
        made._size = len(root)
        return made

    def changed_since(self, other: object) -> set[str] | None:
        """The keys whose values may differ in another version; None if the two have no common origin."""
        if not isinstance(other, SinkState):
            return None
        ours, theirs = _way(self), _way(other)
        if ours[-1] is not theirs[-1]:
            return None
        met = {id(version) for version in ours} & {id(version) for version in theirs}
        return {key for version in (*ours, *theirs) if id(version) not in met for key in version._diff}

    def __getitem__(self, key: str) -> Json:
        value = self._find(key)
        if isinstance(value, _Absent):
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not ABSENT

    def __iter__(self) -> Iterator[str]:
        version = self
        seen: dict[str, Json | _Absent] = {}
        while version._root is None:
            for key, value in version._diff.items():
                seen.setdefault(key, value)
            assert version._next is not None  # only the version with the dict has no next
            version = version._next
        if not seen:
            return iter(version._root)
        return (
            key
            for keys in ((k for k in version._root if k not in seen), (k for k, v in seen.items() if v is not ABSENT))
            for key in keys
        )

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"SinkState({dict(sorted(self.items()))!r})"

    def _find(self, key: str) -> Json | _Absent:
        version = self
        while True:
            root = version._root
            if root is not None:
                value: Json | _Absent = root.get(key, ABSENT)
                if version._root is root:
                    return value
                continue  # the dict has moved on while we looked
            if key in version._diff:
                return version._diff[key]
            assert version._next is not None  # only the version with the dict has no next
            version = version._next


def _way(version: SinkState) -> list[SinkState]:
    """A version and those that it refers to, up to the one with the dict."""
    way = [version]
    while version._next is not None:
        version = version._next
        way.append(version)
    return way
