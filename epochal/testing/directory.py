"""A participant of one folder: an epoch is one file.

Published names carry the generation, so that an epoch committed from two attempts shows as two
files: this participant hides no mistake of the protocol. Layout::

    target/000000000042.000003.LINEAGE           published: one JSON value a line
    target/_staged/LINEAGE/000000000042.000003
    target/_lineages/LINEAGE.json                enrolled

The first line of a file says which lineage wrote it and from which source offsets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from epochal.txn import failpoints
from epochal.txn.errors import DataLost, OptionError, Refused
from epochal.txn.files import TEMPORARY, Files, LocalFiles, join
from epochal.txn.model import NO_EPOCH, Attempt, Handle, Json, Memory, Outcome, Staged

HANDLE_VERSION = 1
KEY_LENGTH = len(Attempt("", 0, 0).key)


class DirectoryParticipant:
    """Rows of plain JSON in the files of one folder."""

    def __init__(self, path: str, *, name: str = "directory", files: Files | None = None) -> None:
        self._path = path
        self._name = name
        self._files: Files = files or LocalFiles()

    @property
    def name(self) -> str:
        return self._name

    def describe(self) -> dict[str, Json]:
        return {"type": "directory", "target": self._path, "name": self._name}

    def open(self, lineage: str) -> Memory:
        recent: dict[int, str] = {}
        others: dict[str, int] = {}
        enrolled, adopted_by = False, None
        for name in self._files.names(join(self._path, "_lineages")):
            if name.startswith(TEMPORARY):
                continue
            record = json.loads(self._files.read(join(self._path, "_lineages", name)))
            if record["lineage"] == lineage:
                enrolled = True
            else:
                others[record["lineage"]] = NO_EPOCH
                if record["adopts"] == lineage:
                    adopted_by = record["lineage"]
        for name in self._published():
            head = json.loads(self._files.read(join(self._path, name)).split(b"\n", 1)[0])
            epoch = int(name.split(".")[0])
            if head["lineage"] == lineage:
                recent[epoch] = head["offsets"]
            else:
                others[head["lineage"]] = max(others.get(head["lineage"], NO_EPOCH), epoch)
        last = max(recent, default=NO_EPOCH)
        return Memory(self._path, enrolled, last, recent, others, adopted_by)

    def enrol(self, lineage: str, *, adopts: str | None) -> None:
        path = join(self._path, "_lineages", f"{_quoted(lineage)}.json")
        self._files.create(path, json.dumps({"lineage": lineage, "adopts": adopts}).encode())

    def stage(self, attempt: Attempt, rows: Sequence[Json], *, offsets: str) -> Staged:
        head = json.dumps({"lineage": attempt.lineage, "offsets": offsets})
        data = "".join(line + "\n" for line in [head, *map(json.dumps, rows)]).encode()
        failpoints.hit("before-write")
        self._files.create(self._staged(attempt), data)
        failpoints.hit("after-write")
        return Staged(Handle(HANDLE_VERSION, {"bytes": len(data)}), len(rows))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        if handle.version != HANDLE_VERSION:
            raise Refused(
                f"epoch {attempt.epoch}: {self._path} has it staged with a handle of version {handle.version}, this "
                f"epochal knows version {HANDLE_VERSION}. Nothing was changed; run the epochal that staged it"
            )
        target = join(self._path, f"{attempt.key}.{_quoted(attempt.lineage)}")
        if self._files.length(target) == handle.body["bytes"]:
            self._files.delete(self._staged(attempt))
            return Outcome.ALREADY_COMMITTED
        failpoints.hit("before-rename")
        try:
            self._files.rename(self._staged(attempt), target)
        except (FileExistsError, FileNotFoundError) as fault:
            # Another process may have committed the same handle since we looked.
            if self._files.length(target) == handle.body["bytes"]:
                return Outcome.ALREADY_COMMITTED
            if isinstance(fault, FileExistsError):
                raise
            raise DataLost(f"{target}: neither staged nor published with {handle.body['bytes']} bytes") from None
        failpoints.hit("after-rename")
        return Outcome.COMMITTED

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the name says it all
        self._files.delete(self._staged(attempt))

    def leftovers(self, lineage: str) -> list[Attempt]:
        self._sweep(join(self._path, "_lineages"))
        folder = join(self._path, "_staged", _quoted(lineage))
        self._sweep(folder)
        found = (Attempt.from_key(lineage, name) for name in self._files.names(folder))
        return [attempt for attempt in found if attempt is not None]

    def rows(self) -> list[Json]:
        """Every visible row, in order of epoch."""
        found: list[Json] = []
        for name in self._published():
            lines = self._files.read(join(self._path, name)).decode().splitlines()[1:]
            found.extend(map(json.loads, lines))
        return found

    def epochs(self) -> list[int]:
        """The epochs that are visible, one entry for each time."""
        return [int(name.split(".")[0]) for name in self._published()]

    def _published(self) -> list[str]:
        return [name for name in self._files.names(self._path) if Attempt.from_key("", name[:KEY_LENGTH])]

    def _staged(self, attempt: Attempt) -> str:
        return join(self._path, "_staged", _quoted(attempt.lineage), attempt.key)

    def _sweep(self, folder: str) -> None:
        """Remove the temporary files of writers that died; a live one makes its file again."""
        for name in self._files.names(folder):
            if name.startswith(TEMPORARY):
                self._files.delete(join(folder, name))


def from_description(description: dict[str, Json]) -> DirectoryParticipant:
    """The participant that `describe` described."""
    target, name = description.get("target"), description.get("name")
    if not (isinstance(target, str) and isinstance(name, str)):
        raise OptionError("the description of a directory", [f"{description!r} lacks a target or a name"])
    return DirectoryParticipant(target, name=name)


def _quoted(lineage: str) -> str:
    return quote(lineage, safe="")
