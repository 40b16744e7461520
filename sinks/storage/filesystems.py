"""Which of Hadoop's file systems the protocol can use: a rename must be atomic, and of two renames to a name one fails.

The scheme decides, before anything is written and before the file system's own code is loaded. Unknown schemes are
refused too, unless the user allows them in Hadoop's settings: a wrong guess here would lose rows, rarely and
silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from epochal.txn.errors import Refused

SETTING = "epochal.atomic.filesystems"  # of Hadoop: schemes that the user allows, separated by commas
ACLS = "fs.capability.paths.acls"  # a capability that only Azure accounts with a hierarchical namespace have

ATOMIC = frozenset({"file", "hdfs"})
AZURE = ("abfs", "abfss")  # if the account has a hierarchical namespace
VIEWS = ("viewfs",)  # if the file systems mounted there are allowed

_OBJECTS = "it is an object store, where a rename is a copy and a removal, and a name can be given twice at a time"
_SERVERS = "what a rename does to a name that is taken is up to its server"
_READ_ONLY = "it can only be read"
# Seen with Hadoop 3.5 as Spark 4.2 brings it: a class is missing there, so a 404 comes as a plain IOException.
_UNTOLD = "Spark's client for it does not tell a missing file from a fault; the same files are at hdfs://"
BROKEN: Mapping[str, str] = {
    **dict.fromkeys(
        ("s3", "s3a", "s3n", "gs", "az", "oss", "cos", "cosn", "obs", "tos", "swift", "wasb", "wasbs"), _OBJECTS
    ),
    **dict.fromkeys(("ftp", "sftp"), _SERVERS),
    **dict.fromkeys(("har", "http", "https"), _READ_ONLY),
    **dict.fromkeys(("webhdfs", "swebhdfs"), _UNTOLD),
}
_BUCKETS = "Ozone does so in buckets of the layout FILE_SYSTEM_OPTIMIZED only"
DEPENDS: Mapping[str, str] = {"ofs": _BUCKETS, "o3fs": _BUCKETS}
_ADVICE = "epochal has written nothing. Use HDFS or a local disk; docs/files.md has the list"


def check(path: str, answered_for: str = "") -> None:
    """Refuse a path whose scheme does not guarantee that only one of two drivers can win a name.

    >>> check("hdfs://host/data")
    >>> check("maprfs:///data", answered_for="maprfs")
    """
    check_known(path)
    scheme = scheme_of(path)
    if not scheme or scheme in ATOMIC or scheme in AZURE or scheme in VIEWS:
        return
    if scheme not in {name.strip().lower() for name in answered_for.split(",")}:
        why = DEPENDS.get(scheme, f"of {scheme} epochal does not know it")
        raise Refused(
            f"{path}: a rename, of files and of folders, must be one step that never takes a name that is taken; "
            f"{why}. {_ADVICE}. If you know that yours does so, say it: spark.hadoop.{SETTING}={scheme}"
        )


def check_known(path: str) -> None:
    """Refuse a path whose scheme can never work."""
    scheme = scheme_of(path)
    if scheme in BROKEN:
        raise Refused(f"{path}: no file of {scheme} can be made exactly once: {BROKEN[scheme]}. {_ADVICE}")


def check_azure(path: str, has: Callable[[str], bool]) -> None:
    """Refuse an Azure account without a hierarchical namespace: it is an object store under the same scheme."""
    if scheme_of(path) in AZURE and not has(ACLS):
        raise Refused(
            f"{path}: no file of this account can be made exactly once: it has no hierarchical namespace, so "
            f"{_OBJECTS}. {_ADVICE}"
        )


def behind(path: str, mounts: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """The places that are mounted at a path of a view. `mounts` are folders of the view and what is mounted there.

    >>> behind("viewfs://shop/data/orders", [("/data", ["hdfs://host/data"]), ("/old", ["s3a://bucket/old"])])
    ['hdfs://host/data']
    """
    below = re.sub(r"^[^:/]+:(//[^/]*)?", "", path)
    found = [place for folder, places in mounts if _is_below(below, folder) for place in places]
    if not found:
        raise Refused(f"{path}: no mount of the view is there. {_ADVICE}. Or name the place itself, such as hdfs://…")
    return found


def scheme_of(path: str) -> str:
    """The scheme of a path; empty if it has none.

    >>> scheme_of("HDFS://host/a"), scheme_of("/a:b")
    ('hdfs', '')
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    return found[1].lower() if found else ""


def _is_below(path: str, folder: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
