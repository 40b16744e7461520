"""Digests of what an epoch reads: do two of them mean the same rows? Pure: no I/O, no clock.

``offsets/N`` does not always identify rows. A Kafka offset does; a file source writes a counter there, and lists the
files in a log of its own. So a digest has three parts, ``v2:<plain>:<proof>:<whole>``:

=========  =====================================================================================================
plain      of the version, the watermark and the sources' offsets; before version 2 there was only this part
proof      ``=``: the offsets alone identify the rows. A digest: of the entries in the sources' own logs. ``-``: a
           source keeps no log (socket, memory), or it could not be read. After the first two there may be ``.`` and a
           digest of the offsets at which the epoch begins: ``plain`` only says where it ends
whole      of all bytes of ``offsets/N``. The same in a replay by Spark; different in an epoch that is planned again,
           because its time is part of them
=========  =====================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

VERSION = "v2"
BY_ITSELF = "="
UNKNOWN = "-"
BEGINS = "."


class Match(Enum):
    """Whether a replayed epoch holds the same rows as before."""

    SAME = "the same rows"
    DIFFERENT = "other rows"
    UNPROVEN = "perhaps other rows"


@dataclass(frozen=True, slots=True)
class Digest:
    """One digest, in parts. Older versions wrote only `plain`."""

    plain: str
    proof: str = ""
    whole: str = ""

    @property
    def kind(self) -> str:
        """The proof without where the epoch begins."""
        return self.proof.partition(BEGINS)[0]

    @property
    def begin(self) -> str:
        """Where the epoch begins; empty if that is not known."""
        return self.proof.partition(BEGINS)[2]

    @property
    def is_old(self) -> bool:
        return not self.proof

    def __str__(self) -> str:
        return self.plain if self.is_old else f"{VERSION}:{self.plain}:{self.proof}:{self.whole}"

    @staticmethod
    def parse(text: str) -> Digest:
        """A digest from its text; a text without the version is one of the old kind.

        >>> Digest.parse("v2:ab:=:cd").proof, Digest.parse("ab").is_old
        ('=', True)
        """
        version, *parts = text.split(":")
        return Digest(*parts) if version == VERSION and len(parts) == 3 and all(parts) else Digest(text)


def compare(recorded: str, now: str) -> Match:
    """Compare what an epoch read when it was written with what it reads now.

    >>> compare("v2:ab:=:01", "v2:ab:=:02"), compare("v2:ab:-:01", "v2:ab:-:02")
    (<Match.SAME: 'the same rows'>, <Match.UNPROVEN: 'perhaps other rows'>)
    """
    if recorded == now:
        return Match.SAME
    before, after = Digest.parse(recorded), Digest.parse(now)
    if before.plain != after.plain:
        return Match.DIFFERENT
    if before.is_old or after.is_old:
        return Match.SAME if BY_ITSELF in (before.kind, after.kind) else Match.UNPROVEN
    if UNKNOWN in (before.kind, after.kind):
        return Match.SAME if before.whole == after.whole else Match.UNPROVEN
    if before.begin and after.begin and before.begin != after.begin:
        return Match.DIFFERENT
    return Match.SAME if before.kind == after.kind else Match.DIFFERENT


def is_old(recorded: str) -> bool:
    """Whether an older epochal wrote it, without the sources' logs."""
    return Digest.parse(recorded).is_old


def why_not_provable(recorded: str | None, now: str | None) -> str | None:
    """Why an epoch that is planned again cannot be proven to hold the same rows; None if it can.

    `now` is the digest of any epoch that the checkpoint still has: it shows what kind of sources the query reads.
    """
    if recorded is None:
        return "it was so long ago that its source offsets are no longer recorded"
    before = Digest.parse(recorded)
    if before.kind == UNKNOWN:
        return "its source keeps no log of what it read"
    if before.is_old and (now is None or Digest.parse(now).kind != BY_ITSELF):
        return "an older epochal wrote it and did not record which files it read"
    return None
