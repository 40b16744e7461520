"""Where a table is, and what that means: who can commit there, and how delta-rs reaches it.

On a local disk and on an object store delta-rs commits: each creates the log entry under a condition that the store
itself keeps. On other file systems Delta's own code does.

Delta's own code is never asked to write to an object store: its log there (S3SingleDriverLogStore) looks for an entry
and then writes it without a condition, so a second driver could write over an epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from epochal.sinks.storage.objects.clients import CONNECT_TIMEOUT, TIMEOUT, clients_for
from epochal.txn.errors import Refused
from epochal.txn.files import is_local
from epochal.txn.object_paths import is_s3, one_spelling

_OF_URLS = re.compile("[%?#]")
_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\")  # in local paths: delta-rs lists one folder and reads another
MOST_COPIED = 5 << 30  # bytes: S3 copies no larger object in one request

WHY_NOT_SPARK = (
    "on an object store only delta-rs commits. Delta's own code does not write its log there under a condition, so a "
    "second driver could write over an epoch"
)


def is_on_store(target: str) -> bool:
    """Whether a table is on an object store. Of these only S3 is reached."""
    return is_s3(target)


def by_delta_rs(target: str) -> bool:
    """Whether delta-rs reaches tables there, and its commits are safe for any number of processes."""
    return (is_local(target) and not _MISREAD.search(target)) or is_on_store(target)


def check_name(sink: str, target: str) -> None:
    """Refuse a table on an object store that delta-rs would look for elsewhere: it takes the path for a URL."""
    if is_on_store(target) and (found := _OF_URLS.search(target)):
        raise Refused(
            f"sink {sink!r}: {target}: delta-rs cannot name a table on an object store with {found[0]!r} in its path: "
            "it would write to another one. Nothing was written. Use a path without '%', '?' and '#'"
        )


def storage_options(target: str) -> Mapping[str, str] | None:
    """What delta-rs is told about a table's store; None for a local disk.

    Credentials are not in it: delta-rs reads them from the environment, as epochal's own client does.
    """
    if not is_on_store(target):
        return None
    scheme, _, rest = one_spelling(target).partition("://")
    endpoint = clients_for(f"{scheme}://{rest.partition('/')[0]}").endpoint
    options = {
        "conditional_put": "etag",  # a log entry is created under If-None-Match, or not at all
        "timeout": TIMEOUT,
        "connect_timeout": CONNECT_TIMEOUT,
    }
    if endpoint:
        options["endpoint_url"] = endpoint
    if endpoint.startswith("http://"):
        options["allow_http"] = "true"
    return options
