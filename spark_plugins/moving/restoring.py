"""Makes a checkpoint of a savepoint: one in which the stream goes on, or one that begins another stream.

The steps, each of which may be the last one before a crash:

1. Everything but the journal is written into a folder beside the checkpoint, where no query looks (`by_rename`); on an
   object store, in its place, where no query starts meanwhile (`in_place`).
2. The original is closed (`closing`): from here on no driver is let in there. What it has decided is finished.
3. Every target is claimed for the new journal, so a driver of the original that hangs, or one that cannot be reached,
   can show nothing any more.
4. The journal is written into the folder, with a start of its own which those claims name.
5. The folder gets the checkpoint's name, by one rename; on an object store, a mark says that it is whole. From here on
   the stream goes on there.

A repeat after a crash begins with step 1 and finds steps 2 and 3 done. With `fork` the query has a new id and a new
journal, and there are no steps 2 and 3: the targets of the original refuse it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from epochal._version import __version__
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.spark_plugins.moving import closing, failpoints, layout, planning
from epochal.spark_plugins.moving.by_rename import ByRename
from epochal.spark_plugins.moving.in_place import InPlace
from epochal.spark_plugins.moving.manifest import Manifest
from epochal.spark_plugins.moving.origin import Moving, Origin, check_outside
from epochal.spark_plugins.moving.placing import Placing
from epochal.spark_plugins.moving.planning import JournalSource, RestorePlan
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.spark_plugins.moving.taking import OnProgress
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.access import refuse_unreachable
from epochal.txn.claims import new_start_id, same_place
from epochal.txn.driver_facts import Fork, Restoration, this_command
from epochal.txn.errors import DataLost, EpochalError, Refused, TwoJournals
from epochal.txn.files import join
from epochal.txn.model import Memory
from epochal.txn.object_paths import is_object_store
from epochal.txn.participant import Participant
from epochal.txn.records import GenerationStarted, Record, decode, encode, is_record_name
from epochal.txn.recovery import Build, SinkPlace, Sinks
from epochal.txn.rescaling import unfinished, was_begun
from epochal.txn.restoration import forked_from
from epochal.txn.start import claim_of
from epochal.txn.view import View, fold

TRIES = 10
LISTED = 8  # savepoints in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint that was made of a savepoint."""

    manifest: Manifest
    checkpoint: str
    query: str
    epoch: int  # Spark goes on after this one
    through: int  # epochs after it, up to this one, are in sinks already
    ahead: Mapping[str, int] = field(default_factory=dict)  # sink -> the last epoch that it shows
    generation: int | None = None  # of the new journal; None for a fork
    closed: str = ""  # the checkpoint that was closed
    waited_in_vain: str = ""  # a driver of it that has not ended; it is fenced


def restore(
    savepoint: str,
    checkpoint: str,
    *,
    build: Build,
    fork: bool = False,
    lost_original: bool = False,
    wait: float = 60.0,
    timeout: float = 60.0,
    on_progress: OnProgress = lambda _: None,
    by: str = "",
) -> Restored:
    """Make a checkpoint of a savepoint, in a place where there is none.

    The stream goes on there: the original is closed, and its driver is stopped, for which this waits `wait` seconds.
    Without `lost_original` it is refused if the original cannot be reached. With `fork` another stream begins there,
    and the original is not touched. `build` makes the sinks that the journal describes.
    """
    place, _, name = savepoint.rstrip("/").rpartition("/")
    if not place:
        raise Refused(f"{savepoint}: name a savepoint by the folder of savepoints / its name")
    with refuse_unreachable(f"the savepoint {savepoint}", "Name a savepoint, as a user who may read it"):
        store = SavepointStore(*resolve_checkpoint(place))
        manifest = store.read(name)
        if manifest is None:
            _refuse_folder(SavepointStore(*resolve_checkpoint(savepoint)))
            raise Refused(
                f"{savepoint}: there is no such savepoint. `epochal savepoints {place}` lists those there are"
            )
        if missing := store.missing(manifest):
            raise DataLost(f"{savepoint}: {len(missing)} of its files are gone, such as {missing[0]}. Use another one")
    with refuse_unreachable(f"the checkpoint {checkpoint}", "Name a place where this user may make a folder"):
        files, path = resolve_checkpoint(checkpoint)
        targets = (position.target for position in manifest.sinks.values())
        check_outside(files, path, (manifest.checkpoint, manifest.journal), targets)
        placing = _placing(files, path, savepoint)
    try:
        if fork:
            return _fork(store, manifest, placing, on_progress)
        return Restoring(store, manifest, placing, build, lost_original, wait, timeout, on_progress, by).restore()
    except BaseException:
        placing.give_up()
        raise


def _placing(files: SinkFiles, path: str, savepoint: str) -> Placing:
    """How a checkpoint comes to be there, which no other restore does at the same time."""
    return InPlace.at(files, path, savepoint) if is_object_store(path) else ByRename.at(files, path)


