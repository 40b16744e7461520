"""What tests of the protocol and of participants are made of. Standard library only.

`DirectoryParticipant` is the smallest honest participant, `StandInQuery` keeps Spark's order of
checkpoint files without Spark, `contract` is the suite that any participant must pass, `processes` runs
calls at the same time, `servers` runs real stores.
"""

from epochal.testing.directory import DirectoryParticipant
from epochal.testing.standin import ConcurrentUpdate, StandInQuery

__all__ = ["ConcurrentUpdate", "DirectoryParticipant", "StandInQuery"]
