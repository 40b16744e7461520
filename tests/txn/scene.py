"""Plays a scenario: a script of events, and below each what it makes the coordinator do.

A scenario is prose, then commands (``>``), each followed by what happened, indented: the calls that
sinks got, the journal's records as they were made, and the outcome (``=``). Commands::

    > offsets 0                 Spark plans epoch 0 (a word behind it changes the offsets)
    > start A                   driver A begins; options: eager, sinks=a,b, adopt=TOKEN, new=TOKEN, rows=N
    > run A 0                   foreachBatch; rows=N gives it so many rows
    > commits 0                 Spark writes commits/0
    > settle A                  the progress event
    > show                      what the sinks show, and what they still have staged
    > lose PATH                 a file or folder is gone
    > break a, > mend a         a sink fails to commit until it is mended

A driver's command may end in ``dies at FAILPOINT``: from there on nothing that it does has an
effect. With ``waits at FAILPOINT`` the commands below it, indented, happen before it goes on.
Attempts are written epoch.generation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import DirectoryParticipant
from epochal.txn.choices import Choices, tokens
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import CommitFailed, EpochalError
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged
from epochal.txn.participant import Wrapper
from epochal.txn.records import (
    Decided,
    Done,
    GenerationStarted,
    Prepared,
    Roll,
    Rolled,
    Seal,
    Snapshot,
    StateRecord,
    decode,
)
from tests.txn.memory import MemoryFiles

QUERY = "query"


class Died(BaseException):
    """The driver is dead: it does nothing more, not even clean up."""


@dataclass
class Driver:
    """One start of the query."""

    coordinator: Coordinator[Sequence[Json]] | None = None
    dead: bool = False
    stop_at: str = ""
    then: Callable[[], None] | None = None


@dataclass
class Scene:
    """What the drivers of a scenario share."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    drivers: dict[str, Driver] = field(default_factory=dict)
    acting: list[Driver] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    sinks: tuple[str, ...] = ("files",)
    lines: list[str] = field(default_factory=list)
    depth: int = 0  # of the command that is carried out

    def say(self, text: str) -> None:
        self.lines.append(" " * (self.depth + 2) + text)

    def check_alive(self) -> None:
        if self.acting and self.acting[-1].dead:
            raise Died

    def hit(self, name: str) -> None:
        """What stands in for a failpoint."""
        driver = self.acting[-1]
        if name != driver.stop_at:
            return
        driver.stop_at = ""
        if driver.then is None:
            driver.dead = True
            self.say(f"died at {name}")
            raise Died
        driver.then()