def _refuse_folder(store: SavepointStore) -> None:
    """Refuse a folder of savepoints where one of them is to be named, and list the newest of them."""
    found = sorted(store.manifests(), key=lambda manifest: manifest.at, reverse=True)
    if found:
        names = ", ".join(join(store.place, manifest.name) for manifest in found[:LISTED])
        more = f", and {len(found) - LISTED} older" if len(found) > LISTED else ""
        raise Refused(f"{store.place}: this is a folder of savepoints; name one: {names}{more}. Nothing was written")


def _fork(store: SavepointStore, manifest: Manifest, placing: Placing, on_progress: OnProgress) -> Restored:
    """Begin another stream. Its journal begins after the savepoint's epoch, and says what it was made of."""
    query = str(uuid.uuid4())
    metadata = json.dumps({"id": query}, separators=(",", ":")).encode()
    written = placing.write(store, manifest, on_progress, {layout.METADATA: metadata})
    ancestors = tuple(sorted(_ancestors(manifest, saved_journal(store, manifest))))
    fork = Fork(savepoint=manifest.name, epoch=manifest.epoch, of=manifest.lineage)
    started = GenerationStarted(
        generation=1,
        query=query,
        base=manifest.epoch + 1,
        start=new_start_id(),
        driver=replace(this_command(__version__), forked=fork, forked_from=ancestors),
        at=placing.journal(1).now(),
    )
    written += placing.write_journal({join(layout.JOURNAL, started.name): encode(started)}, 1)
    placing.publish(written)
    return Restored(
        manifest=manifest, checkpoint=placing.path, query=query, epoch=manifest.epoch, through=manifest.epoch
    )


