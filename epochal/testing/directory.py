"""A participant that writes each epoch as one file of a folder.

Published names include the generation, so an epoch that is committed from two attempts shows as two
files: this participant hides no error of the protocol. Layout::

    target/000000000042.000003.LINEAGE           published: one JSON value a line
    target/_staged/LINEAGE/000000000042.000003
    target/_lineages/claim-000000000007.json     who writes here (`epochal.sinks.storage.register`)

The first line of a file records the lineage, the start and the source offsets of its epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Self
from urllib.parse import quote

from epochal.sinks.storage.register import Register
from epochal.txn import failpoints
from epochal.txn.commit_checks import VisibleEpoch, check_predecessor, check_same_attempt
from epochal.txn.errors import DataLost, OptionError, Refused
from epochal.txn.files import Files, LocalFiles, identity_of, join, sweep
from epochal.txn.model import NO_EPOCH, Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged
from epochal.txn.participant import Abilities

HANDLE_VERSION = 1
failpoints.register("directory", {"write": "the epoch is staged", "rename": "the staged file gets its name"})
KEY_LENGTH = len(Attempt("", 0, 0).key)


class DirectoryParticipant(Abilities):
    """Rows of plain JSON in the files of one folder. It has none of the optional abilities."""

    def __init__(self, path: str, *, name: str = "directory", files: Files | None = None) -> None:
        self._path = path
        self._name = name
        self._files: Files = files or LocalFiles()
        self._register = Register(self._files, join(path, "_lineages"))

    def __repr__(self) -> str:
        return f"DirectoryParticipant({self._path!r}, name={self._name!r})"

    @property
    def name(self) -> str:
        return self._name

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:  # noqa: ARG002  # they have no columns
        return {"type": "directory", "target": self._path, "name": self._name}

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        """The participant that `describe` described."""
        target, name = description.get("target"), description.get("name")
        if not (isinstance(target, str) and isinstance(name, str)):
            raise OptionError("the description of a directory", [f"{description!r} lacks a target or a name"])
        return cls(target, name=name)

    def open(self, lineage: str) -> Memory:
        register = self._register.read()
        recent: dict[int, str] = {}
        others = dict.fromkeys(register.others(lineage), NO_EPOCH)
        for name in self._published():
            head, epoch = self._head(name), int(name.split(".")[0])
            if head["lineage"] == lineage:
                recent[epoch] = str(head["offsets"])
            else:
                others[str(head["lineage"])] = max(others.get(str(head["lineage"]), NO_EPOCH), epoch)
        return Memory(
            self._path,
            enrolled=lineage in register.claims,
            last=max(recent, default=NO_EPOCH),
            recent=recent,
            others=others,
            adopted_by=register.adopted_by(lineage),
            holder=register.claims.get(lineage),
            version=register.version,
            identity=identity_of(self._path),
        )

    def check_frame(self, rows: Sequence[Json]) -> Sequence[str]:  # noqa: ARG002  # any JSON can be stored
        return ()

    def check_output_mode(self, mode: str) -> None:
        pass

    def claim(self, claim: Claim, *, version: int, rows: Sequence[Json] | None = None) -> bool:  # noqa: ARG002  # they have no columns
        sweep(self._files, join(self._path, "_staged", _quoted(claim.lineage)))  # files of dead drivers
        return self._register.claim(claim, version=version)

    def withdraw(self, claim: Claim) -> None:
        self._register.withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        return self._register.read().holder(lineage)

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        attempt = batch.attempt
        head = json.dumps({"lineage": attempt.lineage, "offsets": batch.offsets, "start": attempt.start})
        data = "".join(line + "\n" for line in [head, *map(json.dumps, batch.rows)]).encode()
        failpoints.hit("before-write")
        self._files.create(self._staged(attempt), data)
        failpoints.hit("after-write")
        handle = Handle(HANDLE_VERSION, {"bytes": len(data), "offsets": batch.offsets})
        return Staged(handle, len(batch.rows), bytes=len(data))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        if handle.version != HANDLE_VERSION:
            raise Refused(
                f"epoch {attempt.epoch}: its handle in {self._path} has version {handle.version}, but this "
                f"epochal supports version {HANDLE_VERSION}. Nothing was changed; run the epochal that staged it"
            )
        name = f"{attempt.number}.{_quoted(attempt.lineage)}"
        self._check(attempt, handle, name)
        target = join(self._path, name)
        if self._files.length(target) == handle.body["bytes"]:
            self._files.delete(self._staged(attempt))
            return Outcome.ALREADY_COMMITTED
        failpoints.hit("before-rename")
        try:
            self._files.rename(self._staged(attempt), target)
        except (FileExistsError, FileNotFoundError) as fault:
            # Another process may have committed the same handle meanwhile.
            if self._files.length(target) == handle.body["bytes"]:
                return Outcome.ALREADY_COMMITTED
            if isinstance(fault, FileExistsError):
                raise
            raise DataLost(f"{target}: neither staged nor published with {handle.body['bytes']} bytes") from None
        failpoints.hit("after-rename")
        return Outcome.COMMITTED

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the attempt names the file
        self._files.delete(self._staged(attempt))

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:  # noqa: ARG002  # it stages in its own folder
        folder = join(self._path, "_staged", _quoted(lineage))
        found = (Attempt.from_key(lineage, name) for name in self._files.names(folder))
        return [attempt for attempt in found if attempt is not None]

    def rows(self) -> list[Json]:
        """Every visible row, ordered by epoch."""
        found: list[Json] = []
        for name in self._published():
            lines = self._files.read(join(self._path, name)).decode().splitlines()[1:]
            found.extend(map(json.loads, lines))
        return found

    def epochs(self) -> list[int]:
        """The visible epochs, with one entry for each file."""
        return [int(name.split(".")[0]) for name in self._published()]

    def _published(self) -> list[str]:
        return [name for name in self._files.names(self._path) if Attempt.from_key("", name[:KEY_LENGTH])]

    def _staged(self, attempt: Attempt) -> str:
        return join(self._path, "_staged", _quoted(attempt.lineage), attempt.key)

    def _head(self, name: str) -> dict[str, Json]:
        head: dict[str, Json] = json.loads(self._files.read(join(self._path, name)).split(b"\n", 1)[0])
        return head

    def _check(self, attempt: Attempt, handle: Handle, target: str) -> None:
        """Refuse the epoch if the one before it is missing, or if another start published it under this name."""
        ours = f".{_quoted(attempt.lineage)}"
        epochs = {int(name.split(".")[0]) for name in self._published() if name.endswith(ours)}
        check_predecessor(self._name, self._path, attempt, epochs.__contains__)
        if self._files.length(join(self._path, target)) is not None:
            head = self._head(target)
            shown = VisibleEpoch(attempt.generation, str(head.get("start", "")), str(head["offsets"]))
            offsets = handle.body.get("offsets", shown.offsets)  # older versions did not record them
            check_same_attempt(self._name, self._path, attempt, str(offsets), shown)


def _quoted(lineage: str) -> str:
    return quote(lineage, safe="")
