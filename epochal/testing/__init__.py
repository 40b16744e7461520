"""Helpers for tests of the protocol and of participants. `contract` needs pytest; the rest the standard library.

`DirectoryParticipant` is the smallest complete participant. `StandInQuery` writes checkpoint files in Spark's
order, without Spark. `contract` is the suite that any participant must pass. `processes` runs calls
concurrently. `servers` runs real stores.
"""

from epochal.testing.directory import DirectoryParticipant
from epochal.testing.standin import ConcurrentUpdate, StandInQuery

__all__ = ["ConcurrentUpdate", "DirectoryParticipant", "StandInQuery"]
