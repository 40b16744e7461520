"""What a client asks of its server (`calls`): to check a checkpoint, and to settle it.

Both need files only, those of the server's machine and HDFS by WebHDFS, and no session.
"""

from __future__ import annotations

import pickle
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochal._version import __version__
from epochal.sinks.config.kinds import class_of
from epochal.sinks.storage import connect
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.journals import resolve_journal, scratch_for
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.coordinators import open_journal
from epochal.txn.access import refuse_unreachable
from epochal.txn.cut_file import CutFile
from epochal.txn.errors import NotSettled, Refused, SinkUnavailable
from epochal.txn.files import is_local, join, local_path
from epochal.txn.incarnations import current_journal
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.participant import Participant
from epochal.txn.plan import decided_not_done
from epochal.txn.recovery import Recovery, Sinks
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.settler import Retrying

if TYPE_CHECKING:
    from epochal.spark_plugins.writer import EpochWriter


def check_version(client: str) -> None:
    """Refuse a client that has another version of epochal."""
    if client != __version__:
        raise Refused(
            f"the client has epochal {client}, the server {__version__}. Nothing was written. Install the same version "
            "on both"
        )


def check(checkpoint: str, journal: str | None, writer: str, folders: Mapping[str, str]) -> dict[str, Json]:
    """Refuse a checkpoint that does not fit the sinks, as `EpochWriter.start` does elsewhere. Writes nothing.

    Returns what earlier runs have left to settle: the query's id and the epochs.
    """
    with connect.resolving(folders):
        files, path = resolve(checkpoint)
        with refuse_unreachable(f"the checkpoint {path}, or its journal,", "Can the server's user read it?"):
            _writer(writer).check_place(files, path)
            if files.length(join(path, "metadata")) is None:
                return {"query": "", "epochs": []}
            found = SparkCheckpoint(files, path)
            view = current_journal(lambda number: open_journal(spark_path(path), journal, number))[1].read()
            epochs = [] if view.latest is None else decided_not_done(view, found.committed())
            return {"query": found.query_id(), "epochs": list(epochs)}


def settle(
    checkpoint: str, journal: str | None, writer: str, folders: Mapping[str, str], query: str, timeout: float
) -> None:
    """Bring every decided epoch to done. NotSettled if a store does not answer for `timeout` seconds.

    Every step is idempotent and safe beside the process that writes batches.
    """
    with connect.resolving(folders):
        _settle(checkpoint, journal, _writer(writer).sinks, query, timeout)


def _settle(checkpoint: str, journal: str | None, own: Sequence[Participant[Any]], query: str, timeout: float) -> None:
    files, path = resolve(checkpoint)
    reports = reporter(stream=stream_name(path))

    def settle_once() -> None:
        found = SparkCheckpoint(files, path)
        if (here := found.query_id()) != query:
            raise Refused(f"{path} is the checkpoint of query {here}, not of {query}. Nothing was changed")
        view = current_journal(journals)[1].read()
        if view.latest is None:
            return  # no batch has run
        recovery = Recovery(
            journals=journals,
            checkpoint=found,
            sinks=Sinks(view, lambda description: _sink(description, own), scratch=scratch),
            on_commit=lambda *_: None,
            reporter=reports,
        )
        recovery.settle()
        CutFile().bring_up_to_date(recovery.journal)

    def journals(incarnation: int) -> Journal:
        return open_journal(spark_path(path), journal, incarnation)

    scratch = scratch_for(resolve_journal(journal or join(spark_path(path), "epochal"))[1], spark_path(path))
    try:
        Retrying(settle_once, reporter=reports, lineage=lambda: query).settle(timeout)
    except NotSettled as fault:
        raise NotSettled(
            f"{fault.__cause__}. What is decided is safe. Run `{recover_command(checkpoint, journal)}` on the server's "
            "machine, or start the query again"
        ) from fault


def recover_command(checkpoint: str, journal: str | None) -> str:
    """What to run where the checkpoint can be reached."""
    path = local_path(checkpoint) if is_local(checkpoint) else checkpoint
    return f"epochal recover {path}" + ("" if journal is None else f" --journal {journal}")


def _writer(pickled: str) -> EpochWriter:
    """The client's writer, as it goes to the server for batches too."""
    writer: EpochWriter = pickle.loads(b64decode(pickled))
    return writer


def _sink(description: Mapping[str, Json], own: Sequence[Participant[Any]]) -> Participant[Any]:
    """The client's own sink if it is the one that is described, else one like it.

    Its own may get the secrets of this process: not only the journal names its hosts.
    """
    for sink in own:
        if sink.name == description.get("name") and sink.describe().get("target") == description.get("target"):
            return sink
    found = class_of(str(description.get("type", "")))
    if found is None:
        raise SinkUnavailable(f"sink {description.get('name')!r}: its kind is not installed on the server")
    return found.from_description(description)


FUNCTIONS: Mapping[str, Callable[..., Json]] = {"check": check, "settle": settle}