class WatchedFiles(MemoryFiles):
    """The journal's folder; says what is made and removed there."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.content = scene.files.content
        self._scene = scene

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        self._scene.check_alive()
        created = super().create(path, data, durable=durable)
        folder, _, name = path.rpartition("/")
        self._scene.say(f"{folder} {_told(name, data)}" + ("" if created else ": the name is taken"))
        return created

    def delete(self, path: str) -> None:
        self._scene.check_alive()
        self._scene.say(f"removes {path}")
        super().delete(path)


class WatchedSink(Wrapper[Sequence[Json]]):
    """A directory that says what it is asked."""

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(DirectoryParticipant(name, name=name, files=scene.files))
        self._scene = scene

    def _say(self, text: str) -> None:
        self._scene.check_alive()
        self._scene.say(f"{self.name} {text}")

    def open(self, lineage: str) -> Memory:
        self._scene.check_alive()
        return super().open(lineage)

    def claim(self, claim: Claim, *, version: int, rows: Sequence[Json] | None = None) -> bool:
        claimed = super().claim(claim, version=version, rows=rows)
        place = f" in the place of {', '.join(claim.replaces)}" if claim.replaces else ""
        self._say(
            f"is claimed by {claim.lineage}, generation {claim.generation}{place}{'' if claimed else ': too late'}"
        )
        return claimed

    def withdraw(self, claim: Claim) -> None:
        self._say(f"is given back by {claim.lineage}")
        super().withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        self._scene.check_alive()
        return super().holder(lineage)

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        self._say(f"stages {_short(batch.attempt)}")
        return super().stage(batch)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        self._scene.check_alive()
        if self.name in self._scene.broken:
            self._say(f"commits {_short(attempt)}: broken")
            raise ConnectionError("it is away")
        outcome = super().commit(attempt, handle)
        self._say(f"commits {_short(attempt)}" + (": it was" if outcome is Outcome.ALREADY_COMMITTED else ""))
        return outcome

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._say(f"aborts {_short(attempt)}")
        super().abort(attempt, handle)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        self._scene.check_alive()
        return super().leftovers(lineage, scratch)


def play(text: str, arm: Callable[[Callable[[str], None]], None]) -> str:
    """The scenario with what happens below its commands. `arm` puts a function in the place of failpoints."""
    commands = [line for line in text.splitlines() if line.lstrip().startswith(">")]
    head = text[: text.index("\n>") + 1]
    scene = Scene()
    scene.files.content["checkpoint/metadata"] = b'{"id":"query"}'
    arm(scene.hit)
    _play(scene, commands)
    return head + "\n".join(scene.lines) + "\n"


def _play(scene: Scene, commands: list[str]) -> None:
    while commands:
        line = commands.pop(0)
        outer, scene.depth = scene.depth, _indent(line)
        below = []
        while commands and _indent(commands[0]) > scene.depth:
            below.append(commands.pop(0))
        scene.lines.append(line)
        words = line.split()[1:]
        match words:
            case ["offsets", number, *more]:
                offset = json.dumps({"topic": " ".join([number, *more])})
                scene.files.create(f"checkpoint/offsets/{number}", f"v1\n{{}}\n{offset}".encode())
            case ["commits", number]:
                if not scene.files.create(f"checkpoint/commits/{number}", b"v1"):
                    scene.say("= it is there already: Spark ends the query")
            case ["lose", what]:
                scene.files.delete(what)
            case ["break", sink]:
                scene.broken.add(sink)
            case ["mend", sink]:
                scene.broken.remove(sink)
            case ["show"]:
                _show(scene)
            case [verb, name, *options]:
                _drive(scene, verb, scene.drivers.setdefault(name, Driver()), options, below)
            case _:
                raise ValueError(line)
        scene.depth = outer


def _drive(scene: Scene, verb: str, driver: Driver, options: list[str], below: list[str]) -> None:
    if options[-3:-1] in (["dies", "at"], ["waits", "at"]):
        driver.stop_at = options[-1]
        driver.then = (lambda: _play(scene, below)) if options[-3] == "waits" else None
        options = options[:-3]
    settings = dict(option.split("=", 1) for option in options if "=" in option)
    scene.acting.append(driver)
    try:
        if verb == "start":
            driver.coordinator = _coordinator(scene, settings, eager="eager" in options)
            driver.coordinator.begin()
            outcome = f"generation {driver.coordinator.generation}"
        elif driver.coordinator is None or driver.dead:
            raise ValueError("the driver is not alive")
        elif verb == "run":
            rows: list[Json] = list(range(int(settings.get("rows", "1"))))
            outcome = driver.coordinator.run(int(options[0]), rows).value
        else:
            assert verb == "settle", verb
            driver.coordinator.settle()
            outcome = ""
        if outcome:
            scene.say(f"= {outcome}")
    except Died:
        pass
    except (EpochalError, CommitFailed) as fault:
        first = re.split(r"[.;] |\n", str(fault))[0]
        scene.say(f"= {type(fault).__name__}: {first}")
    finally:
        scene.acting.pop()


def _coordinator(scene: Scene, settings: dict[str, str], *, eager: bool) -> Coordinator[Sequence[Json]]:
    scene.sinks = tuple(settings["sinks"].split(",")) if "sinks" in settings else scene.sinks
    return Coordinator(
        journals=lambda incarnation: Journal(WatchedFiles(scene), _folder(incarnation), clock=lambda: 0.0),
        checkpoint=SparkCheckpoint(scene.files, "checkpoint"),
        participants=[WatchedSink(scene, name) for name in scene.sinks],
        eager=eager,
        start_ids=lambda: "x",
        choices=Choices(tokens(settings.get("adopt")), tokens(settings.get("new"))),
    )


def _show(scene: Scene) -> None:
    for name in scene.sinks:
        visible = [n for n in scene.files.names(name) if not n.startswith("_")]
        shown = [f"{n[:12].lstrip('0') or '0'}.{int(n[13:19])}{n[19:].removeprefix('.' + QUERY)}" for n in visible]
        staged = [entry.name.split("/") for entry in scene.files.walk(f"{name}/_staged")]
        left = [f"{int(key[:12])}.{int(key[13:19])}{lineage.removeprefix(QUERY)}" for lineage, key in staged]
        scene.say(f"{name} shows {' '.join(shown) or 'nothing'}, staged {' '.join(left) or 'nothing'}")


def _told(name: str, data: bytes) -> str:
    match decode(name, name, data):
        case GenerationStarted() as start:
            return f"generation {start.generation}, base {start.base}" + (", closed" if start.closed else "")
        case Prepared() as record:
            rows = [f"{sink} {part.rows}" for sink, part in record.sinks.items()]
            return f"PREPARED {record.epoch}.{record.generation}, rows: {', '.join(rows) or 'none'}"
        case Seal() as seal:
            return f"SEAL {seal.epoch}.{seal.generation} by {seal.by}"
        case Decided() as decided:
            return f"DECIDED {decided.epoch}.{decided.generation}"
        case Done() as done:
            return f"DONE {done.epoch}.{done.generation}"
        case Roll() as roll:
            return f"ROLL {roll.generation}.{roll.number} by {roll.by}"
        case Rolled() as rolled:
            return f"ROLL {rolled.generation}.{rolled.number} DONE"
        case Snapshot() as snapshot:
            return f"SNAPSHOT through {snapshot.through}"
        case StateRecord() as state:
            return f"STATE {state.number} through {state.through}"


def _short(attempt: Attempt) -> str:
    return f"{attempt.epoch}.{attempt.generation}{attempt.lineage.removeprefix(QUERY)}"


def _folder(incarnation: int) -> str:
    return "journal" if incarnation == 1 else f"journal~{incarnation}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
