"""What a check found, as text and as JSON. A fault needs the user; a store that is away needs time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from epochal.spark_plugins.streams.secrets import mask
from epochal.txn.model import Json

OK, AWAY, FAULTS = 0, 1, 2  # exit codes
NEW, EXISTING, UNKNOWN = "new", "existing", "unknown"


@dataclass
class StreamReport:
    """What was found about one stream."""

    name: str
    source: str = ""
    sinks: Sequence[str] = ()
    checkpoint: str = ""
    state: str = UNKNOWN  # of the checkpoint
    columns: Sequence[str] | None = None  # name and type; None if they could not be found out
    faults: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    secrets: frozenset[str] = frozenset()
    driver: Mapping[str, Json] | None = None  # the one that runs the stream now
    runs: str = ""  # the same for people
    runs_with_metrics: bool = False  # that driver serves its metrics where this one would

    def fault(self, text: str) -> None:
        """Note something that the user has to change."""
        self._note(self.faults, text)

    def unchecked(self, text: str) -> None:
        """Note something that could not be checked because a store does not answer."""
        self._note(self.away, text)

    def _note(self, place: list[str], text: str) -> None:
        shown = mask(text, self.secrets)
        if shown not in place:
            place.append(shown)

    @property
    def runs_already(self) -> str:
        """That a driver runs the stream, and what a start would do."""
        if self.runs_with_metrics:
            return (
                f"runs already: {self.runs}, and metrics are served at the address that this one names. A start is "
                "refused until it has ended, or with another address it takes over"
            )
        return f"runs already: {self.runs}. A start takes over from it: it stops"

    @property
    def verdict(self) -> str:
        """In two words."""
        parts = [_counted(len(self.faults), "fault"), f"{len(self.away)} unchecked" if self.away else ""]
        found = ", ".join(filter(None, parts)) or "ok"
        return f"{found}, runs already" if self.runs else found

    def to_json(self) -> dict[str, Json]:
        """As JSON."""
        return {
            "name": self.name,
            "source": self.source,
            "sinks": list(self.sinks),
            "checkpoint": self.checkpoint,
            "checkpoint_state": self.state,
            "columns": None if self.columns is None else list(self.columns),
            "faults": list(self.faults),
            "unchecked": list(self.away),
            "driver": None if self.driver is None else dict(self.driver),
        }


@dataclass
class Report:
    """What was found about all streams of a file or of a session."""

    what: str
    streams: list[StreamReport] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # of no single stream

    @property
    def code(self) -> int:
        """The exit code: faults come before stores that are away."""
        if self.faults or any(stream.faults for stream in self.streams):
            return FAULTS
        return AWAY if any(stream.away for stream in self.streams) else OK

    @property
    def all_faults(self) -> list[str]:
        return [*self.faults, *(fault for stream in self.streams for fault in stream.faults)]

    def details(self) -> str:
        """Everything that is wrong, and what could not be checked."""
        parts = [_listed("faults", self.faults)]
        parts += self.running
        for stream in self.streams:
            parts.append(_listed(f"{stream.name}: faults", stream.faults))
            parts.append(_listed(f"{stream.name}: not checked, because a store does not answer", stream.away))
        return "\n".join(filter(None, parts))

    @property
    def running(self) -> list[str]:
        """A line for each stream that a driver runs already."""
        return [f"{stream.name}: {stream.runs_already}" for stream in self.streams if stream.runs]

    def to_json(self) -> dict[str, Json]:
        """As JSON, with the exit code."""
        return {
            "checked": self.what,
            "exit_code": self.code,
            "faults": list(self.faults),
            "streams": [stream.to_json() for stream in self.streams],
        }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


def _listed(title: str, texts: Iterable[str]) -> str:
    lines = "".join("\n  - " + text.replace("\n", "\n    ") for text in texts)
    return f"{title}:{lines}" if lines else ""
