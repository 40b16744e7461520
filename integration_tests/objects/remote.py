"""A world whose targets are on an object store, and a copy of them here for checks that read bare files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore.store import from_url

from epochal.testing.servers.store_server import StoreServer
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class Remote:
    """One folder of a bucket, read by a client that is not epochal's."""

    def __init__(self, store: StoreServer, folder: str, root: Path, *, checkpoint: bool = False) -> None:
        """With `checkpoint`, that is on the store too."""
        self.store, self.uri, self.world, self.checkpoint = store, folder, World(root), checkpoint
        options: Any = store.options
        self._store: ObjectStore = from_url(folder, config=options, client_options={"allow_http": True})
        self._seen: dict[tuple[str, str], bytes | None] = {}  # by key and entity tag, which follows from the content

    @property
    def arguments(self) -> Sequence[str]:
        """The driver's options for it. The environment says where the store is."""
        return "--s3", "--at" if self.checkpoint else "--targets", self.uri

    def objects(self, below: str = "") -> list[str]:
        """Every object, markers of folders too."""
        return sorted(self._tags(below))

    def _tags(self, below: str) -> dict[str, str | None]:
        """The entity tag of every object."""
        return {meta["path"]: meta["e_tag"] for page in obstore.list(self._store, below or None) for meta in page}

    def read(self, key: str) -> bytes:
        """An object's content; nothing if it is a folder's marker."""
        return self._found(key) or b""

    def _found(self, key: str) -> bytes | None:
        """An object's content; None if it is a folder's marker, whose name goes on with a slash."""
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:
            return None

    def look(self) -> World:
        """The world as it is now, with the targets copied here."""
        for name in (*(["checkpoint"] if self.checkpoint else []), "first", "second", "table"):
            self._copy(name, lambda key: self.world.root / key)
        return self.world

    def look_at_journal(self, journal: str) -> World:
        """The same, and a journal that is on the store where it would be by default."""
        self.copy_journal(journal)
        return self.look()

    def copy_journal(self, journal: str) -> None:
        """Copy a journal that is on the store to where it would be by default."""
        self._copy(journal, lambda key: self.world.journal / key.removeprefix(f"{journal}/"))

    def _copy(self, folder: str, place: Callable[[str], Path]) -> None:
        shutil.rmtree(place(folder + "/x").parent, ignore_errors=True)
        tags = self._tags(folder)
        folders = {key[:end] for key in tags for end, sign in enumerate(key) if sign == "/"}
        for key, tag in sorted(tags.items()):
            if key in folders:
                continue
            if tag is None or (key, tag) not in self._seen:
                self._seen[key, tag or ""] = self._found(key)
            path, data = place(key), self._seen[key, tag or ""]
            (path.parent if data is not None else path).mkdir(parents=True, exist_ok=True)
            if data is not None:
                path.write_bytes(data)
