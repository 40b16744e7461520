"""What happens to a stream, as typed events, for `EpochWriter(observers=[...])`.

An observer is any function of one event. It is called by the thread that made the step, between two steps of the
protocol: it must return at once. An observer that raises is reported and gets no further event; the stream goes on.

>>> from epochal.events import EpochCommitted, Event
>>> def watch(event: Event) -> None:
...     if isinstance(event, EpochCommitted):
...         print(f"{event.stream}: epoch {event.epoch} is in {event.sink}, {event.rows} rows")
"""

from epochal.txn.events import (
    AttemptAborted,
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochSkipped,
    EpochStaged,
    Event,
    Observer,
    PartsOpen,
    PartsRolled,
    RecoveryMeasured,
    StandbyEnded,
    StandbySight,
    StandbyWaits,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
    TakeoverBegun,
    TakeoverEnd,
    TakeoverEnded,
)
from epochal.txn.model import Outcome

__all__ = [
    "AttemptAborted",
    "EpochBegun",
    "EpochCommitted",
    "EpochDecided",
    "EpochDone",
    "EpochPrepared",
    "EpochSkipped",
    "EpochStaged",
    "Event",
    "Observer",
    "Outcome",
    "PartsOpen",
    "PartsRolled",
    "RecoveryMeasured",
    "StandbyEnded",
    "StandbySight",
    "StandbyWaits",
    "StreamEnded",
    "StreamHeld",
    "StreamRefused",
    "StreamResumed",
    "StreamStarted",
    "TakeoverBegun",
    "TakeoverEnd",
    "TakeoverEnded",
]
