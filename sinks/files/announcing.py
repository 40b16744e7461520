"""Stages what tells readers of an epoch once it is published: the manifest's entry and the markers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from epochal.sinks.files import completion
from epochal.sinks.files.completion import Complete, Marks
from epochal.sinks.files.layout import MANIFEST, MARKER, Layout, marker_name
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.publishing import Move, Work
from epochal.txn.files import Files, join
from epochal.txn.model import Attempt


@dataclass(frozen=True, slots=True)
class Told:
    """What an audit will ask about an epoch's rows; a roll has none."""

    rows: int = 0
    offsets: str = ""
    digest: str | None = None
    header: str | None = None


@dataclass(frozen=True, slots=True)
class Announcer:
    """Works in the staging area of one attempt, beside the files that the work names."""

    files: Files
    layout: Layout
    attempt: Attempt
    marker: str | Complete

    def announce(self, work: Work, marks: Marks, told: Told) -> Work:
        """The work with its manifest and its markers, which are staged."""
        home = self.layout.attempt(self.attempt)
        shown = [(target, length) for _, target, length in work.files]
        shown += [(one.target, one.length) for one in work.joins]
        entry = PublishedEpoch(
            lineage=self.attempt.lineage,
            epoch=self.attempt.epoch,
            generation=self.attempt.generation,
            offsets=told.offsets,
            rows=told.rows,
            files=tuple(shown),
            roll=self.attempt.roll,
            digest=told.digest,
            header=told.header,
        ).encode()
        self.files.create(join(home, MANIFEST), entry, durable=False)  # PREPARED, which follows, is
        markers: list[Move] = []
        for number, (target, text) in enumerate(self._markers(marks, [target for target, _ in shown])):
            self.files.create(join(home, f"{MARKER}-{number}"), text, durable=False)
            markers.append((f"{MARKER}-{number}", target, len(text)))
        manifest = (MANIFEST, self.layout.manifest_name(self.attempt), len(entry))
        return replace(work, manifest=manifest, markers=tuple(markers))

    def _markers(self, marks: Marks, targets: list[str]) -> list[tuple[str, bytes]]:
        """The names and contents of what is published with the files."""
        if self.marker == "epoch":
            return [(marker_name(self.attempt), b"")]
        if self.marker == "bucket":
            folders = sorted({target[: target.rfind("/") + 1] for target in targets})
            return [(f"{folder}{completion.SUCCESS}", b"") for folder in folders]
        # All earlier epochs are published when one is staged, so what lies there tells the version.
        versions = [
            completion.next_version(self.files.names(join(self.layout.target, bucket))) for bucket in marks.complete
        ]
        return [completion.marker(*found, self.attempt) for found in zip(marks.complete, versions, strict=True)]
