"""The register of claims: what older versions left is read, what is torn is refused, and who slept has no say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epochal.sinks.storage.register import KEEP, Register
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, LocalFiles
from epochal.txn.model import Claim

OURS, THEIRS = "1f0c9a2e-0000", "2b0c9a2e-0000"


def claim(start: str, *, lineage: str = OURS, replaces: tuple[str, ...] = ()) -> Claim:
    return Claim(lineage=lineage, generation=1, start=start, journal="/j", replaces=replaces, driver={"pid": 7})


@pytest.fixture
def register(tmp_path: Path) -> Register:
    return Register(LocalFiles(sync=False), str(tmp_path))


def test_what_older_versions_enrolled_is_read_and_carried_over(register: Register, tmp_path: Path) -> None:
    for lineage, adopts in ((OURS, None), (THEIRS, OURS)):
        old = {"format": 1, "lineage": lineage, "adopts": adopts}
        (tmp_path / f"{lineage}.json").write_text(json.dumps(old))
    before = register.read()
    assert register.claim(claim("a", lineage=THEIRS), version=0)
    after = register.read()

    assert (before.version, before.adopted_by(OURS), before.holder(THEIRS)) == (0, THEIRS, None)
    assert after.holder(OURS) == after.claims[THEIRS]
    assert (after.adopted_by(OURS), sorted(after.claims)) == (THEIRS, [OURS, THEIRS])


def test_versions_that_nobody_needs_are_removed(register: Register, tmp_path: Path) -> None:
    (tmp_path / f"{TEMPORARY}x").write_bytes(b"half")
    for number in range(10):
        assert register.claim(claim(str(number)), version=number)

    assert len(list(tmp_path.iterdir())) == KEEP
    assert Register(LocalFiles(), str(tmp_path)).read().claims[OURS] == claim("9")


def test_one_that_slept_until_its_version_was_removed_claims_nothing(tmp_path: Path) -> None:
    class Sleeper(LocalFiles):
        """Between looking and writing, others claim the target again and again."""

        def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
            for number in range(1, 10):
                assert Register(LocalFiles(), str(tmp_path)).claim(claim(f"b{number}"), version=number)
            return super().create(path, data, durable=durable)

    assert Register(LocalFiles(), str(tmp_path)).claim(claim("b"), version=0)
    slept = Register(Sleeper(), str(tmp_path)).claim(claim("a"), version=1)

    assert not slept
    assert Register(LocalFiles(), str(tmp_path)).read().claims[OURS] == claim("b9")


def test_a_claim_is_taken_back_from_what_others_wrote_after_it(register: Register) -> None:
    ours = claim("a", replaces=(THEIRS,))
    register.claim(claim("x", lineage=THEIRS), version=0)
    register.claim(ours, version=1)
    register.claim(claim("z", lineage="3c"), version=2)
    register.withdraw(ours)
    register.withdraw(ours)
    found = register.read()

    assert sorted(found.claims) == [THEIRS, "3c"]
    assert found.adopted_by(THEIRS) is None


def test_a_claim_that_another_start_has_followed_is_not_taken_back(register: Register) -> None:
    register.claim(claim("a"), version=0)
    register.claim(claim("b"), version=1)
    register.withdraw(claim("a"))

    assert register.read().claims[OURS] == claim("b")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-20],
        lambda data: data.replace(b'"start": "a"', b'"start": "b"'),
        lambda data: b"{}",
        lambda data: b"[]",
        lambda data: data.replace(b'"format": 2', b'"format": 3'),
    ],
    ids=["torn", "changed", "empty", "a list", "newer"],
)
def test_a_claim_that_cannot_be_trusted_is_an_error_that_names_it(
    register: Register, tmp_path: Path, damage: object
) -> None:
    register.claim(claim("a"), version=0)
    path = tmp_path / "claim-000000000001.json"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]

    with pytest.raises(JournalCorrupt, match=r"claim-000000000001.json"):
        Register(LocalFiles(), str(tmp_path)).read()
