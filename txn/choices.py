"""What the user chose for a state that a start refuses: `adopt=` or `new=`, by token. Pure: no I/O, no clock.

Every refusal names a *token*, ``<lineage>@<epoch>``: the state that the guard saw. Passing the token back as ``adopt=``
or ``new=`` accepts just that state, so a choice left in the code accepts nothing else later.

``adopt``  what the sink holds counts as written by this stream: go on after it.
``new``    what the sink holds belongs to another stream: write every epoch from here on beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from epochal.txn.errors import EpochalError, Refused
from epochal.txn.model import NO_EPOCH, lineage_tag


@dataclass(frozen=True, slots=True)
class Choices:
    """The tokens that the user passed."""

    adopt: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    exclusive: str = ""  # a sink that only one stream may write to: `new` is not offered then


class Choice(Enum):
    """What the user chose."""

    ADOPT = "adopt"
    NEW = "new"


def tokens(value: str | Collection[str] | None) -> frozenset[str]:
    """Tokens from what a user passes: one, several or none."""
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, str) else value)


def token_of(lineage: str, epoch: int, generation: int | None = None) -> str:
    """The token of a state; with a generation, of the start that holds the target."""
    holder = "" if generation is None else f".g{generation}"
    return f"{lineage_tag(lineage)}{holder}@{epoch if epoch > NO_EPOCH else 'none'}"


def require_choice(
    fault: EpochalError,
    token: str,
    choices: Choices,
    *,
    adopt: str | None,
    new: str | None,
    why_no_adopt: str | None = None,
) -> Choice:
    """The user's choice for this token; without one, raises the fault with the choices spelled out.

    `adopt` and `new` say what each choice does; None if it is not offered.
    """
    if why_no_adopt:
        adopt = None
        fault = type(fault)(f"{fault}. adopt= is not offered: {why_no_adopt}")
    if adopt and token in choices.adopt:
        return Choice.ADOPT
    if new and token in choices.new and not choices.exclusive:
        return Choice.NEW
    offered = (("adopt", adopt), ("new", "" if choices.exclusive else new))
    options = "".join(f"\n  {name}={token!r}: {text}" for name, text in offered if text)
    choose = f" Choose, by an option of EpochWriter:{options}" if options else ""
    exclusive = (
        f"{chr(10) if options else ' '}Only one stream may write to sink {choices.exclusive!r}, so new= is not offered"
        "; to start over, write to another target"
    )
    refused = type(fault)(f"{fault}. Nothing was written.{choose}{exclusive if choices.exclusive and new else ''}")
    if isinstance(refused, Refused):
        refused.offers = tuple((name, token) for name, text in offered if text)
    raise refused
