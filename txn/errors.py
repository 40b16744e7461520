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
    │   ├── SinkUnavailable    a command cannot use a sink here: install its package, or trust its host
    │   └── UnsupportedQuery   a query whose trigger or source breaks the protocol's order
    ├── FencedOut              stop: another driver has taken over
    ├── TwoDrivers             Spark stopped this query because of another driver's: end that one, start this again
    ├── JournalCorrupt         a record is torn, foreign or newer: restore or upgrade
    ├── DataLost               staged data of a decided epoch is gone: investigate before going on
    ├── BadRows                rows or columns that a sink cannot hold; nothing of the epoch was written
    ├── CutGone                a cut can no longer be read: take a newer one
    ├── NotSettled             a store does not answer; the epoch is safe and will be committed later
    ├── SparkGone              Spark's JVM has died: start the driver again; nothing is lost
    └── SettlingFailed         settling stopped with an unexpected error; nothing is lost, report it

During a commit, any other exception of a participant (a refused connection, a full disk) counts as
"the store does not answer", and the commit is retried. These errors are not retried. While an epoch
is staged, only `StoreAway` is retried: any other exception may be caused by the frame and ends the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

# What to do about DataLost. No command can bring the rows back: Spark has checkpointed their epoch.
PUT_BACK = "Put it back from a copy, or restore checkpoint and target together from one, and start the query again"


class EpochalError(Exception):
    """The base class of all errors that epochal raises on purpose."""

    parts: tuple[EpochalError, ...] = ()  # of an error that tells several

    is_reported: bool = False  # whether observers have seen it: it passes several layers that report errors


class OptionError(EpochalError, ValueError):
    """Options that cannot work, all of them in one message."""

    def __init__(self, what: str, faults: Sequence[str]) -> None:
        self.what = what
        self.faults = tuple(faults)
        lines = "".join(f"\n  - {fault}" for fault in faults)
        super().__init__(f"{what}: {len(faults)} fault{'s' if len(faults) != 1 else ''}{lines}")


class Refused(EpochalError):
    """Continuing would lose or double rows; nothing was written.

    `offers` are the options of EpochWriter that answer it, each with the token to give: ``("adopt", "1f0c9a2e@41")``.
    """

    offers: tuple[tuple[str, str], ...] = ()


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


class SinkUnavailable(Refused):
    """This process cannot use a sink that only the journal names: another process might."""


class UnsupportedQuery(Refused):
    """The query does not keep the order of steps that the protocol requires."""


class FencedOut(EpochalError):
    """A newer generation runs this query; this one stops."""


class TwoDrivers(EpochalError):
    """Spark stopped this query because another driver wrote to its checkpoint at the same time. Nothing is lost."""


class JournalCorrupt(EpochalError):
    """A journal record cannot be trusted."""


class DataLost(EpochalError):
    """The data of a decided epoch is neither staged nor visible."""


class BadRows(EpochalError, ValueError):
    """Rows that the sink cannot hold."""


class CutGone(EpochalError):
    """What a store held after an epoch can no longer be read from it."""


class NotSettled(EpochalError):
    """A decided epoch waits for a store that does not answer."""


class SparkGone(EpochalError):
    """Spark's JVM has ended while the driver's Python process lives."""


class SettlingFailed(EpochalError):
    """Settling stopped with an unexpected error. A retry would not help."""


class StoreAway(OSError):
    """A store does not answer, or not yet: wait and try again."""

    sink: str = ""  # which one, if it is a sink's store


def all_in_one(faults: Sequence[EpochalError]) -> EpochalError:
    """One error that tells all of them, of the class of the first; the only one as it is.

    >>> print(all_in_one([Refused("a: 1. Nothing was written"), Refused("b: 2. Nothing was written")]))
    refused for 2 reasons:
      - a: 1. Nothing was written
      - b: 2. Nothing was written
    """
    single = [one for fault in faults for one in fault.parts or (fault,)]
    faults = list({str(fault): fault for fault in single}.values())  # two checks may find the same
    if len(faults) == 1:
        return faults[0]
    kind = type(faults[0])
    lines = "".join("\n  - " + str(fault).replace("\n", "\n    ") for fault in faults)
    offers = tuple(dict.fromkeys(offer for fault in faults for offer in getattr(fault, "offers", ())))
    answers = []
    for option in ("adopt", "new"):
        tokens = [token for name, token in offers if name == option]
        answers += [f"{option}={tokens!r}"] if len(tokens) > 1 else []
    together = f"\nSeveral answers are given together: {', '.join(answers)}" if answers else ""
    text = f"refused for {len(faults)} reasons:{lines}{together}"
    one = Refused(text) if issubclass(kind, OptionError) else kind(text)
    if isinstance(one, Refused):
        one.offers = offers
    one.parts, one.__cause__ = tuple(faults), faults[0].__cause__
    return one


class Overtaken(Exception):
    """Another driver has started since the one that this start was to replace. Look again: it may run."""


class CommitFailed(Exception):
    """A participant could not commit or abort now. Try again."""

    def __init__(
        self, sink: str, epoch: int, cause: Exception, step: Literal["commit", "abort", "roll"] = "commit"
    ) -> None:
        super().__init__(f"sink {sink!r}, epoch {epoch}: {type(cause).__name__}: {cause}")
        self.sink, self.epoch, self.cause, self.step = sink, epoch, cause, step
