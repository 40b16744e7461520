"""What one look at a stream shows of the driver that runs it. Pure, but for the look at the processes of this machine.

On the same machine the process table tells at once that a driver is gone. Elsewhere nothing does: only that it writes
no more live files, which `judging` measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from epochal.txn import errors
from epochal.txn.live import Live, LiveState
from epochal.txn.process import Process, Running
from epochal.txn.records import GenerationStarted
from epochal.txn.retirement import retirement_of

# Errors that end a query and that another driver, or another try, may not meet. Any other error of epochal's would be
# met again; an error that is not epochal's may be of the process or of the machine.
PASSING = frozenset({"FencedOut", "NotSettled", "SettlingFailed", "SparkGone", "TwoDrivers"})


UNKNOWN = Process()


class Leader(Enum):
    """How the newest driver of a stream stands."""

    NOBODY = "nobody"  # no driver has started the stream yet
    RUNS = "runs"  # nothing says that it has ended
    GONE = "gone"  # its process, or its JVM, is gone, and it has not said that its query had ended
    FAILED = "failed"  # its query ended by an error that another driver may not meet
    REFUSED = "refused"  # its query ended by an error that any driver would meet: somebody has to choose, or to mend
    ENDED = "ended"  # its query has ended in order: it was stopped, or has read everything
    FENCED = "fenced"  # a command has stopped it
    RETIRED = "retired"  # the stream is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one look shows."""

    leader: Leader
    generation: int = 0  # the newest; 0 if there is none
    start: str = ""  # the random id of its start
    sign: int | None = None  # the number of its last live file; None if none was seen
    is_begun: bool = False  # Spark has given the query its id
    jvm_lives: bool = False  # its Python process is gone, and its JVM is still there
    process: Process = UNKNOWN
    reason: str = ""  # of an error that ended the query


def see(
    latest: GenerationStarted | None,
    live: tuple[int, Live] | None,
    found: Callable[[Process], Running],
) -> Sight:
    """The newest driver, by its start, its last live file with the file's number, and the process table.

    The process table must have been read before the live file: a driver writes its last file and then ends.
    """
    if latest is None:
        return Sight(leader=Leader.NOBODY)
    sign, own = live if live is not None and live[1].start == latest.start else (None, None)
    process = own.process if own is not None else latest.driver.process
    leader, reason = _leader(latest, own, found)
    return Sight(
        leader=leader,
        generation=latest.generation,
        start=latest.start,
        sign=sign,
        is_begun=True,
        jvm_lives=own is not None and own.jvm is not None and found(own.jvm) is Running.YES,
        process=process,
        reason=reason,
    )


def _leader(latest: GenerationStarted, own: Live | None, found: Callable[[Process], Running]) -> tuple[Leader, str]:
    if retirement_of(latest) is not None:
        return Leader.RETIRED, ""
    if latest.driver.by_command:
        return Leader.FENCED, ""
    if own is not None and own.state is LiveState.ENDED:
        if own.refused is None:
            return Leader.ENDED, ""
        leader = Leader.FAILED if is_passing(own.refused.error) else Leader.REFUSED
        return leader, f"{own.refused.error}: {own.refused.reason}"
    process = own.process if own is not None else latest.driver.process
    if found(process) is Running.NO:
        return Leader.GONE, ""
    if own is not None and own.jvm is not None and found(own.jvm) is Running.NO:
        return Leader.GONE, ""
    return Leader.RUNS, ""


def is_passing(error: str) -> bool:
    """Whether another driver may not meet an error, by the name of its class.

    >>> is_passing("SparkGone"), is_passing("StreamingQueryException"), is_passing("Rewound")
    (True, True, False)
    """
    found = getattr(errors, error, None)
    is_ours = isinstance(found, type) and issubclass(found, errors.EpochalError)
    return error in PASSING or not is_ours
