"""What is open in a target, indexed: an epoch looks only at the parts that it could close.

The index follows the state from epoch to epoch by the keys that changed, and has of each part no more than it takes to
decide whether the part closes. So the cost of an epoch depends on what it opens and closes, not on what is open. The
pieces of a part are read from the state when the part is looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from epochal.sinks.files.policies.rolling import NEVER, Piece, Rolling
from epochal.sinks.files.queue import Queue
from epochal.sinks.files.state import (
    AWAITED,
    HEADER,
    TARGET,
    Added,
    Entry,
    added_of,
    bucket_of,
    entry_of,
    is_piece,
    legacy_key,
    piece_key,
    pieces_of,
    readable,
    value_of,
)
from epochal.txn.model import Json
from epochal.txn.state.memory import no_garbage_collection
from epochal.txn.state.typed import Edit
from epochal.txn.state.versions import SinkState

PartKey: TypeAlias = tuple[str, str]  # bucket and shape

# The times of a part's first and last epoch, its bytes, its counted rows, and the keys of the state that have its
# pieces. A plain tuple, because the collector of garbage does not look at these: there may be millions.
Part: TypeAlias = tuple[float, float, int, int, tuple[str, ...]]


class Opened:
    """The open parts of a state, and the buckets that await their marker."""

    def __init__(self) -> None:
        self._state: Mapping[str, Json] | None = None
        self._clear()

    def follow(self, state: Mapping[str, Json]) -> Opened:
        """Bring the index to a state; itself."""
        before = self._state
        if state is before:
            return self
        changed = state.changed_since(before) if isinstance(state, SinkState) else None
        self._state = None  # until it is whole: a record that cannot be read stops it anywhere
        with readable():
            if changed is None or before is None:
                self._index_anew(state)
            else:
                self._unlooked = False
                self._apply(changed, before, state)
        self._state = state
        return self

    @property
    def pieces(self) -> int:
        """How many pieces are open."""
        return self._by_shape.total()

    def size(self) -> tuple[int, int]:
        """How many parts are open, and their bytes."""
        return sum(map(len, self._parts.values())), self._bytes

    def parts(self) -> list[list[Piece]]:
        """The pieces of each open part, in the order of buckets."""
        keys = sorted((bucket, shape) for shape, parts in self._parts.items() for bucket in parts)
        return [sorted(self._pieces(key), key=lambda piece: piece.order) for key in keys]

    def shapes(self) -> Collection[str]:
        """The shapes of the open parts."""
        return self._parts.keys()

    def due(self, policy: Rolling) -> float:
        """When the first open part closes by the clock; infinity for never."""
        age = NEVER if policy.age_limit is None else self._by_first.first() + policy.age_limit
        return min(age, NEVER if policy.idle_limit is None else self._by_last.first() + policy.idle_limit)

    def candidates(
        self,
        policy: Rolling | None,
        clock: float,
        *,
        fresh: Iterable[Piece] = (),
        complete: Iterable[str] = (),
        shape: str | None = None,
    ) -> list[Piece]:
        """The pieces of every part that closes now, by its size together with the fresh pieces or by the clock.

        So do parts of another shape, and those of buckets that are complete. At the first look after a start some may
        be over limits that were higher before.
        """
        chosen: set[PartKey] = set()
        if policy is None:
            chosen.update(self._keys())
        else:
            chosen.update(self._full(policy, fresh))
            chosen.update((bucket, known) for bucket in complete for known in self._shapes_in(bucket))
            if policy.age_limit is not None:
                chosen |= self._by_first.until(clock - policy.age_limit)
            if policy.idle_limit is not None:
                chosen |= self._by_last.until(clock - policy.idle_limit)
            if shape is not None:
                others = (known for known in self._parts if known != shape)
                chosen.update((bucket, known) for known in others for bucket in self._parts[known])
        return [piece for key in chosen for piece in self._pieces(key)]

    def awaited_until(self, time: float) -> dict[str, float]:
        """The buckets that await their marker and end by this time."""
        return {bucket: self.awaited[bucket] for bucket in self._by_end.until(time)}

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
        gone = {bucket for bucket in over if bucket in self.awaited}
        for bucket in gone:
            edit.map(AWAITED).pop(bucket, None)
        stays = any(count > 0 for count in counts.values())
        if stays or len(self.awaited) > len(gone) or awaited:
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
            legacy = legacy_key(epoch, bucket)
            flat = legacy if legacy in self._legacy else piece_key(epoch, bucket)
            edit.put(flat, value_of(pieces) if pieces else None)

    def _keys(self) -> Iterator[PartKey]:
        return ((bucket, shape) for shape, parts in self._parts.items() for bucket in parts)

    def _shapes_in(self, bucket: str) -> Iterator[str]:
        """The shapes that a bucket has open parts of; nearly always there is one shape in all."""
        return (shape for shape, parts in self._parts.items() if bucket in parts)

    def _pieces(self, key: PartKey) -> Iterator[Piece]:
        bucket, shape = key
        assert self._state is not None  # it has this part
        for flat in self._parts[shape][bucket][-1]:
            yield from pieces_of(flat, self._state[flat])

    def _full(self, policy: Rolling, fresh: Iterable[Piece]) -> Iterator[PartKey]:
        """The parts that these pieces fill; at the first look, also those that are over a limit without them."""
        added: dict[PartKey, tuple[int, int]] = {}
        for piece in fresh:
            size, rows = added.get((piece.bucket, piece.shape), (0, 0))
            added[piece.bucket, piece.shape] = size + piece.bytes, rows + (piece.rows or 0)
        for key in self._keys() if self._unlooked else added:
            part = self._part(key)
            more = added.get(key, (0, 0))
            if part is not None and policy.is_reached(part[2] + more[0], part[3] + more[1]):
                yield key

    def _part(self, key: PartKey) -> Part | None:
        bucket, shape = key
        parts = self._parts.get(shape)
        return None if parts is None else parts.get(bucket)

    def _clear(self) -> None:
        self.target: str | None = None
        self.headers: dict[str, bytes] = {}
        self.awaited: dict[str, float] = {}
        self._parts: dict[str, dict[str, Part]] = {}  # by shape, and by bucket
        self._by_shape: Counter[str] = Counter()  # pieces
        self._by_epoch: Counter[int] = Counter()  # pieces
        self._legacy: set[str] = set()  # keys of pieces as older versions wrote them
        self._bytes = 0
        self._unlooked = True
        self._by_first: Queue[PartKey] = Queue(self._first, self._keys)
        self._by_last: Queue[PartKey] = Queue(self._last, self._keys)
        self._by_end: Queue[str] = Queue(self.awaited.get, self.awaited.keys)

    def _first(self, key: PartKey) -> float | None:
        part = self._part(key)
        return None if part is None else part[0]

    def _last(self, key: PartKey) -> float | None:
        part = self._part(key)
        return None if part is None else part[1]

    def _index_anew(self, state: Mapping[str, Json]) -> None:
        self._clear()
        keys: dict[PartKey, list[str]] = {}  # of parts of several epochs
        with no_garbage_collection():
            for flat, value in state.items():
                if not is_piece(flat):
                    self._put(flat, value)
                    continue
                added = added_of(flat, value)
                self._count(flat, added, 1)
                parts = self._parts.setdefault(added.shape, {})
                part = parts.get(added.bucket)
                if part is None:
                    parts[added.bucket] = added.at, added.at, added.bytes, added.rows, (flat,)
                else:
                    keys.setdefault((added.bucket, added.shape), [*part[-1]]).append(flat)
                    parts[added.bucket] = _grown(part, added, ())
            for (bucket, shape), flats in keys.items():
                self._parts[shape][bucket] = *self._parts[shape][bucket][:-1], tuple(flats)

    def _apply(self, changed: Iterable[str], before: Mapping[str, Json], state: Mapping[str, Json]) -> None:
        buckets: defaultdict[str, list[str]] = defaultdict(list)
        for flat in changed:
            if is_piece(flat):
                buckets[bucket_of(flat)].append(flat)
            else:
                self._put(flat, state.get(flat))
        for bucket, flats in buckets.items():
            gone = {flat for flat in flats if flat in before}
            here = {flat: added_of(flat, state[flat]) for flat in flats if flat in state}
            for flat in gone:
                self._count(flat, added_of(flat, before[flat]), -1)
            for shape in [*self._shapes_in(bucket)] if gone else ():
                self._shrink((bucket, shape), gone, state)
            for flat, added in here.items():
                self._count(flat, added, 1)
                key = bucket, added.shape
                part = self._part(key)
                alone = added.at, added.at, added.bytes, added.rows, (flat,)
                self._set(key, alone if part is None else _grown(part, added, (flat,)))

    def _shrink(self, key: PartKey, gone: set[str], state: Mapping[str, Json]) -> None:
        part = self._part(key)
        assert part is not None  # the caller has found it
        left = [flat for flat in part[-1] if flat not in gone]
        if len(left) == len(part[-1]):
            return
        all_added = [added_of(flat, state[flat]) for flat in left]
        smaller: Part | None = None
        for flat, added in zip(left, all_added, strict=True):
            alone = added.at, added.at, added.bytes, added.rows, (flat,)
            smaller = alone if smaller is None else _grown(smaller, added, ())
        self._set(key, None if smaller is None else (*smaller[:-1], tuple(left)))

    def _set(self, key: PartKey, part: Part | None) -> None:
        bucket, shape = key
        before = self._part(key)
        if part is not None:
            self._parts.setdefault(shape, {})[bucket] = part
        elif before is not None:
            del self._parts[shape][bucket]
            if not self._parts[shape]:
                del self._parts[shape]
        if part is not None and (before is None or part[0] != before[0]):
            self._by_first.put(key)
        if part is not None and (before is None or part[1] != before[1]):
            self._by_last.put(key)

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
                    self._by_end.put(bucket)

    def _count(self, flat: str, added: Added, sign: int) -> None:
        self._by_shape[added.shape] += sign * added.pieces
        self._by_epoch[added.epoch] += sign * added.pieces
        self._bytes += sign * added.bytes
        if not self._by_shape[added.shape]:
            del self._by_shape[added.shape]
        if not self._by_epoch[added.epoch]:
            del self._by_epoch[added.epoch]
        if flat[0].isdecimal():
            (self._legacy.add if sign > 0 else self._legacy.discard)(flat)


def _grown(part: Part, added: Added, flat: tuple[str, ...]) -> Part:
    """A part with what one more epoch added."""
    first, last, size, rows, keys = part
    return min(first, added.at), max(last, added.at), size + added.bytes, rows + added.rows, (*keys, *flat)
