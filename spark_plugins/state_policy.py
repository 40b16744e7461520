"""How much a recovery of the sinks' state may cost, as the user says it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from epochal.sinks.config import checks
from epochal.sinks.config.declaring import CheckedOptions, Option, declared
from epochal.sinks.config.options import Faults
from epochal.sinks.config.quantities import parse_duration, parse_share
from epochal.txn.state.policy import Knobs, Policy


@declared
@dataclass(frozen=True, kw_only=True)
class StatePolicy(CheckedOptions):
    """When what sinks keep over epochs is folded: by an objective, or by the knobs of a log cleaner.

    >>> StatePolicy(recovery="500 ms").policy.recovery
    0.5
    >>> StatePolicy(cpu="2 %").policy.cpu
    0.02
    """

    recovery: Annotated[
        float | str | timedelta | None,
        Option(
            'objective: a start restores the state in this time: seconds, or `"500 ms"`',
            check=checks.parsed(parse_duration),
        ),
    ] = None
    cpu: Annotated[
        float | str | None,
        Option(
            'objective: the shortest recovery for this share of a processor: `0.02`, or `"2 %"`',
            check=checks.parsed(parse_share),
        ),
    ] = None
    dirty_ratio: Annotated[
        float | str | None,
        Option(
            "without an objective: merge all segments when this part of their entries is newer than the last merge",
            check=checks.parsed(parse_share),
            shown_default="`0.5`",
        ),
    ] = None
    segment_age: Annotated[
        float | str | timedelta | None,
        Option(
            "fold changes at this age, even if few epochs have passed",
            check=checks.parsed(parse_duration),
            shown_default="every 20 epochs",
        ),
    ] = None
    retention: Annotated[
        float | str | timedelta | None,
        Option(
            "how long a merged segment says that a key was deleted",
            check=checks.parsed(parse_duration),
            shown_default="not at all",
        ),
    ] = None

    def check_together(self, faults: Faults) -> None:
        given = [name for name in ("recovery", "cpu", "dirty_ratio") if getattr(self, name) is not None]
        faults.check(len(given) < 2, f"{' and '.join(given)}: give one of them, it decides the others")

    @property
    def policy(self) -> Policy:
        """The same for the protocol, with all quantities as numbers."""
        knobs = Knobs()
        return Policy(
            knobs=Knobs(
                dirty_ratio=knobs.dirty_ratio if self.dirty_ratio is None else parse_share(self.dirty_ratio),
                segment_age=knobs.segment_age if self.segment_age is None else parse_duration(self.segment_age),
                retention=knobs.retention if self.retention is None else parse_duration(self.retention),
            ),
            recovery=None if self.recovery is None else parse_duration(self.recovery),
            cpu=None if self.cpu is None else parse_share(self.cpu),
        )
