"""The loop of a standby: look, judge, wait; and take over when its turn comes. Knows no Spark.

Between the judgement and the claim this process may be suspended for any time. So the claim names the start that was
given up, and fails if another driver has started since; and the stream is looked at once more right before it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from epochal.spark_plugins.standby.judging import Heard, Held, Judgement, Rules, Turn, judge, with_lease
from epochal.spark_plugins.standby.looking import Lookout
from epochal.spark_plugins.standby.notices import Notices
from epochal.spark_plugins.standby.sight import Sight
from epochal.txn import failpoints
from epochal.txn.errors import FencedOut, Overtaken

log = logging.getLogger("epochal")

LOOK = 0.25  # seconds between two looks at the processes of this machine
FILES = 1.0  # seconds between two looks at files, unless they are local

Result = TypeVar("Result")

failpoints.register("standby", {"takeover": "a standby that has seen its turn claims the next generation"})


class Lease(Protocol):
    """A lease that is kept outside of the checkpoint."""

    def held(self) -> tuple[Held, str]:
        """Who has it, and the id of the start that had it last. OSError if that cannot be found out."""

    def take(self) -> bool:
        """Take it if it is free; True if this process has it. OSError if that cannot be found out."""

    def give_back(self) -> None:
        """Let another take it."""


@dataclass(kw_only=True)
class Watch:
    """One standby of one stream, until it has taken over or left."""

    lookout: Lookout
    rules: Rules
    notices: Notices | None = None
    lease: Lease | None = None
    is_stopped: Callable[[], bool] = lambda: False
    on_judgement: Callable[[Judgement], None] | None = None  # called when the answer changes
    between: float = LOOK  # seconds between two looks at files
    ticks: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _heard: Heard = field(default_factory=Heard)
    _last: tuple[Turn, str, str] | None = None

    def stand_by(self, take_over: Callable[[Sight], Result]) -> Result | None:
        """Wait for our turn, and take over. None if there will be none: the stream is over, or somebody stopped us.

        `take_over` claims the next generation instead of the start that was seen. It raises Overtaken if another
        driver was faster: then we wait for that one.
        """
        try:
            self.lookout.check()
            while (judgement := self._wait()) is not None and judgement.turn is Turn.TAKE_OVER:
                failpoints.hit("before-takeover")
                again = self._look(afresh=True)
                is_same = again is not None and (again.turn, again.sight.start) == (
                    judgement.turn,
                    judgement.sight.start,
                )
                if is_same and self._take():
                    try:
                        result = take_over(judgement.sight)
                    except (Overtaken, FencedOut) as fault:
                        log.info("another driver was faster: %s", fault)
                        self._give_back()
                    except BaseException:
                        self._give_back()
                        raise
                    else:
                        failpoints.hit("after-takeover")
                        return result
                self.sleep(LOOK)
            return None
        finally:
            if self.notices is not None:
                self.notices.remove()

    def _wait(self) -> Judgement | None:
        """The judgement that ends the waiting; None if somebody stopped us."""
        looked: float | None = None
        while not self.is_stopped():
            now = self.ticks()
            if looked is None or now - looked >= self.between or self.lookout.is_gone():
                looked = now
                judgement = self._look(afresh=False)
                if judgement is not None and judgement.turn is not Turn.WAIT:
                    return judgement
            if self.notices is not None:
                self.notices.renew(ready=True)
            self.sleep(LOOK)
        return None

    def _look(self, *, afresh: bool) -> Judgement | None:
        """What a look shows; None if the files cannot be read now. Time without a look does not count."""
        now = self.ticks()  # first: what takes long between here and the answer makes us too patient, not too hasty
        try:
            sight = self.lookout.look(afresh=afresh)
            self._heard, judgement = judge(self.rules, self._heard, sight, now)
            if self.lease is not None:
                judgement = with_lease(judgement, *self.lease.held())
        except OSError as fault:
            log.debug("a standby could not look", extra={"error": repr(fault)})
            return None
        known = (judgement.turn, judgement.why, judgement.sight.start)
        if known != self._last:
            self._last = known
            if self.on_judgement is not None:
                self.on_judgement(judgement)
        return judgement

    def _take(self) -> bool:
        """The lease outside of the checkpoint, if there is one; True if this process has it."""
        try:
            return self.lease is None or self.lease.take()
        except OSError as fault:
            log.debug("the lease was not taken", extra={"error": repr(fault)})
            return False

    def _give_back(self) -> None:
        if self.lease is not None:
            self.lease.give_back()
