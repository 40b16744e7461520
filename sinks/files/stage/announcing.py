"""Stages the markers that tell readers of an epoch once it is published."""

from __future__ import annotations

from dataclasses import dataclass, replace

from epochal.sinks.files.handle import Move, Work
from epochal.sinks.files.layout import MARKER, Layout, marker_name
from epochal.sinks.files.policies import completion
from epochal.sinks.files.policies.completion import Complete, Marks
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn.files import join
from epochal.txn.model import Attempt


@dataclass(frozen=True, slots=True)
class Announcer:
    """Works in the staging area of one attempt, beside the files that the work names."""

    files: SinkFiles
    layout: Layout
    attempt: Attempt
    marker: str | Complete

    def announce(self, work: Work, marks: Marks) -> Work:
        """The work with its markers, which are staged."""
        home = self.layout.attempt(self.attempt)
        shown = [target for target, _ in work.entry(self.attempt).files]
        made = self._markers(marks, shown)
        markers: list[Move] = [(f"{MARKER}-{n}", target, len(text)) for n, (target, text) in enumerate(made)]
        if markers:
            texts = [(join(home, name), text) for (name, _, _), (_, text) in zip(markers, made, strict=True)]
            self.files.create_all(texts, durable=False)
            self.files.sync_all([home], within=self.layout.target)
        return replace(work, markers=tuple(markers))

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
