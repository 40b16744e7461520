"""How a stream stands, in one sentence, with the one command that helps and an exit code. Pure: facts in, verdict out.

The most urgent fact comes first: a start would be refused, the driver is dead, the stream is held, a store cannot be
reached. ``docs/operations.md`` has the sentences and what to do as a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from epochal.cli import exit_codes
from epochal.cli.text import listed
from epochal.txn.driver_facts import Retirement
from epochal.txn.durations import lasting
from epochal.txn.live import LiveHeld, LiveRefusal, LiveState
from epochal.txn.liveness import DriverStatus, Liveness
from epochal.txn.unpublished import Unpublished


class Standing(Enum):
    """How a stream stands."""

    RUNNING = "running"
    HELD = "held"
    STOPPED = "stopped"  # the query has ended; nothing is lost by waiting
    FAILED = "failed"  # the driver stopped by an error
    DEAD = "dead"
    UNKNOWN = "unknown"  # nothing tells whether a driver runs
    REFUSED = "refused"  # a start would be refused
    RETIRED = "retired"  # a person has said that the stream is over


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the verdict depends on."""

    driver: DriverStatus
    now: float
    recover: str  # the command that finishes what is decided
    roll: str = "epochal roll CHECKPOINT"  # the command that publishes what is open
    done: int = -1  # the last epoch that every sink has committed
    unpublished: Unpublished | None = None  # committed rows in parts that are still open
    uncounted: tuple[str, ...] = ()  # sinks that may have more of them, which could not be looked up here
    committed: int = -1  # the last epoch that Spark has checkpointed
    unsettled: tuple[int, ...] = ()  # epochs that are decided and not done
    missing_in: tuple[str, ...] = ()  # the sinks that do not show them
    in_doubt: tuple[int, ...] = ()  # epochs that are prepared and wait for Spark's commits/N
    under_way: int | None = None  # the epoch that Spark has begun and nobody has prepared
    staging: bool = False  # of that epoch: a sink has begun to stage it
    refusal: str = ""  # why a start would be refused
    retired: Retirement | None = None
    origin: str = ""  # which savepoint the newest start, a command, has made the stream of
    unreachable: Mapping[str, str] = field(default_factory=dict)  # sink -> error
    not_here: Mapping[str, str] = field(default_factory=dict)  # sink -> why this process cannot ask it

    @property
    def all_asked(self) -> bool:
        """Whether every sink has answered. If not, the journal alone says what is visible."""
        return not (self.unreachable or self.not_here or self.uncounted)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer."""

    standing: Standing
    text: str
    code: int
    command: str | None = None  # the one to run, if one helps

    @property
    def line(self) -> str:
        """The first line of `epochal status`."""
        text = " ".join(self.text.splitlines())  # an error of a store may have several
        return f"{text}. Run `{self.command}`" if self.command else text


def judge(facts: Facts) -> Verdict:
    """How the stream stands."""
    if facts.retired is not None and not facts.unsettled:
        return Verdict(Standing.RETIRED, f"retired {facts.retired}; {_shown(facts)}", exit_codes.WELL)
    verdict = _standing(facts)
    unasked = [_of_sink(sink, "cannot be reached from here", why) for sink, why in facts.unreachable.items()]
    unasked += [_of_sink(sink, "was not checked", why) for sink, why in facts.not_here.items()]
    if facts.all_asked or verdict.standing in (Standing.REFUSED, Standing.HELD):
        return verdict
    code = verdict.code if verdict.code != exit_codes.WELL else exit_codes.UNREACHABLE
    return Verdict(verdict.standing, "; ".join([verdict.text, *unasked]), code, verdict.command)


def _of_sink(sink: str, what: str, why: str) -> str:
    """What is with a sink; most errors name it themselves.

    >>> _of_sink("out", "was not checked", "sink 'out': PostgreSQL at db:5432: no such user")
    "sink 'out' was not checked: PostgreSQL at db:5432: no such user"
    """
    return f"sink {sink!r} {what}: {why.removeprefix(f'sink {sink!r}: ')}"


def _standing(facts: Facts) -> Verdict:
    driver = facts.driver
    if facts.refusal:
        runs = f"the driver ({driver.name}) is alive, but " if driver.liveness is Liveness.ALIVE else ""
        text = f"REFUSED: {runs}a start would be refused: {facts.refusal}"
        return Verdict(Standing.REFUSED, text, exit_codes.REFUSED)
    match driver.liveness:
        case Liveness.ALIVE:
            return _running(facts)
        case Liveness.DEAD | Liveness.SILENT:
            return _dead(facts)
        case Liveness.ENDED | Liveness.NONE:
            return _stopped(facts)
        case _:
            return _unknown(facts)


def _running(facts: Facts) -> Verdict:
    driver, live = facts.driver, facts.driver.live
    if driver.is_stuck:
        text = (
            f"HELD: the driver ({driver.name}) is alive but has not reported for {lasting(driver.heartbeat or 0.0)}; "
            f"{_shown(facts)}. It is suspended or stuck, or cannot write beside its journal: look at its log"
        )
        return Verdict(Standing.HELD, text, exit_codes.UNSETTLED)
    if live is not None and live.waits_for is not None:
        text = f"taking over: the driver ({driver.name}) waits for {live.waits_for}, to end; {_shown(facts)}"
        return Verdict(Standing.RUNNING, text, exit_codes.WELL)
    if live is not None and live.held is not None:
        return _held(facts, live.held)
    if facts.unsettled and live is None:
        text = (
            f"unsettled: {_not_visible(facts)}. The driver ({driver.name}) is alive and finishes "
            f"{_them(facts.unsettled)}"
        )
        return Verdict(Standing.HELD, text, exit_codes.UNSETTLED)
    doing = ""
    if facts.unsettled:
        doing = f", epoch {listed(facts.unsettled)} is being committed"
    elif facts.in_doubt:
        doing = f", epoch {listed(facts.in_doubt)} waits for Spark's checkpoint"
    elif facts.under_way is not None:
        staging = facts.staging or (live is not None and live.state is LiveState.STAGING)
        doing = f", epoch {facts.under_way} is {'being staged' if staging else 'under way'}"
    when = f": {when}" if (when := _when_published(facts)) else ""
    return Verdict(
        Standing.RUNNING,
        f"running: {_shown(facts)}{when}{doing}; the driver ({driver.name}) is alive",
        exit_codes.WELL,
    )


def _held(facts: Facts, held: LiveHeld) -> Verdict:
    since = lasting(max(0.0, facts.now - held.since))
    if held.sink == "journal":
        what = f"HELD: the journal has not answered for {since}: {held.reason}"
        advice = "Bring its file system back"
    elif held.step != "stage" and facts.unsettled:
        what = f"HELD: sink {held.sink!r} has not shown {_epochs(facts.unsettled)} for {since}: {held.reason}"
        advice = "Start the store"
    else:
        epoch = "an epoch" if held.epoch is None else f"epoch {held.epoch}"
        what = f"HELD: sink {held.sink!r} has not taken {epoch} for {since}: {held.reason}"
        advice = "Start the store"
    retries = f"{advice}; the driver ({facts.driver.name}) retries by itself"
    return Verdict(Standing.HELD, f"{what.rstrip('.')}. {retries}", exit_codes.UNSETTLED)


def _dead(facts: Facts) -> Verdict:
    driver = facts.driver
    who = f"driver dead ({driver.name})"
    if driver.liveness is Liveness.SILENT:
        who = f"driver dead, it seems ({driver.name}: {driver.last_heard})"
    if facts.unsettled:
        return Verdict(Standing.DEAD, f"{who}: {_not_visible(facts)}", exit_codes.DEAD, facts.recover)
    rest = "Nothing is in doubt; start the query again when it should go on"
    if replayed := _to_be_replayed(facts):
        rest = "Start the query again"
    text = f"{who}: {replayed or _shown(facts)}. {rest}"
    if facts.unpublished is not None:
        text = f"{who}: {_and_later(facts)}. Start the query again; {_when_published(facts)}"
    return Verdict(Standing.DEAD, text, exit_codes.DEAD)


def _stopped(facts: Facts) -> Verdict:
    driver = facts.driver
    who = (
        "stopped"
        if driver.liveness is Liveness.ENDED
        else "stopped by a command (`epochal roll`, `gc --fence` or `retire`)"
    )
    refused = driver.live.refused if driver.live is not None else None
    if facts.origin and not facts.unsettled:
        text = f"{facts.origin}, and not started since: {_shown(facts)}. Start the query here"
        return Verdict(Standing.STOPPED, text, exit_codes.WELL)
    if facts.unsettled:
        who += _because(refused)
        return Verdict(Standing.STOPPED, f"{who}: {_not_visible(facts)}", exit_codes.UNSETTLED, facts.recover)
    if refused is not None:
        later = _and_later(facts) if facts.unpublished is not None else _to_be_replayed(facts) or _shown(facts)
        return Verdict(Standing.FAILED, f"STOPPED{_because(refused)}. {_capital(later)}", exit_codes.REFUSED)
    nothing = "nothing to do" if facts.all_asked and not _to_be_replayed(facts) else ""
    rest = _when_published(facts) or nothing
    text = "; ".join(filter(None, [f"{who} and settled: {_and_later(facts)}", rest]))
    return Verdict(Standing.STOPPED, text, exit_codes.WELL)


def _unknown(facts: Facts) -> Verdict:
    who = f"nothing tells from here whether the driver ({facts.driver.name}) runs: it writes no live file"
    if facts.unsettled:
        text = f"unsettled: {_not_visible(facts)}; {who}. If none runs, finish {_them(facts.unsettled)}"
        return Verdict(Standing.UNKNOWN, text, exit_codes.UNSETTLED, facts.recover)
    parts = [f"settled: {_and_later(facts)}", _when_published(facts), who]
    return Verdict(Standing.UNKNOWN, "; ".join(filter(None, parts)), exit_codes.WELL)


def _and_later(facts: Facts) -> str:
    """How far the stream has come, and what the next start replays."""
    return "; ".join(filter(None, [_shown(facts), _to_be_replayed(facts)]))


def _to_be_replayed(facts: Facts) -> str:
    """What becomes of an epoch that was under way; empty if there is none."""
    if facts.in_doubt:
        return (
            f"epoch {listed(facts.in_doubt)} is in doubt (staged, but not in Spark's commits/): the next start "
            "replays or finishes it"
        )
    if facts.under_way is None:
        return ""
    how = "being staged" if facts.staging else "under way"
    return f"epoch {facts.under_way} was {how}; the next start replays it"


def _because(refused: LiveRefusal | None) -> str:
    if refused is None:
        return ""
    return f" by {refused.error}: {refused.reason.rstrip('.')}"


def _not_visible(facts: Facts) -> str:
    are = "is" if len(facts.unsettled) == 1 else "are"
    if not facts.missing_in:
        return f"{_epochs(facts.unsettled)} {are} visible in every sink but not recorded as done"
    how = "checkpointed" if max(facts.unsettled) <= facts.committed else "decided"
    return f"{_epochs(facts.unsettled)} {are} {how} but not visible in {', '.join(map(repr, facts.missing_in))}"


def _epochs(numbers: Sequence[int]) -> str:
    return f"epoch{'' if len(numbers) == 1 else 's'} {listed(numbers)}"


def _them(numbers: Sequence[int]) -> str:
    return "it" if len(numbers) == 1 else "them"


def _shown(facts: Facts) -> str:
    """How far the stream has come. Rows in open parts are settled, but nobody can read them."""
    settled = f"epoch {facts.done} is settled everywhere" if facts.done >= 0 else ""
    others = ", ".join(map(repr, facts.uncounted))
    if facts.unpublished is not None:
        waits = f"{facts.unpublished} and cannot be read yet"
        more = f"; whether more wait in {others} was not checked" if others else ""
        return f"{settled}{', but ' if settled else ''}{waits}{more}"
    if others:
        return "; ".join(filter(None, [settled, f"whether rows wait in open parts of {others} was not checked"]))
    if facts.done < 0:
        return "no epoch is visible yet"
    return f"{'' if facts.all_asked else 'by the journal '}epoch {facts.done} is visible everywhere"


def _when_published(facts: Facts) -> str:
    """When the rows in open parts can be read; empty if there are none."""
    if facts.unpublished is None:
        return ""
    if facts.driver.liveness is Liveness.ALIVE:
        return "each part appears when it reaches a limit of its sink"
    return f"a query that runs publishes each part at a limit of its sink; `{facts.roll}` does it now"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
