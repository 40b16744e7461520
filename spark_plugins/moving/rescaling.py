"""Changes how many partitions Spark's state has, and with them how many tasks a stateful query runs.

Spark does it, in an epoch of its own that reads nothing. The steps, each of which may be the last one before a crash:

1. What the sinks wait for is finished, and a savepoint is taken. Nothing has changed.
2. What each state store holds is counted, and the journal records that a rescale is begun, with those counts
   (`epochal.txn.rescaling`). From here on no driver is let in, here or by Spark.
3. Spark repartitions, which writes offsets/N, the state, and commits/N.
4. The state is read again and compared.
5. The journal records epoch N, given to no sink, and that it is done. From here on the query may be started.

A repeat after a crash begins where the journal and commits/ say. If Spark refuses step 3, it is withdrawn. From then on
the way is forward, or back by the savepoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from epochal._version import __version__
from epochal.spark_plugins.moving import closing, failpoints
from epochal.spark_plugins.moving.origin import Origin
from epochal.spark_plugins.moving.rescalable import check, check_command, settings_of
from epochal.spark_plugins.moving.spark_state import Engine
from epochal.spark_plugins.moving.taking import OnProgress, take
from epochal.txn.driver_facts import Rescaling, StateDigest, this_driver
from epochal.txn.errors import DataLost, FencedOut, JournalLost, Refused
from epochal.txn.files import join
from epochal.txn.journal import Journal
from epochal.txn.partitions import Repartitioned
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.recovery import Build
from epochal.txn.rescaling import record_rescaling, unfinished
from epochal.txn.retirement import refuse_retired
from epochal.txn.view import View

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaled:
    """What was done."""

    checkpoint: str
    epoch: int | None  # that Spark took for it; None if there was nothing to do
    partitions: Repartitioned
    savepoint: str = ""
    state: tuple[StateDigest, ...] = ()
    generation: int | None = None
    resumed: bool = False  # an earlier command had begun it


@dataclass(frozen=True)
class Rescale:
    """Rescales one stream, which is stopped."""

    origin: Origin
    savepoints: str
    engine: Callable[[], Engine]  # called when Spark is needed
    build: Build
    named_journal: str | None = None
    stopped: bool = False  # the user says that no driver runs
    timeout: float = 60.0
    by: str = ""
    say: Say = lambda _: None
    on_progress: OnProgress = lambda _: None

    def to(self, partitions: int) -> Rescaled:
        """Change the number of partitions, or finish a change that was begun."""
        _, journal = self.origin.current()
        view = journal.read()
        refuse_retired(view.latest, "the state cannot be rescaled", journal)
        found = unfinished(view)
        if found is not None:
            return self._resume(journal, view, found, partitions)
        settings = check(self.origin, journal, view, stopped=self.stopped)
        if settings.partitions == partitions:
            change = Repartitioned(partitions, partitions)
            return Rescaled(checkpoint=self.origin.path, epoch=None, partitions=change)
        begun, started = self._begin(journal, Repartitioned(settings.partitions, partitions))
        return self._carry_out(journal, begun, started, resumed=False)

    def _begin(self, journal: Journal, change: Repartitioned) -> tuple[Rescaling, GenerationStarted]:
        """Steps 1 and 2."""
        self.say("finishing what is decided")
        closing.finish(self.origin, self.build, self.timeout)
        view, committed = journal.read(), self.origin.checkpoint.committed()
        if view.done_through < view.base == committed + 1:
            raise Refused(
                f"{self.origin.path}: this stream, a fork or one that was begun anew, has written no epoch yet. "
                "Nothing was changed. Start its query, stop it after its first epoch, and try again"
            )
        if view.done_through != committed:
            raise JournalLost(
                f"{self.origin.path}: Spark has checkpointed epoch {committed}, and the sinks show epoch "
                f"{view.done_through}. Nothing was changed. `epochal status CHECKPOINT` says what to do"
            )
        manifest = take(self.origin.path, self.savepoints, journal=self.named_journal, on_progress=self.on_progress)
        if manifest.epoch != committed:
            raise Refused(f"{self.origin.path}: an epoch has come while this ran. Nothing was changed. Stop the query")
        self.say("counting the state")
        state = self.engine().digests(self.origin.path, committed)
        assert view.latest is not None  # `current` has checked it
        begun = Rescaling(
            epoch=committed + 1,
            partitions=change,
            savepoint=join(self.savepoints, manifest.name),
            by=self.by,
            at=journal.now(),
            state=state,
        )
        started = self._claim(journal, view.latest, begun)
        closing.seal(self.origin, journal, started.generation)
        if (self.origin.checkpoint.committed(), self.origin.checkpoint.planned()) != (committed, committed):
            self._withdraw(journal, started)
            raise Refused(
                f"{self.origin.path}: a query has begun epoch {committed + 1} while this ran. Nothing was changed. "
                "Stop it first"
            )
        return begun, started

    def _claim(self, journal: Journal, latest: GenerationStarted, begun: Rescaling) -> GenerationStarted:
        failpoints.hit("before-rescale-begin")
        started = record_rescaling(journal, latest, begun, this_driver(__version__))
        failpoints.hit("after-rescale-begin")
        if started is None:
            raise Refused(
                f"{self.origin.path}: another driver or command has started while this ran. Nothing was changed"
            )
        return started

    def _resume(self, journal: Journal, view: View, begun: Rescaling, partitions: int) -> Rescaled:
        if begun.partitions.after != partitions:
            raise Refused(
                f"{self.origin.path}: a rescale {begun.partitions} was begun and is not finished. Nothing was changed. "
                f"Finish it first: --partitions {begun.partitions.after}; then rescale to {partitions}"
            )
        assert view.latest is not None  # it has a rescale
        if not self.stopped:
            check_command(view.latest)
        started = self._claim(journal, view.latest, begun)
        return self._carry_out(journal, begun, started, resumed=True)

    def _carry_out(self, journal: Journal, begun: Rescaling, started: GenerationStarted, *, resumed: bool) -> Rescaled:
        """Steps 3 to 5."""
        if self.origin.checkpoint.committed() < begun.epoch:
            self._repartition(journal, begun, started)
        self.say("comparing the state")
        self._compare(begun)
        self._record(journal, begun, started)
        closing.finish(self.origin, self.build, self.timeout)
        return Rescaled(
            checkpoint=self.origin.path,
            epoch=begun.epoch,
            partitions=begun.partitions,
            savepoint=begun.savepoint,
            state=begun.state,
            generation=started.generation,
            resumed=resumed,
        )

    def _repartition(self, journal: Journal, begun: Rescaling, started: GenerationStarted) -> None:
        self.say(f"rescaling {begun.partitions}")
        failpoints.hit("before-rescale-state")
        try:
            self.engine().repartition(self.origin.path, begun.partitions.after)
        except Refused:
            if self.origin.checkpoint.planned() < begun.epoch:
                self._withdraw(journal, started)
            raise
        failpoints.hit("after-rescale-state")

    def _withdraw(self, journal: Journal, started: GenerationStarted) -> None:
        """Spark has changed nothing: the stream may go on as it was."""
        failpoints.hit("before-rescale-withdraw")
        record_rescaling(journal, started, None, this_driver(__version__))
        failpoints.hit("after-rescale-withdraw")

    def _compare(self, begun: Rescaling) -> None:
        """Refuse a result that is not what was there before, in as many partitions as were asked for."""
        back = f"No query starts here. Go back to what was before: `epochal restore {begun.savepoint} NEW_CHECKPOINT`"
        committed, now = self.origin.checkpoint.committed(), settings_of(self.origin, begun.epoch).partitions
        if (committed, now) != (begun.epoch, begun.partitions.after):
            raise DataLost(
                f"{self.origin.path}: Spark should have rescaled {begun.partitions} in epoch {begun.epoch}, but its "
                f"last epoch is {committed}, and epoch {begun.epoch} has {now} partitions. {back}"
            )
        state = self.engine().digests(self.origin.path, begun.epoch)
        if state != begun.state:
            raise DataLost(f"{self.origin.path}: {different(begun.state, state)}. {back}")

    def _record(self, journal: Journal, begun: Rescaling, started: GenerationStarted) -> None:
        view = journal.read()
        if view.generation != started.generation:
            raise FencedOut(
                f"{self.origin.path}: another command has gone on with this rescale (generation {view.generation}). "
                "This one stops"
            )
        offsets = self.origin.checkpoint.offsets(begun.epoch)
        if offsets is None:
            raise Refused(f"{self.origin.path}: offsets/{begun.epoch} is gone. Restore it from a copy")
        record = Prepared(
            begun.epoch,
            started.generation,
            offsets,
            {},
            journal.now(),
            rolls=view.rolls_after(begun.epoch - 1),
            repartitioned=begun.partitions,
        )
        failpoints.hit("before-rescale-record")
        recorded = journal.prepare(record)
        failpoints.hit("after-rescale-record")
        if not recorded:
            raise FencedOut(f"{self.origin.path}: another command has gone on with this rescale. This one stops")


def different(before: tuple[StateDigest, ...], after: tuple[StateDigest, ...]) -> str:
    """Which stores differ, for people.

    >>> different((StateDigest(0, "dedupe", "default", 3, "aa"),), (StateDigest(0, "dedupe", "default", 2, "bb"),))
    'after Spark has rescaled it, the state is not what it was: operator 0 (dedupe), default: 3 rows before, 2 since'
    """
    found = {(one.operator, one.store): one for one in after}
    texts = []
    for one in before:
        now = found.pop((one.operator, one.store), None)
        if now is None:
            texts.append(f"operator {one.operator} ({one.name}), {one.store}: gone")
        elif now.rows != one.rows:
            texts.append(f"operator {one.operator} ({one.name}), {one.store}: {one.rows} rows before, {now.rows} since")
        elif now != one:
            texts.append(f"operator {one.operator} ({one.name}), {one.store}: {one.rows} rows, but not the same")
    texts += [f"operator {one.operator} ({one.name}), {one.store}: was not there" for one in found.values()]
    return f"after Spark has rescaled it, the state is not what it was: {'; '.join(texts)}"