@dataclass(frozen=True)
class Restoring:
    """Lets one stream go on elsewhere."""

    store: SavepointStore
    manifest: Manifest
    placing: Placing
    build: Build
    lost_original: bool
    wait: float
    timeout: float
    on_progress: OnProgress
    by: str

    def restore(self) -> Restored:
        """Carry the steps out."""
        original = closing.original(
            self.manifest.checkpoint, self.manifest.journal, self._place, lost=self.lost_original
        )
        live, places = original.live, [*original.places, self._place]
        written = self.placing.write(self.store, self.manifest, self.on_progress, {})
        content = saved_journal(self.store, self.manifest)  # now: somebody may remove the savepoint meanwhile
        saved = saved_records(self.manifest, content)
        self._plan(live, saved, places)  # what would be refused later is refused before anything is closed
        closed = None if live is None else closing.close(live, self._place, self.by, wait=self.wait)
        try:
            if live is not None:
                closing.finish(live, self.build, self.timeout)
            plan, targets, memories, view = self._plan(live, saved, places)
        except EpochalError:
            if closed is not None:
                closing.reopen(closed)
            raise
        started = self._start(view, plan)
        self._claim(started, targets, memories, places, written)
        written += self.placing.write_journal(self._journal(plan, live, started, content), self.manifest.incarnation)
        # What Spark has begun in order to rescale is no plan of an epoch.
        if plan.journal is JournalSource.ORIGINAL and live is not None and unfinished(view) is None:
            written += self.placing.carry_plan(self.manifest.epoch + 1, live)
        self._check_claims(started, targets)
        self.placing.publish(written)
        return Restored(
            manifest=self.manifest,
            checkpoint=self.placing.path,
            query=self.manifest.query,
            epoch=self.manifest.epoch,
            through=plan.through,
            ahead={name: m.last for name, m in memories.items() if m.last > self.manifest.epoch},
            generation=started.generation,
            closed="" if live is None else live.path,
            waited_in_vain="" if closed is None else closed.waited_in_vain,
        )

    @property
    def _place(self) -> str:
        """Where the new journal will be."""
        return self.placing.journal(self.manifest.incarnation).place

    def _plan(
        self, live: Origin | None, saved: Mapping[str, Record], places: list[str]
    ) -> tuple[RestorePlan, dict[str, Participant[object]], dict[str, Memory], View]:
        """How the stream begins; its targets, what they have recorded, and the newest journal that names them."""
        from_savepoint = fold(saved.values(), stored={})
        original = None if live is None else live.current()[1].read()
        view = original or from_savepoint
        assert view.latest is not None  # a savepoint has at least one start
        sinks = Sinks(view, self.build)
        targets = {n: sinks.at(SinkPlace(n, d.kind, d.target)) for n, d in view.latest.sinks.items()}
        memories = {name: self._memory(name, target, places) for name, target in targets.items()}
        plan = planning.plan(self.manifest, memories, from_savepoint, original, self.placing.sample)
        return plan, targets, memories, view

    def _memory(self, name: str, target: Participant[object], places: list[str]) -> Memory:
        try:
            memory = target.open(self.manifest.lineage)
        except EpochalError:
            raise
        except Exception as fault:
            raise Refused(
                f"sink {name!r} does not answer, so its target cannot be claimed for the restored stream: {fault}. "
                "Nothing was written. Try again when it is back"
            ) from fault
        holder = memory.holder
        if holder is not None and not any(same_place(holder.journal, place) for place in places):
            raise TwoJournals(
                f"sink {name!r} ({memory.target}): it was last claimed by {holder}, which is neither where the "
                "savepoint was taken nor where that stream has moved to: a copy of it runs. Nothing was written. Take "
                "a savepoint of that one, or restore with --fork"
            )
        return memory

    def _start(self, view: View, plan: RestorePlan) -> GenerationStarted:
        """The start that claims the targets for the new journal. No driver: the next one has the next number."""
        latest, epoch = view.latest, self.manifest.epoch
        assert latest is not None
        through = plan.through if plan.journal is JournalSource.ORIGINAL else epoch
        restored = Restoration(savepoint=self.manifest.name, epoch=epoch, through=through)
        return replace(
            latest,
            generation=latest.generation + 1,
            start=new_start_id(),
            adopted={**latest.adopted, **plan.adopted},
            # A rescale since the savepoint is none of the restored stream.
            driver=replace(
                this_command(__version__),
                restored=restored,
                rescale_given_up=was_begun(view),
                forked_from=latest.driver.ancestors,
            ),
            at=self.placing.journal(self.manifest.incarnation).now(),
        )

    def _claim(
        self,
        started: GenerationStarted,
        targets: Mapping[str, Participant[object]],
        memories: Mapping[str, Memory],
        places: list[str],
        written: list[str],
    ) -> None:
        """Step 3. A claim of ours would shut out a checkpoint that another restore has made: then Refused."""
        self.placing.check(written)
        for name, target in targets.items():
            claim, memory = claim_of(started, self._place, name), memories[name]
            failpoints.hit("before-restore-target")
            for _ in range(TRIES):
                if target.claim(claim, version=memory.version):
                    break
                memory = self._memory(name, target, places)
                self.placing.check(written)  # after it was read: whoever claims later is noticed by its version
            else:
                raise Refused(f"sink {name!r}: other drivers claim its target again and again. Run the command again")
            failpoints.hit("after-restore-target")
            if target.open(self.manifest.lineage).last != memories[name].last:
                raise Refused(
                    f"sink {name!r} ({memory.target}): an epoch has become visible there while this ran. No "
                    "checkpoint was made. Run the command again: it takes that epoch into account"
                )

    def _check_claims(self, started: GenerationStarted, targets: Mapping[str, Participant[object]]) -> None:
        """Refused if another restore has claimed a target since: no start would be let in here."""
        for name, target in targets.items():
            memory = target.open(self.manifest.lineage)
            if memory.holder is not None and memory.holder.start != started.start:
                raise Refused(
                    f"sink {name!r} ({memory.target}): another restore has claimed it while this ran, {memory.holder}. "
                    "No checkpoint was made by this command. If the other one has made none either, run it again"
                )

    def _journal(
        self, plan: RestorePlan, live: Origin | None, started: GenerationStarted, saved: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """The files of the journals, with the start that was claimed."""
        folder = layout.journal_folder(self.manifest.incarnation)
        present = {} if live is None else _tried(lambda: live.journal_at(None).files)
        if plan.journal is JournalSource.ORIGINAL:
            content = dict(present)
        else:
            content = dict(saved)
            # Later starts of the original too: what they have staged is known to be of older generations then.
            content |= {path: data for path, data in present.items() if path.startswith(f"{folder}/g")}
        return {**content, join(folder, started.name): encode(started)}


def _ancestors(manifest: Manifest, journals: Mapping[str, bytes]) -> set[str]:
    """The lineages that a stream was forked from, in whatever incarnation."""
    numbers = range(1, manifest.incarnation + 1)
    views = (fold(saved_records(manifest, journals, number).values(), stored={}) for number in numbers)
    return {lineage for view in views for lineage in forked_from(view)}


def saved_journal(store: SavepointStore, manifest: Manifest) -> dict[str, bytes]:
    """The files of a savepoint's journals."""
    own = [f for f in manifest.files if layout.is_of_journal(f.path.partition("/")[0])]
    return {file.path: b"".join(store.content(file)) for file in own}


def saved_records(
    manifest: Manifest, content: Mapping[str, bytes], incarnation: int | None = None
) -> dict[str, Record]:
    """The records of one of a savepoint's journals; of that in use, if none is named."""
    folder = layout.journal_folder(incarnation or manifest.incarnation)
    found = {}
    for path, data in content.items():
        top, _, name = path.partition("/")
        if top == folder and is_record_name(name):
            found[name] = decode(f"{manifest.name}/{path}", name, data)
    return found


def _tried(read: Callable[[], Mapping[str, bytes]]) -> Mapping[str, bytes]:
    """What a journal has, read again while it is being folded."""
    for _ in range(TRIES - 1):
        try:
            return read()
        except Moving:
            continue
    return read()
