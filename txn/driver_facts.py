"""What a start records about who made it: the process of a driver, or a command and what it did.

In the journal it is one object, `driver`. It is read here once, and written back as it was: keys that this version does
not know, and values that it cannot read, are carried along in `unknown`. Pure, but for the look at this process.

===============  =======================================================================================
key              meaning
===============  =======================================================================================
host, pid, ...   the process
epochal          its version
fence            a command made this start: there is no driver, and the earlier one was stopped
retired          the stream is over here, or has moved (`retirement`)
restored         `epochal restore` made the checkpoint of a savepoint (`restoration`)
forked           the same with ``--fork``: a new stream
forked_from      the streams that this one was forked from, as earlier starts say; their records may be folded away
rescaling        `epochal rescale` has begun, or was withdrawn (`rescaling`)
===============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from epochal.txn.model import Json, canonical
from epochal.txn.partitions import Repartitioned
from epochal.txn.printable import printable
from epochal.txn.process import Process, this_process

VERSION, FENCE = "epochal", "fence"
RETIRED, RESTORED, FORKED, RESCALING = "retired", "restored", "forked", "rescaling"
FORKED_FROM = "forked_from"
WITHDRAWN: dict[str, Json] = {"withdrawn": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Who retired a stream, when and why."""

    why: str
    by: str
    at: str
    moved_to: str = ""  # the journal in which the stream goes on; empty if it is over

    def __str__(self) -> str:
        return printable(f"{self.at} by {self.by}: {self.why}", keep="")  # part of one line

    @property
    def why_fenced(self) -> str:
        """Why a driver that ran when this was recorded must stop, and what to do."""
        if self.moved_to:
            return (
                f"the stream has moved to the journal {self.moved_to} ({self.at} by {self.by}). This driver stops; "
                "start the query on the checkpoint there"
            )
        return f"the stream was retired {self}. This driver stops, and a start here is refused"

    def to_json(self) -> dict[str, Json]:
        """As in the journal and in `epochal status --json`."""
        value: dict[str, Json] = {"why": self.why, "by": self.by, "at": self.at}
        return {**value, "moved_to": self.moved_to} if self.moved_to else value

    @staticmethod
    def from_json(value: Json) -> Retirement | None:
        """The retirement; None if the value is none."""
        if not isinstance(value, dict):
            return None
        why, by, at, moved_to = (str(value.get(name, "")) for name in ("why", "by", "at", "moved_to"))
        return Retirement(why=why, by=by, at=at, moved_to=moved_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """A checkpoint that was made of a savepoint."""

    savepoint: str
    epoch: int  # the savepoint's
    through: int  # the last epoch that the journal had as done then

    def to_json(self) -> dict[str, Json]:
        return {"savepoint": self.savepoint, "epoch": self.epoch, "through": self.through}

    @staticmethod
    def from_json(value: Json) -> Restoration | None:
        """The restoration; None if the value is none."""
        if not isinstance(value, dict):
            return None
        epoch, through = value.get("epoch"), value.get("through")
        if not isinstance(epoch, int) or not isinstance(through, int):
            return None
        return Restoration(savepoint=str(value.get("savepoint", "")), epoch=epoch, through=through)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A checkpoint that was made of a savepoint of another stream."""

    savepoint: str
    epoch: int
    of: str  # the other stream's lineage

    def to_json(self) -> dict[str, Json]:
        return {"savepoint": self.savepoint, "epoch": self.epoch, "of": self.of}

    @staticmethod
    def from_json(value: Json) -> Fork | None:
        """The fork; None if the value is none."""
        epoch = value.get("epoch") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(epoch, int):
            return None
        return Fork(savepoint=str(value.get("savepoint", "")), epoch=epoch, of=str(value.get("of", "")))


@dataclass(frozen=True, slots=True)
class StateDigest:
    """What one state store of one operator holds: how many keys or rows, and a digest of them in any order."""

    operator: int
    name: str  # of the operator, as Spark has it
    store: str
    rows: int
    digest: str

    def to_json(self) -> dict[str, Json]:
        return {
            "operator": self.operator,
            "name": self.name,
            "store": self.store,
            "rows": self.rows,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """What is being done, and what Spark's state was before."""

    epoch: int  # that Spark takes for it
    partitions: Repartitioned
    savepoint: str
    by: str
    at: str
    state: tuple[StateDigest, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "epoch": self.epoch,
            **self.partitions.to_json(),
            "savepoint": self.savepoint,
            "by": self.by,
            "at": self.at,
            "state": [one.to_json() for one in self.state],
        }

    @staticmethod
    def from_json(value: Json) -> Rescaling | None:
        """The rescale; None if the value is none, or says that it was withdrawn."""
        if not isinstance(value, dict) or value.get("withdrawn"):
            return None
        try:
            return _rescaling(value)
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """Who made a start, and what for."""

    process: Process = field(default_factory=Process)
    version: str = ""  # of epochal
    by_command: bool = False  # a command made it, which stopped the driver before it: no driver belongs to it
    retired: Retirement | None = None
    restored: Restoration | None = None
    forked: Fork | None = None
    forked_from: tuple[str, ...] = ()  # lineages
    rescaling: Rescaling | None = None
    rescale_given_up: bool = False  # a rescale that was begun before does not count any more
    unknown: Mapping[str, Json] = field(default_factory=dict)  # as it was read; written back as it was

    @property
    def ancestors(self) -> tuple[str, ...]:
        """The lineages that the stream was forked from, directly or not, as far as this start knows."""
        of = () if self.forked is None else (self.forked.of,)
        return tuple(sorted({*self.forked_from, *of}))

    @property
    def concerns_rescale(self) -> bool:
        """Whether it begins a rescale, goes on with one or gives it up."""
        return self.rescaling is not None or self.rescale_given_up

    def to_json(self) -> dict[str, Json]:
        """As in the journal."""
        return {**self._known(), **self.unknown}

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> DriverFacts:
        """The facts in a record. What cannot be read is taken for missing, and kept in `unknown`."""
        version, rescaling = value.get(VERSION), Rescaling.from_json(value.get(RESCALING))
        facts = DriverFacts(
            process=Process.from_json(value),
            version=version if isinstance(version, str) else "",
            by_command=bool(value.get(FENCE)),
            retired=Retirement.from_json(value.get(RETIRED)),
            restored=Restoration.from_json(value.get(RESTORED)),
            forked=Fork.from_json(value.get(FORKED)),
            forked_from=_texts(value.get(FORKED_FROM)),
            rescaling=rescaling,
            rescale_given_up=RESCALING in value and rescaling is None,
        )
        known = facts._known()
        unknown = {
            key: one for key, one in value.items() if key not in known or canonical(known[key]) != canonical(one)
        }
        return replace(facts, unknown=unknown) if unknown else facts

    def _known(self) -> dict[str, Json]:
        value = self.process.to_json()
        if self.version:
            value[VERSION] = self.version
        if self.by_command:
            value[FENCE] = True
        for key, one in ((RETIRED, self.retired), (RESTORED, self.restored), (FORKED, self.forked)):
            if one is not None:
                value[key] = one.to_json()
        if self.forked_from:
            value[FORKED_FROM] = list(self.forked_from)
        if self.rescaling is not None:
            value[RESCALING] = self.rescaling.to_json()
        elif self.rescale_given_up:
            value[RESCALING] = dict(WITHDRAWN)
        return value


def this_driver(version: str) -> DriverFacts:
    """This process, as a driver. `version` is epochal's."""
    return DriverFacts(process=this_process(), version=version)


def this_command(version: str) -> DriverFacts:
    """This process, as a command that stops the driver."""
    return replace(this_driver(version), by_command=True)


def _rescaling(value: Mapping[str, Json]) -> Rescaling:
    state = value["state"]
    if not isinstance(state, list):
        raise TypeError("state")
    return Rescaling(
        epoch=_number(value["epoch"]),
        partitions=Repartitioned.from_json(value),
        savepoint=str(value["savepoint"]),
        by=str(value["by"]),
        at=str(value["at"]),
        state=tuple(_digest(one) for one in state),
    )


def _digest(one: Json) -> StateDigest:
    if not isinstance(one, dict):
        raise TypeError("state")
    return StateDigest(
        _number(one["operator"]), str(one["name"]), str(one["store"]), _number(one["rows"]), str(one["digest"])
    )


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _number(value: Json) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value
