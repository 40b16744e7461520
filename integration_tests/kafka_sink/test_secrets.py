"""A broker with TLS, passwords and rights: who gets in, what is refused before anything is staged, what is not said."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from epochal import KafkaSink, Refused
from epochal.participant import SinkUnavailable
from epochal.sinks.config.trust import trusting
from epochal.sinks.kafka.cluster.endpoint import PASSWORD, USER
from epochal.sinks.kafka.layout import MARKS
from epochal.testing import servers
from epochal.testing.servers.ports import free_port
from epochal.txn.model import Outcome
from integration_tests.cassandra.certificates import Authority
from integration_tests.kafka_sink.consuming import Target
from integration_tests.kafka_sink.epochs import LINEAGE, frame, stage, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "hunter2-of-the-writer"
TOPIC = "guarded"
RIGHTS = {
    (ResourceType.TOPIC, TOPIC): (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE),
    (ResourceType.TOPIC, MARKS): (
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
    ),
    (ResourceType.TRANSACTIONAL_ID, "epochal-"): (AclOperation.DESCRIBE, AclOperation.WRITE),
    (ResourceType.GROUP, "epochal"): (AclOperation.DESCRIBE, AclOperation.READ),
}


@dataclass(frozen=True)
class Guarded:
    """A broker that lets in whoever has the password, by TLS, and lets them do what they may."""

    plain: str  # where the tests themselves are let in, as a user who may do everything
    secure: str
    ca_file: str

    def sink(self, staging: str = "", **options: Any) -> KafkaSink:
        login = {"tls": True, "ca_file": self.ca_file, "sasl": "PLAIN", "user": "writer", "password": SECRET}
        given = {**login, **options, **({"staging": staging} if staging else {})}
        return KafkaSink(TOPIC, bootstrap_servers=[self.secure], **given)

    def allow(self, *without: tuple[ResourceType, AclOperation]) -> None:
        """Give the writer all rights that the docs name, but for some."""
        admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})
        anybody: Any = None
        everything = AclBindingFilter(
            ResourceType.ANY,
            anybody,
            ResourcePatternType.ANY,
            anybody,
            anybody,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in admin.delete_acls([everything]).values():
            future.result(30)
        given = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, "User:writer", "*", operation, AclPermissionType.ALLOW)
            for (kind, name), operations in RIGHTS.items()
            for operation in operations
            if (kind, operation) not in without
        ]
        for future in admin.create_acls(given).values():
            future.result(30)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("guarded")
    authority = Authority(home)
    port = free_port(["127.0.0.1"])
    secure, controller = free_port(["127.0.0.1"], [port]), free_port(["127.0.0.1"], [port])
    plain_login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listeners": f"CLIENTS://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"CLIENTS://127.0.0.1:{port},SECURE://127.0.0.1:{secure}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(authority.sign("broker").both),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{plain_login} user_writer="{SECRET}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with servers.kafka(own=True, settings=settings, port=port) as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        made = Guarded(cluster.bootstrap, f"127.0.0.1:{secure}", str(authority.file))
        made.allow()
        yield made


@pytest.fixture
def allowed(guarded: Guarded) -> Guarded:
    guarded.allow()
    return guarded


def test_a_writer_with_the_rights_that_the_docs_name_writes_and_audits(
    spark: SparkSession, allowed: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = allowed.sink(str(tmp_path / "staged"))
    before = len(Target(allowed.plain, TOPIC).messages())
    attempt, handle = write(sink, sink.open(LINEAGE).last + 1, frame(spark, 1, 2))

    assert len(Target(allowed.plain, TOPIC).messages()) == before + 2
    assert sink.commit(attempt, handle) is Outcome.ALREADY_COMMITTED
    for text in (json.dumps(sink.describe()), json.dumps(handle.to_json()), repr(sink), caplog.text):
        assert SECRET not in text


WRONG = {
    "password": ({"password": "wrong"}, "check user, password and sasl"),
    "no TLS": ({"tls": False, "ca_file": None}, "Kafka at"),
    "another authority": ({"ca_file": None}, "check tls, ca_file"),
}


@pytest.mark.parametrize(("options", "advice"), WRONG.values(), ids=WRONG)
def test_a_connection_that_cannot_work_says_what_to_do(allowed: Guarded, options: Any, advice: str) -> None:
    with pytest.raises((Refused, OSError)) as raised:
        allowed.sink(**options).open(LINEAGE)

    assert advice in str(raised.value)
    assert "wrong" not in str(raised.value)


MISSING = {
    "to write the topic": (ResourceType.TOPIC, AclOperation.WRITE),
    "to describe its settings": (ResourceType.TOPIC, AclOperation.DESCRIBE_CONFIGS),
    "to use transactions": (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
}


@pytest.mark.parametrize("right", MISSING.values(), ids=MISSING)
def test_a_right_that_is_missing_is_refused_before_anything_is_staged(
    spark: SparkSession, guarded: Guarded, tmp_path: Path, right: tuple[ResourceType, AclOperation]
) -> None:
    guarded.allow(right)
    sink = guarded.sink(str(tmp_path / "staged"))
    with pytest.raises(Refused, match="llow"):
        stage(sink, 0, frame(spark, 1), lineage=str(uuid.uuid4()))  # a start of its own, as every query has

    assert not list(tmp_path.glob("staged/*/*/*/*"))


def test_a_journal_does_not_send_the_password_to_hosts_that_nobody_named(
    spark: SparkSession, allowed: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = allowed.sink(str(tmp_path / "staged"))
    attempt, handle = stage(sink, sink.open(LINEAGE).last + 1, frame(spark, 1))
    monkeypatch.setenv(USER, "writer")
    monkeypatch.setenv(PASSWORD, SECRET)
    rebuilt = KafkaSink.from_description(sink.describe())
    with pytest.raises(SinkUnavailable, match=r"only the journal names its hosts.*--trust"):
        rebuilt.commit(attempt, handle)
    with trusting("127.0.0.1"):
        assert rebuilt.commit(attempt, handle) is Outcome.COMMITTED
    assert replace(rebuilt.endpoint(), from_journal=True).password is None
