"""Rolling files whose epochs are staged without Spark, by plain requests, as its executors would leave them.

Everything but the staging is the sink's own. A staged file has no identity of epochal's, and there are markers of
folders, as S3A makes them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from epochal import RollingFileSink
from epochal.sinks.files.handle import Rename, StagedEpoch
from epochal.sinks.files.layout import DATA, Layout, part_name
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.files.policies.completion import Marks
from epochal.sinks.files.sink import Looked
from epochal.sinks.files.untouched import versions_of
from epochal.sinks.storage.objects import ObjectSinkFiles
from epochal.txn import failpoints
from epochal.txn.model import Batch, Claim, Json, Staged
from epochal.txn.object_paths import one_spelling

BUCKETS = 2
TRIES = 30


class FilesByHand(RollingFileSink):
    """A sink of rows that are JSON: each row is a file, in a bucket by its index."""

    _options: Mapping[str, str]

    @staticmethod
    def on(target: str, name: str, files: ObjectSinkFiles, options: Mapping[str, str]) -> FilesByHand:
        sink = FilesByHand(target, format="json", bucket_by=["bucket"], name=name, marker="epoch")
        sink._bound = files, Layout(target)
        sink._options = options
        return sink

    def describe(self, rows: Any = None) -> dict[str, Json]:  # no frame has a schema here
        return super().describe()

    def check_frame(self, rows: Any) -> list[str]:
        return []

    def claim(self, claim: Claim, *, version: int, rows: Any = None) -> bool:
        return super().claim(claim, version=version)

    def stage(self, batch: Batch[Any]) -> Staged:
        attempt, rows = batch.attempt, batch.rows
        failpoints.hit("before-write")
        files = self._write(self._place()[1].attempt(attempt), rows)
        failpoints.hit("after-write")
        renames: list[Rename] = []
        for bucket, name, length in files:
            renames.append((f"{DATA}/{name}", f"{bucket}{part_name(attempt, len(renames), name)}", length))
        versions = versions_of(*self._place(), attempt, renames, {})
        epoch = StagedEpoch(EpochFacts(len(rows), batch.offsets), files=tuple(renames), versions=versions)
        opened = self._opened(batch.state)
        return self._staged(attempt, epoch, opened, batch.edit(), Looked(), Marks(), 0.0, {})

    def _write(self, home: str, rows: Sequence[Json]) -> list[tuple[str, str, int]]:
        self._put(f"{home}/{DATA}/_temporary/0/", b"")
        written = []
        for number, row in enumerate(rows):
            bucket, data = f"bucket={number % BUCKETS}/", json.dumps(row).encode() + b"\n"
            name = f"{bucket}part-{number:05d}-5a-c000.json"
            self._put(f"{home}/{DATA}/{bucket}", b"")
            self._put(f"{home}/{DATA}/{name}", data)
            written.append((bucket, name, len(data)))
        return written

    def _put(self, path: str, data: bytes) -> None:
        address = self._signed(one_spelling(path.rstrip("/")), is_folder=path.endswith("/"))
        put = urllib.request.Request(address, data, {"Content-Type": "application/octet-stream"}, method="PUT")
        for _ in range(TRIES):
            try:
                with urllib.request.urlopen(put, timeout=10):
                    return
            except OSError:
                continue  # the proxy of the test has lost the answer
        raise OSError(f"{path}: could not be written")

    def _signed(self, path: str, *, is_folder: bool) -> str:
        """An address that may be put to. obstore drops the slash that a folder's marker ends with."""
        import obstore
        from obstore.store import S3Store

        bucket, key = urlsplit(path).netloc, urlsplit(path).path.lstrip("/")
        config: Any = {**self._options, "virtual_hosted_style_request": "false"}
        place, name = (f"{bucket}/{quote(key, safe='/~')}", "") if is_folder else (bucket, key)
        store = S3Store(place, config=config, client_options={"allow_http": True})
        return obstore.sign(store, "PUT", name, timedelta(minutes=5))
