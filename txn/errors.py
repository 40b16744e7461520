"""What can go wrong, and what to do about it.

The class says what to do, the message what happened and what follows::

    EpochalError
    ├── OptionError            fix the options; nothing was written
    ├── Refused                choose: the message spells out what can be done
    │   ├── ForeignTarget      another stream wrote the target
    │   ├── Rewound            checkpoint and store disagree about the last epoch
    │   ├── JournalLost        Spark checkpointed an epoch that the journal has no record of
    │   ├── OffsetsChanged     an epoch was replayed with other source offsets
    │   ├── TwoJournals        a checkpoint was copied: two journals write one stream
    │   └── UnsupportedQuery   a query whose trigger or source breaks the protocol's order
    ├── FencedOut              stop: another driver has taken over
    ├── JournalCorrupt         a record is torn, foreign or newer: restore or upgrade
    ├── DataLost               staged data of a decided epoch is gone: investigate before going on
    ├── BadRows                rows or columns that a sink cannot hold; nothing of the epoch was written
    ├── NotSettled             a store does not answer; the epoch is safe and will be committed later
    └── SettlingFailed         settling stopped with an unexpected error; nothing is lost, report it

During a commit, any other exception of a participant (a refused connection, a full disk) counts as
"the store does not answer", and the commit is retried. These errors are not retried. While an epoch
is staged, only `StoreAway` is retried: any other exception may be caused by the frame and ends the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal


class EpochalError(Exception):
    """The base class of all errors that epochal raises on purpose."""

    is_reported: bool = False  # whether observers have seen it: it passes several layers that report errors


class OptionError(EpochalError, ValueError):
    """Options that cannot work, all of them in one message."""

    def __init__(self, what: str, faults: Sequence[str]) -> None:
        self.what = what
        self.faults = tuple(faults)
        lines = "".join(f"\n  - {fault}" for fault in faults)
        super().__init__(f"{what}: {len(faults)} fault{'s' if len(faults) != 1 else ''}{lines}")


class Refused(EpochalError):
    """Continuing would lose or double rows; nothing was written."""


class ForeignTarget(Refused):
    """The target holds epochs of another stream."""


class Rewound(Refused):
    """The checkpoint, the journal and the store disagree about which epoch was last."""


class JournalLost(Refused):
    """Spark has checkpointed an epoch of which the journal has no record."""


class OffsetsChanged(Refused):
    """An epoch that was written before was replayed with other source offsets."""


class TwoJournals(Refused):
    """A checkpoint was copied, restored or moved: the target belongs to another journal of the same stream."""


class UnsupportedQuery(Refused):
    """The query does not keep the order of steps that the protocol requires."""


class FencedOut(EpochalError):
    """A newer generation runs this query; this one stops."""


class JournalCorrupt(EpochalError):
    """A journal record cannot be trusted."""


class DataLost(EpochalError):
    """The data of a decided epoch is neither staged nor visible."""


class BadRows(EpochalError, ValueError):
    """Rows that the sink cannot hold."""


class NotSettled(EpochalError):
    """A decided epoch waits for a store that does not answer."""


class SettlingFailed(EpochalError):
    """Settling stopped with an unexpected error. A retry would not help."""


class StoreAway(OSError):
    """A store does not answer, or not yet: wait and try again."""

    sink: str = ""  # which one, if it is a sink's store


class CommitFailed(Exception):
    """A participant could not commit or abort now. Try again."""

    def __init__(
        self, sink: str, epoch: int, cause: Exception, step: Literal["commit", "abort", "roll"] = "commit"
    ) -> None:
        super().__init__(f"sink {sink!r}, epoch {epoch}: {type(cause).__name__}: {cause}")
        self.sink, self.epoch, self.cause, self.step = sink, epoch, cause, step
