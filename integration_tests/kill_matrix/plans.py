"""Which cases there are. A plan plays every `of`-th of its pieces, from `shard` on.

A sample is every `every`-th of what a plan combines: of second kills, of changes, of pairs, of seeds. It takes others
each time, so that no failpoint is left out.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

from integration_tests import steps
from integration_tests.kill_matrix.cases import CHANGE, Case, Point, Stream
from integration_tests.kill_matrix.driver import SPARK_POINTS
from integration_tests.kill_matrix.matrix import Matrix

STEPS_OF_STATE = ("segment", "segment-merge", "state")
STEPS_OF_ROLLING = ("roll", "rolled", "roll-seal", "merge", "copy", "join", "keep", *STEPS_OF_STATE)
STEPS_OF_OTHER_SINKS = (
    *("marker", "manifest", "cleanup", "table", "log", "rows", "part", "ledger"),
    *STEPS_OF_ROLLING,
    *steps.OF_KAFKA,
)
OF_OTHER_SINKS = tuple(f"{side}-{step}" for step in STEPS_OF_OTHER_SINKS for side in ("before", "after"))
REACHABLE = tuple(name for name in steps.NAMES if name not in OF_OTHER_SINKS)
POINTS = (*REACHABLE, *SPARK_POINTS)
FOLDING = ("before-snapshot", "after-snapshot", "before-purge", "after-purge")

FRESH = [Stream(commit, sinks, "fresh") for commit in ("checkpoint", "eager") for sinks in (1, 2)]
SHORT = [replace(stream, start="short") for stream in FRESH]
AGED = [Stream(commit, 1, "aged") for commit in ("checkpoint", "eager")]
LONG = [replace(stream, start="long") for stream in AGED]

Piece = TypeVar("Piece")
Select: TypeAlias = Callable[[Counter[str]], list[Point]]


def failpoint_kills(matrix: Matrix, shard: int, of: int, every: int) -> None:
    """Every failpoint at its first three hits and its last, then every failpoint of the recovery from an early one.

    Early: the first hit; in a stream of two sinks also the second, which is the other sink's; in an
    aged stream, whose drivers have much to read, only where the journal is folded.
    """
    firsts = ((stream, point) for stream in [*FRESH, *AGED] for point in met(matrix, Case(stream), early_and_last))
    for turn, (stream, point) in enumerate(_share(firsts, shard, of)):
        is_early = point.name in FOLDING if stream.start == "aged" else point.hit <= stream.sinks
        some = partial(_some_first, turn, every)
        _kill_and_again(matrix, Case(stream, (point,)), some if is_early else _none)


def change_kills(matrix: Matrix, shard: int, of: int, every: int) -> None:
    """Every change of the disk, then one or two of the recovery: others each time, so that all have their turn."""
    streams = [*FRESH[:3], AGED[0]]
    firsts = ((stream, point) for stream in streams for point in met(matrix, Case(stream), every_change))
    for stream, point in _share(firsts, shard, of * every):
        some = _none if stream.start == "aged" else partial(_some_changes, point.hit)
        _kill_and_again(matrix, Case(stream, (point,)), some)


def chains(matrix: Matrix, shard: int, of: int, every: int, *, seeds: int = 50) -> None:
    """Three to six kills in a row, each anywhere in the recovery from those before."""
    for seed in range(shard, seeds, of * every):
        chance = random.Random(seed)
        case = Case(chance.choice([*FRESH, *AGED]))
        path = matrix.lab.new(case.stream)
        for _ in range(chance.randint(3, 6)):
            hits = matrix.finish(matrix.lab.copy(path, case.stream), case, count=True)
            case = replace(case, kills=(*case.kills, chance.choice(_all(hits))))
            if not matrix.kill(path, case):
                break
        matrix.finish(path, case)


def holds(matrix: Matrix, shard: int, of: int, every: int) -> None:
    """One driver held at every step while a second runs to its end.

    It starts afresh, or after one that died staging, or after one that had prepared. Over a long
    stream the second folds away all that the first still believes in.
    """
    befores = [(), (Point("after-write", 1),), (Point("after-prepared", 1),)]
    cases = [*(Case(stream, before) for stream in SHORT for before in befores), *map(Case, [*AGED, *LONG])]
    held = ((case, point) for case in cases for point in met(matrix, case, first if case.kills else first_and_last))
    for case, point in _share(_thinned(held, every), shard, of):
        matrix.play(replace(case, holds=(point,)))


def pairs(matrix: Matrix, shard: int, of: int, every: int) -> None:
    """One driver held at every step, a second held at every step; the first ends first."""
    cases = [Case(Stream(commit, 1, "short")) for commit in ("checkpoint", "eager")]
    held = ((case, point) for case in cases for point in met(matrix, case, first))
    for turn, (case, point) in enumerate(_share(held, shard, of)):
        # A driver that is held and one that was killed leave the same disk to the next.
        for second in met(matrix, replace(case, kills=(point,)), partial(_some_first, turn, every)):
            matrix.play(replace(case, holds=(point, second)))


def races(matrix: Matrix, shard: int, of: int, every: int, *, seeds: int = 200) -> None:
    """Drivers that start together and run freely, each time with other timings."""
    for seed in range(shard, seeds, of * every):
        matrix.play(Case(SHORT[seed % len(SHORT)], race=seed))


PLANS: dict[str, Callable[[Matrix, int, int, int], None]] = {
    plan.__name__: plan for plan in (failpoint_kills, change_kills, chains, holds, pairs, races)
}


def _kill_and_again(matrix: Matrix, case: Case, select: Select) -> None:
    """Kill at the case's point; then, from copies of what that left, in its recovery too."""
    left = matrix.lab.keep(matrix.killed(case))
    for point in select(matrix.finish(matrix.lab.copy(left, case.stream), case, count=True)):
        twice = replace(case, kills=(*case.kills, point))
        path = matrix.lab.copy(left, case.stream)
        matrix.kill(path, twice)
        matrix.finish(path, twice)
    matrix.lab.end(left)


