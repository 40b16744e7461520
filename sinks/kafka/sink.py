"""Kafka: rows are staged as files, and sent in one transaction when the epoch is decided.

No transaction is open before the decision, so none can time out and lose a decided epoch. An epoch is committed when
its mark is, in epochal's own topic: it is in the same transaction as the messages. A repeated commit finds it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from epochal.participant import (
    Attempt,
    Batch,
    Claim,
    Handle,
    Json,
    Memory,
    Outcome,
    Refused,
    Scope,
    Staged,
    StagedFiles,
    StoreReport,
    secrets_in,
)
from epochal.sinks.kafka.audit import Auditor
from epochal.sinks.kafka.claims import Claims
from epochal.sinks.kafka.cluster.clients import Cluster, connect
from epochal.sinks.kafka.cluster.endpoint import PASSWORD, USER
from epochal.sinks.kafka.cluster.faults import naming
from epochal.sinks.kafka.cluster.transactions import Sending, held
from epochal.sinks.kafka.commit.committer import Committer
from epochal.sinks.kafka.commit.in_parts import shut_out_lanes
from epochal.sinks.kafka.handle import StagedMessages
from epochal.sinks.kafka.layout import transactional_id
from epochal.sinks.kafka.ledger import Ledger, ledger
from epochal.sinks.kafka.options import KafkaOptions
from epochal.sinks.kafka.stage import messages
from epochal.sinks.kafka.stage.staging import Stager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KafkaSink(KafkaOptions):
    """Topics that get each epoch once, all of it in one transaction.

    >>> KafkaSink("orders", bootstrap_servers=["127.0.0.1:9092"], key="customer")
    KafkaSink('orders', name='kafka')

    A message's value is a JSON object of the row's columns, or what the SQL expression `value` gives; `key`, `headers`,
    `partition` and `timestamp` are expressions too. With several topics `topic_by` chooses one for each row. Consumers
    must read with ``isolation.level=read_committed``; with ``transactions="parts"`` they see an epoch part by part.
    `dead_letters` is a sink that gets the rows which cannot be messages, in the same epoch.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._from_journal = False
        self._files = StagedFiles(self.name, self.staging)

    @property
    def target(self) -> str:
        """The topics as guard, status and logs name them."""
        return f"kafka:{','.join(self.bootstrap_servers)}/{self.place}"

    @property
    def audits(self) -> KafkaSink:
        return self

    @property
    def connect(self) -> KafkaSink:
        return self

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        return self._files.described({**super().describe(rows), "target": self.target})

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        """The sink that a journal describes. Secrets come from the environment, if its hosts may have them."""
        sink = super().from_description(description)
        sink._from_journal = True
        return sink

    # Before the query starts.

    def connect_faults(self) -> list[str]:
        faults = self._files.connect_faults()
        if secrets := secrets_in(self):
            faults.append(
                f"{' and '.join(secrets)}: would be sent to the Spark Connect server with the query. Set {USER} and "
                f"{PASSWORD} in the environment of the server instead"
            )
        return faults

    def check_frame(self, rows: DataFrame) -> Sequence[str]:
        self._files.check_writable(rows)
        with naming(self.name):
            self._stager().check_topics()
        return messages.faults_of(rows, self)

    def check_output_mode(self, mode: str) -> None:
        if mode == "complete":
            raise Refused(
                f"sink {self.name!r} appends messages, and the output mode complete gives all rows again in each "
                "epoch. Nothing was written. Use outputMode('append'), or 'update' for a topic of changes"
            )

    # Who writes here.

    def open(self, lineage: str) -> Memory:
        with naming(self.name):
            cluster = self._cluster()
            topics = cluster.topics(self.topics)
            identities = {name: topic.identity for name, topic in topics.items()}
            identity = f"kafka {cluster.cluster_id()} {','.join(sorted(identities.values()))}"
            state = self._ledger().read(self.place, lineage)
            return state.memory(self.place, lineage, identities, name=self.target, identity=identity)

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:  # noqa: ARG002  # a topic has no columns
        with naming(self.name):
            self._ledger().create()
            claimed = self._claims().claim(claim, version)
            # What earlier starts have begun to commit, of this stream and of those that it replaces, ends here. That
            # the brokers allow such transactions is seen now, and not once an epoch is decided.
            for lineage in (claim.lineage, *claim.replaces) if claimed else ():
                self._shut_out(lineage)
            return claimed

    def withdraw(self, claim: Claim) -> None:
        with naming(self.name):
            self._claims().withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        with naming(self.name):
            return self._claims().read(lineage).holder(lineage)

    # Each epoch.

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        with naming(self.name):
            epoch, received = self._stager().stage(batch.attempt, batch.rows, batch.offsets)
        rows = epoch.staged.rows
        return Staged(
            epoch.handle(),
            rows,
            seen=received if received != rows else None,
            digest=epoch.digest,
            bytes=epoch.staged.bytes,
        )

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        epoch = StagedMessages.read(handle)
        with naming(self.name, waits=False):
            return self._committer().commit(attempt, epoch)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._files.delete(attempt, None if handle is None else StagedMessages.read(handle).staged)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return self._files.leftovers(lineage, scratch)

    # What it can do beyond that.

    def rejected(self, rows: DataFrame) -> DataFrame:
        """The rows that cannot be messages, with the reason for each."""
        with naming(self.name):
            return self._stager().rejected(rows)

    def audit(self, scope: Scope) -> StoreReport:
        """Read the epochs that have marks, as a reader of committed messages does."""
        with naming(self.name):
            cluster = self._cluster()
            topics = cluster.topics(self.topics)
            state = self._ledger().read(self.place, scope.lineage)
            identities = {name: topic.identity for name, topic in topics.items()}
            return Auditor(cluster, topics).audit(scope, state.marks(self.place, scope.lineage, identities))

    def _cluster(self) -> Cluster:
        return connect(self.endpoint(from_journal=self._from_journal))

    def _ledger(self) -> Ledger:
        return ledger(self._cluster(), self.ledger_topic)

    def _claims(self) -> Claims:
        return Claims(self._cluster(), self._ledger(), self.ledger_topic, self.place)

    def _stager(self) -> Stager:
        return Stager(self, self._cluster().topics(self.topics), self._files)

    def _committer(self) -> Committer:
        return Committer(
            options=self, where=self.target, cluster=self._cluster(), ledger=self._ledger(), files=self._files
        )

    def _shut_out(self, lineage: str) -> None:
        sending = Sending(timeout=self.timeout)
        with held(self._cluster(), transactional_id(self.place, lineage)) as transactions:
            transactions.drop()
            transactions.producer(sending)
            transactions.drop()
        # Nobody can record more lanes of that stream from here on, but the one who holds the id next.
        lanes = self._ledger().lanes(self.place, lineage)
        shut_out_lanes(self._cluster(), self.place, lineage, lanes, sending)
