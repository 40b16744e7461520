"""The exit codes of the command line. They are part of its interface: monitoring scripts depend on them."""

from __future__ import annotations

from epochal.txn.errors import EpochalError, NotSettled

WELL = 0
UNREACHABLE = 1  # a store or the checkpoint cannot be reached or checked from here
REFUSED = 2  # the command was refused, or a start of the query would be
DIFFERS = 3  # `audit` only
UNSETTLED = 4  # `status` only: a decided epoch is not visible everywhere, and no driver is about to show it; or held
DEAD = 5  # `status` only: the driver died
USAGE = 64  # as EX_USAGE of sysexits.h: the command line itself is wrong, so it says nothing about the stream
INTERRUPTED = 130

MEANINGS = {
    WELL: "well, or done; of audit: nothing differs, also if not all of it is provable",
    UNREACHABLE: "a store cannot be reached from here",
    REFUSED: "refused; of status: a start would be, or the driver stopped by an error",
    DIFFERS: "audit found a difference",
    UNSETTLED: "status: the stream is held, or checkpointed epochs are not visible yet",
    DEAD: "status: the driver is dead",
    USAGE: "wrong usage",
    INTERRUPTED: "interrupted",
}


def code_of(fault: Exception) -> int:
    """The exit code of a command that ends with an error."""
    return REFUSED if isinstance(fault, EpochalError) and not isinstance(fault, NotSettled) else UNREACHABLE
