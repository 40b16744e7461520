"""What is open in a target, indexed: an epoch looks only at the parts that it could close.

The index follows the state from epoch to epoch by the keys that changed. So the cost of an epoch depends on what it
opens and closes, not on what is open.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from epochal.sinks.files.policies.rolling import NEVER, Piece, Rolling
from epochal.sinks.files.state import AWAITED, HEADER, PIECE, TARGET, Entry, entry_of, piece_key, value_of
from epochal.txn.model import Json
from epochal.txn.state.memory import no_garbage_collection
from epochal.txn.state.typed import Edit
from epochal.txn.state.versions import SinkState

PartKey: TypeAlias = tuple[str, str]  # bucket and shape


@dataclass(slots=True)
class Part:
    """The pieces of one open part, by the key of the state that has them."""

    pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)

    @property
    def first(self) -> float:
        return min(pieces[0].at for pieces in self.pieces.values())

    @property
    def last(self) -> float:
        return max(pieces[0].at for pieces in self.pieces.values())

    def all(self) -> Iterator[Piece]:
        return (piece for pieces in self.pieces.values() for piece in pieces)


class Queue:
    """Parts, or buckets, by a time. Entries that are no longer true are skipped."""

    def __init__(self, time_of: Callable[[PartKey], float | None]) -> None:
        self._time_of = time_of
        self._heap: list[tuple[float, PartKey]] = []

    def fill(self, keys: Iterable[PartKey]) -> None:
        """Note the times of all keys that there are."""
        self._heap = [(at, key) for key in keys if (at := self._time_of(key)) is not None]
        heapq.heapify(self._heap)

    def put(self, key: PartKey, live: int) -> None:
        """Note the time of a key, out of so many that are there."""
        at = self._time_of(key)
        if at is not None:
            heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * live + 64:
            self._heap = [item for item in {*self._heap} if self._is_true(item)]
            heapq.heapify(self._heap)

    def first(self) -> float:
        """The earliest time; infinity if there is none."""
        while self._heap and not self._is_true(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def until(self, time: float) -> set[PartKey]:
        """The keys whose time is not after this one."""
        found: set[PartKey] = set()
        while self.first() <= time:
            found.add(heapq.heappop(self._heap)[1])
        for key in found:  # they stay until the state says otherwise
            self.put(key, len(self._heap) + len(found))
        return found

    def _is_true(self, item: tuple[float, PartKey]) -> bool:
        return self._time_of(item[1]) == item[0]


class Opened:
    """The open parts of a state, and the buckets that await their marker."""

    def __init__(self) -> None:
        self._state: Mapping[str, Json] | None = None
        self._clear()

    def follow(self, state: Mapping[str, Json]) -> Opened:
        """Bring the index to a state; itself."""
        if state is self._state:
            return self
        changed = state.changed_since(self._state) if isinstance(state, SinkState) else None
        self._state = None  # until it is whole: a record that cannot be read stops it anywhere
        if changed is None:
            self._index_anew(state)
        else:
            self._unlooked = False
            for key in changed:
                self._put(key, state.get(key))
        self._state = state
        return self

    @property
    def pieces(self) -> int:
        """How many pieces are open."""
        return self._open_pieces

    def size(self) -> tuple[int, int]:
        """How many parts are open, and their bytes."""
        return len(self._parts), self._bytes

    def parts(self) -> list[list[Piece]]:
        """The pieces of each open part, in the order of buckets."""
        return [sorted(part.all(), key=lambda piece: piece.order) for _, part in sorted(self._parts.items())]

    def shapes(self) -> Collection[str]:
        """The shapes of the open parts."""
        return self._by_shape.keys()

    def due(self, policy: Rolling) -> float:
        """When the first open part closes by the clock; infinity for never."""
        age = NEVER if policy.age_limit is None else self._by_first.first() + policy.age_limit
        return min(age, NEVER if policy.idle_limit is None else self._by_last.first() + policy.idle_limit)

    def candidates(
        self,
        policy: Rolling | None,
        clock: float,
        *,
        buckets: Iterable[str] = (),
        shape: str | None = None,
    ) -> list[Piece]:
        """The pieces of every part that may close now: of these buckets, of another shape, or due by the clock.

        After a start all parts are looked at once, because the limits may have changed.
        """
        chosen: set[PartKey] = set()
        if policy is None or self._unlooked:
            chosen.update(self._parts)
        else:
            chosen.update((bucket, known) for bucket in buckets for known in self._shapes_of.get(bucket, ()))
            if policy.age_limit is not None:
                chosen |= self._by_first.until(clock - policy.age_limit)
            if policy.idle_limit is not None:
                chosen |= self._by_last.until(clock - policy.idle_limit)
            if shape is not None and self._by_shape.keys() - {shape}:
                chosen.update(key for key in self._parts if key[1] != shape)
        return [piece for key in chosen for piece in self._parts[key].all()]

    def awaited_until(self, time: float) -> dict[str, float]:
        """The buckets that await their marker and end by this time."""
        return {bucket: self.awaited[bucket] for bucket, _ in self._by_end.until(time)}

    def first_end(self) -> float:
        """When the first bucket ends that awaits its marker; infinity if none does."""
        return self._by_end.first()

    def epochs_without(self, closed: Iterable[Piece]) -> set[int]:
        """The epochs of these pieces that have no other open piece."""
        counts = Counter(piece.epoch for piece in closed)
        return {epoch for epoch, count in counts.items() if count >= self._by_epoch[epoch]}

    def pieces_of(self, epoch: int) -> int:
        """How many pieces of an epoch are open."""
        return self._by_epoch[epoch]

    def change(
        self,
        edit: Edit,
        target: str,
        *,
        looked_at: Iterable[Piece],
        left: Iterable[Piece],
        headers: Mapping[str, bytes],
        awaited: Mapping[str, float],
        over: Iterable[str],
    ) -> None:
        """Write to the state that of these pieces those are left, that buckets await their marker and others no longer.

        Pieces that are left and were not looked at are new.
        """
        counts, known = Counter(self._by_shape), {*looked_at}
        for piece in known:
            counts[piece.shape] -= 1
        self._change_pieces(edit, known, left, counts)
        for shape in counts.keys() | self.headers.keys():
            if counts[shape] > 0 and headers.get(shape):
                edit.map(HEADER)[shape] = value_of(headers[shape])
            else:
                edit.map(HEADER).pop(shape, None)
        for bucket, end in awaited.items():
            edit.map(AWAITED)[bucket] = end
        for bucket in over:
            edit.map(AWAITED).pop(bucket, None)
        stays = any(count > 0 for count in counts.values())
        if stays or self.awaited.keys() - {*over} or awaited:
            edit.value(TARGET).set(target)
        else:
            edit.value(TARGET).delete()

    def _change_pieces(self, edit: Edit, known: set[Piece], left: Iterable[Piece], counts: Counter[str]) -> None:
        keys = {(piece.epoch, piece.bucket) for piece in known}
        rest: dict[tuple[int, str], list[Piece]] = {key: [] for key in keys}
        for piece in left:
            rest.setdefault((piece.epoch, piece.bucket), []).append(piece)
            counts[piece.shape] += 1
        for (epoch, bucket), pieces in rest.items():
            flat = self._keys.get((epoch, bucket))
            value = value_of(pieces) if pieces else None
            if flat is not None:
                edit.put(flat, value)
            elif value is not None:
                edit.map(PIECE)[piece_key(epoch, bucket)] = value

    def _index_anew(self, state: Mapping[str, Json]) -> None:
        self._clear()
        self._filling = True
        with no_garbage_collection():
            for key, value in state.items():
                self._put(key, value)
        self._filling = False
        self._by_first.fill(self._parts)
        self._by_last.fill(self._parts)
        self._by_end.fill((bucket, "") for bucket in self.awaited)

    def _clear(self) -> None:
        self._filling = False  # the queues are made at its end
        self.target: str | None = None
        self.headers: dict[str, bytes] = {}
        self.awaited: dict[str, float] = {}
        self._parts: dict[PartKey, Part] = {}
        self._shapes_of: dict[str, set[str]] = {}
        self._by_shape: Counter[str] = Counter()  # pieces
        self._by_epoch: Counter[int] = Counter()  # pieces
        self._keys: dict[tuple[int, str], str] = {}  # epoch and bucket -> the key of the state
        self._bytes = self._open_pieces = 0
        self._unlooked = True
        self._by_first = Queue(lambda key: self._parts[key].first if key in self._parts else None)
        self._by_last = Queue(lambda key: self._parts[key].last if key in self._parts else None)
        self._by_end = Queue(lambda key: self.awaited.get(key[0]))

    def _put(self, flat: str, value: Json) -> None:
        match entry_of(flat, value):
            case Entry(kind="target", text=text):
                self.target = text
            case Entry(kind="header", key=shape, header=header):
                self.headers.pop(shape, None)
                if header is not None:
                    self.headers[shape] = header
            case Entry(kind="awaited", key=bucket, end=end):
                self.awaited.pop(bucket, None)
                if end is not None:
                    self.awaited[bucket] = end
                if not self._filling:
                    self._by_end.put((bucket, ""), len(self.awaited))
            case Entry(epoch=epoch, key=bucket, pieces=pieces):
                self._put_pieces(flat, epoch, bucket, pieces)

    def _put_pieces(self, flat: str, epoch: int, bucket: str, pieces: tuple[Piece, ...]) -> None:
        known = self._keys.get((epoch, bucket)) == flat
        for shape in [*self._shapes_of.get(bucket, ())] if known else ():
            before = self._parts[bucket, shape].pieces.pop(flat, ())
            self._count(before, -1)
            if not self._parts[bucket, shape].pieces:
                del self._parts[bucket, shape]
                self._shapes_of[bucket].discard(shape)
            elif before:
                self._note((bucket, shape))
        if not pieces:
            self._keys.pop((epoch, bucket), None)
            if not self._shapes_of.get(bucket):
                self._shapes_of.pop(bucket, None)
            return
        key = bucket, pieces[0].shape
        self._parts.setdefault(key, Part()).pieces[flat] = pieces
        self._shapes_of.setdefault(bucket, set()).add(key[1])
        self._keys[epoch, bucket] = flat
        self._count(pieces, 1)
        self._note(key)

    def _count(self, pieces: Iterable[Piece], sign: int) -> None:
        for piece in pieces:
            self._by_shape[piece.shape] += sign
            self._by_epoch[piece.epoch] += sign
            self._bytes += sign * piece.bytes
            self._open_pieces += sign
            if not self._by_shape[piece.shape]:
                del self._by_shape[piece.shape]
            if not self._by_epoch[piece.epoch]:
                del self._by_epoch[piece.epoch]

    def _note(self, key: PartKey) -> None:
        if self._filling:
            return
        self._by_first.put(key, len(self._parts))
        self._by_last.put(key, len(self._parts))
