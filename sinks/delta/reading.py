"""From an epoch to the version of the table that it made."""

from __future__ import annotations

try:
    from epochal.sinks.delta.commit import Committer
except ModuleNotFoundError as missing:
    if missing.name != "deltalake":
        raise
    raise ModuleNotFoundError(
        "Delta's packages are not installed (deltalake is missing): pip install 'epochal[delta]'", name=missing.name
    ) from None
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.table.commit_notes import committed_epochs
from epochal.sinks.storage.targets import resolve_target
from epochal.txn.errors import Refused


def epoch_version(table: str, lineage: str, epoch: int) -> int:
    """The version of a Delta table that an epoch of a stream made, for time travel to it::

        version = epochal.epoch_version("lake/orders", query.id, 41)
        spark.read.format("delta").option("versionAsOf", version).load("lake/orders")

    `lineage` is the query's id, or a beginning of it that is unique in the table.
    """
    files, target = resolve_target(table)
    found, state = Committer("delta", files, Layout(target)).table()
    if state is None:
        raise Refused(f"{target} is not a Delta table")
    versions = {
        e.lineage: e.version
        for e in committed_epochs(found.commits())
        if e.epoch == epoch and e.lineage.startswith(lineage)
    }
    if len(versions) == 1:
        return next(iter(versions.values()))
    if not versions:
        raise Refused(
            f"{target}: its history has no epoch {epoch} of {lineage!r}. It was never committed, or is older than "
            "delta.logRetentionDuration"
        )
    raise Refused(f"{target}: several streams begin with {lineage!r}: {', '.join(sorted(versions))}")
