"""Opens an object store by the URL of a folder in it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from epochal.sinks.storage.objects import probe
from epochal.sinks.storage.objects.clients import clients_for
from epochal.sinks.storage.objects.patience import Patience
from epochal.sinks.storage.objects.sink_files import ObjectSinkFiles
from epochal.txn.errors import Refused
from epochal.txn.object_paths import one_spelling


def open_files(
    path: str, options: Mapping[str, str] | None = None, *, patience: Patience | None = None
) -> tuple[ObjectSinkFiles, str]:
    """File operations for a folder such as ``s3://bucket/folder``, and its path as epochal spells it.

    Before the first write the store is probed, in a folder beside this one that ends in ``-probe``.
    """
    full, url, folder = _parts(path)
    return _open(url, f"{folder or 'epochal'}-probe", options, patience), full


def open_target(
    path: str, options: Mapping[str, str] | None = None, *, patience: Patience | None = None
) -> tuple[ObjectSinkFiles, str]:
    """The same for the target of a sink. The store is probed below ``_epochal`` in the folder."""
    full, url, folder = _parts(path)
    return _open(url, f"{folder}/_epochal/probe".lstrip("/"), options, patience), full


def _parts(path: str) -> tuple[str, str, str]:
    full = one_spelling(path)
    parts = urlsplit(full)
    if "@" in parts.netloc:  # as old versions of S3A took a key and its secret: not to be shown or stored
        raise Refused(
            f"{parts.scheme}://: a path names a bucket, and no user or password. Nothing was written. Credentials come "
            "from the environment"
        )
    if not parts.netloc or not urlsplit(path).netloc:
        raise Refused(
            f"{path}: it names no bucket. Nothing was written. Write {parts.scheme}://bucket/folder, with two slashes"
        )
    if parts.scheme == "az" and "\\" in path:
        raise Refused(f"{path}: Azure reads a backslash as a slash. Nothing was written. Use a path without one")
    url = f"{parts.scheme}://{parts.netloc}"
    return full, url, full.removeprefix(url).strip("/")


def _open(url: str, probed: str, options: Mapping[str, str] | None, patience: Patience | None) -> ObjectSinkFiles:
    clients, waiting = clients_for(url, options), patience or Patience()
    return ObjectSinkFiles(url, clients.make(), lambda: probe.is_proven(clients, probed, waiting), patience=waiting)
