"""Keys by a time that may change, to find those that are due without looking at the others."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from epochal.sinks.files.policies.rolling import NEVER

Key = TypeVar("Key", bound=Hashable)


class Queue(Generic[Key]):
    """A heap in which entries that are no longer true are skipped. It is made when it is first asked."""

    def __init__(self, time_of: Callable[[Key], float | None], keys: Callable[[], Iterable[Key]]) -> None:
        """`time_of` tells the time of a key now, `keys` which there are now."""
        self._time_of, self._keys = time_of, keys
        self._heap: list[tuple[float, Key]] | None = None
        self._live = 0  # how many were true when it was made, or cleared up

    def put(self, key: Key) -> None:
        """Note that a key is new, or has another time."""
        if self._heap is None:
            return
        at = self._time_of(key)
        if at is not None:
            heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * self._live + 64:
            self._fill([item for item in {*self._heap} if self._is_true(item)])

    def first(self) -> float:
        """The earliest time; infinity if there is none."""
        heap = self._made()
        while heap and not self._is_true(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def until(self, time: float) -> set[Key]:
        """The keys whose time is not after this one."""
        found: dict[Key, float] = {}
        heap = self._made()
        while self.first() <= time:
            at, key = heapq.heappop(heap)
            found[key] = at
        for key, at in found.items():  # they stay until the state says otherwise
            heapq.heappush(heap, (at, key))
        return {*found}

    def _made(self) -> list[tuple[float, Key]]:
        if self._heap is None:
            return self._fill([(at, key) for key in self._keys() if (at := self._time_of(key)) is not None])
        return self._heap

    def _fill(self, items: list[tuple[float, Key]]) -> list[tuple[float, Key]]:
        heapq.heapify(items)
        self._heap, self._live = items, len(items)
        return items

    def _is_true(self, item: tuple[float, Key]) -> bool:
        return self._time_of(item[1]) == item[0]
