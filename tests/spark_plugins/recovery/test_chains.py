"""Extent and replay: compared with a recovery that is played through version by version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epochal.spark_plugins.recovery.chains import Sized, chain, chain_by_lineage
from epochal.spark_plugins.recovery.names import Part, Version, VersionFile

LAST = 12
numbers = st.sets(st.integers(1, LAST + 3))


def sized(number: int, part: Part, unique: str | None = None) -> Sized:
    return Sized(VersionFile(Version(number, unique), part), number * 10)


def stored(snapshots: set[int], deltas: set[int]) -> list[Sized]:
    return [sized(n, Part.ZIP) for n in snapshots] + [sized(n, Part.CHANGELOG) for n in deltas]


@given(numbers, numbers, st.integers(0, LAST))
def test_what_is_replayed_leads_from_the_newest_snapshot_to_the_version(
    snapshots: set[int], deltas: set[int], version: int
) -> None:
    found = chain(stored(snapshots, deltas), version)

    at = version
    while at not in snapshots and at > 0:  # back to something whole
        at -= 1
    assert (found.snapshot.file.version.number if found.snapshot else 0) == at
    replayed = [one.file.version.number for one in found.replayed]
    assert sorted([*replayed, *found.missing]) == list(range(at + 1, version + 1))
    assert replayed == sorted(set(replayed) & deltas)
    assert not deltas.intersection(found.missing)
    assert found.extent == version - at
    assert found.replay_bytes == 10 * sum(replayed)


@given(numbers, numbers)
def test_versions_beyond_the_last_commit_change_nothing(snapshots: set[int], deltas: set[int]) -> None:
    below = [file for file in stored(snapshots, deltas) if file.file.version.number <= LAST]

    assert chain(stored(snapshots, deltas), LAST) == chain(below, LAST)


@given(st.sets(st.integers(1, LAST)), st.sets(st.integers(1, LAST)), st.integers(1, LAST))
def test_a_lineage_says_the_same_as_numbers_where_there_was_one_attempt(
    snapshots: set[int], deltas: set[int], version: int
) -> None:
    line = [Version(number, f"id{number}") for number in range(1, version + 1)]
    files = [sized(n, Part.ZIP, f"id{n}") for n in snapshots] + [sized(n, Part.CHANGELOG, f"id{n}") for n in deltas]
    by_lineage, by_numbers = chain_by_lineage(files, line), chain(stored(snapshots, deltas), version)

    assert (by_lineage.extent, by_lineage.missing) == (by_numbers.extent, by_numbers.missing)
    assert by_lineage.replay_bytes == by_numbers.replay_bytes


def test_files_of_attempts_that_did_not_become_the_epoch_are_passed_over() -> None:
    files = [
        sized(1, Part.ZIP, "a"),
        sized(2, Part.CHANGELOG, "a"),
        sized(2, Part.ZIP, "b"),
        sized(3, Part.CHANGELOG, "a"),
        sized(3, Part.CHANGELOG, "b"),
    ]
    found = chain_by_lineage(files, [Version(1, "a"), Version(2, "a"), Version(3, "a")])

    assert found.snapshot == files[0]
    assert found.replayed == (files[1], files[3])


def test_a_lineage_whose_beginning_is_gone_misses_all_versions_before_it() -> None:
    found = chain_by_lineage([sized(5, Part.CHANGELOG, "a")], [Version(4, "a"), Version(5, "a")])

    assert found.missing == (1, 2, 3, 4)