def met(matrix: Matrix, case: Case, select: Select) -> list[Point]:
    """The points that the next driver meets after the case's kills."""
    return select(matrix.finish(matrix.killed(case), case, count=True))


def first(hits: Counter[str]) -> list[Point]:
    """The first hit of each failpoint."""
    return [Point(name, 1) for name in POINTS if hits[name]]


def _some_first(turn: int, every: int, hits: Counter[str]) -> list[Point]:
    return first(hits)[turn % every :: every]


def first_and_last(hits: Counter[str]) -> list[Point]:
    """The first and the last hit of each failpoint."""
    return [Point(name, hit) for name in POINTS if hits[name] for hit in sorted({1, hits[name]})]


def early_and_last(hits: Counter[str]) -> list[Point]:
    """The first three hits of each failpoint and its last."""
    every = (Point(name, hit) for name in POINTS for hit in range(1, hits[name] + 1))
    return [point for point in every if point.hit <= 3 or point.hit == hits[point.name]]


def every_change(hits: Counter[str]) -> list[Point]:
    """Every change of the disk."""
    return [Point(CHANGE, hit) for hit in range(1, hits[CHANGE] + 1)]


def _some_changes(turn: int, hits: Counter[str]) -> list[Point]:
    return every_change(hits)[turn % 79 :: 79]


def _all(hits: Counter[str]) -> list[Point]:
    return [Point(name, hit) for name in sorted(hits) for hit in range(1, hits[name] + 1)]


def _none(_: Counter[str]) -> list[Point]:
    return []


def _thinned(held: Iterable[tuple[Case, Point]], every: int) -> Iterator[tuple[Case, Point]]:
    """Every so many of the cases of each failpoint, the first of each among them."""
    passed: Counter[str] = Counter()
    for case, point in held:
        if passed[point.name] % every == 0:
            yield case, point
        passed[point.name] += 1


def _share(pieces: Iterable[Piece], shard: int, of: int) -> Iterator[Piece]:
    return itertools.islice(pieces, shard, None, of)
