"""What a client asks of its server (`calls`): how a checkpoint stands, and to settle it.

Both need files only, and no session: those of the server's machine, and HDFS by WebHDFS. `state_of` runs in the client
too, to tell whether both see the same checkpoint.
"""

from __future__ import annotations

import pickle
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from epochal._version import __version__
from epochal.sinks.config.kinds import class_of
from epochal.sinks.storage.connect import check_reachable
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.run import open_journal
from epochal.txn.access import refuse_unreachable
from epochal.txn.cut_file import CutFile
from epochal.txn.errors import NotSettled, Refused, SinkUnavailable
from epochal.txn.files import Files, is_local, join, local_path
from epochal.txn.incarnations import current_journal
from epochal.txn.journal import Journal, scratch_beside
from epochal.txn.model import Json
from epochal.txn.participant import Participant
from epochal.txn.plan import decided_not_done
from epochal.txn.recovery import Recovery, Sinks
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.settler import Retrying


def check_version(client: str) -> None:
    """Refuse a client that has another version of epochal."""
    if client != __version__:
        raise Refused(
            f"the client has epochal {client}, the server {__version__}. Nothing was written. Install the same version "
            "on both"
        )


def state_of(checkpoint: str, journal: str | None) -> dict[str, Json]:
    """How a checkpoint stands; empty if there is none yet. Two that differ in anything that counts have two states."""
    files, path = _reached(checkpoint)
    with refuse_unreachable(f"the checkpoint {path}, or its journal,", "Can the server's user read it?"):
        if files.length(join(path, "metadata")) is None:
            return {}
        found = SparkCheckpoint(files, path)
        incarnation, current = current_journal(lambda number: _journal(path, journal, number))
        view = current.read()
        committed = found.committed()
    return {
        "query": found.query_id(),
        "planned": found.planned(),
        "committed": committed,
        "incarnation": incarnation,
        "generation": view.generation,
        "start": view.start_of(view.generation),
        "done": view.done_through,
        "unsettled": [] if view.latest is None else list(decided_not_done(view, committed)),
    }


def settle(checkpoint: str, journal: str | None, query: str, sinks: str, timeout: float) -> None:
    """Bring every decided epoch to done. NotSettled if a store does not answer for `timeout` seconds.

    `sinks` are the client's own, pickled, as they go to the server with the writer. Every step is idempotent and safe
    beside the process that writes batches.
    """
    files, path = _reached(checkpoint)
    own: Sequence[Participant[Any]] = pickle.loads(b64decode(sinks))
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
        return _journal(path, journal, incarnation)

    scratch = scratch_beside(resolve(journal or join(spark_path(path), "epochal"))[1])
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


def _reached(checkpoint: str) -> tuple[Files, str]:
    check_reachable(checkpoint)
    return resolve(checkpoint)


def _journal(path: str, given: str | None, incarnation: int) -> Journal:
    if given is not None:
        check_reachable(given)
    return open_journal(spark_path(path), given, incarnation)


def _sink(description: Mapping[str, Json], own: Sequence[Participant[Any]]) -> Participant[Any]:
    """The client's own sink if it is the one that is described, else one like it.

    Its own may get the secrets of this process: not only the journal names its hosts.
    """
    for sink in own:
        if sink.name == description.get("name") and _target_of(sink) == description.get("target"):
            return sink
    found = class_of(str(description.get("type", "")))
    if found is None:
        raise SinkUnavailable(f"sink {description.get('name')!r}: its kind is not installed on the server")
    return found.from_description(description)


def _target_of(sink: Participant[Any]) -> Json:
    """Where a sink writes; None if that cannot be told here, where no session resolves paths."""
    try:
        return sink.describe().get("target")
    except Refused:
        return None


FUNCTIONS: Mapping[str, Callable[..., Json]] = {"state_of": state_of, "settle": settle}
