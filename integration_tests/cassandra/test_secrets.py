"""A server that wants TLS, a certificate and a password: rows go in, and no secret comes out anywhere."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

from epochal import CassandraSink, Connection, EpochWriter
from epochal.sinks.cassandra.cluster.endpoint import PASSWORD, USER
from epochal.sinks.config.trust import HOSTS, trusting
from epochal.testing import servers
from epochal.testing.servers import CassandraCluster
from epochal.txn.errors import Refused
from integration_tests.cassandra.certificates import Authority, Signed
from integration_tests.cassandra.tables import LINEAGE, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECRET = "tell-nobody-7f3a"


@dataclass(frozen=True)
class Guarded:
    """The server, what a client needs to be let in, and a session that is in."""

    server: CassandraCluster
    authority: Authority
    client: Signed
    session: Any

    def sink(self, **changes: Any) -> CassandraSink:
        options: dict[str, Any] = {
            "contact_points": self.server.hosts,
            "port": self.server.port,
            "tls": True,
            "ca_file": str(self.authority.file),
            "cert_file": str(self.client.certificate),
            "key_file": str(self.client.key),
            "user": "writer",
            "password": SECRET,
        }
        connection = Connection(**{**options, **{name: changes.pop(name) for name in options if name in changes}})
        return CassandraSink("guarded.rows", connection=connection, **changes)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    client = authority.sign("writer")
    settings = {
        "authenticator": "PasswordAuthenticator",
        "client_encryption_options": {
            "enabled": True,
            "optional": False,
            "require_client_auth": True,
            "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
            "keystore": authority.sign("server").both,
            "truststore": authority.file,
        },
    }
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(client.certificate, client.key)
    with servers.cassandra(settings=settings) as server:
        login = PlainTextAuthProvider("cassandra", "cassandra")
        cluster = Cluster(server.hosts, port=server.port, ssl_context=context, auth_provider=login, connect_timeout=30)
        session = cluster.connect()
        session.execute(f"CREATE ROLE writer WITH PASSWORD = '{SECRET}' AND LOGIN = true")
        session.execute(
            "CREATE KEYSPACE guarded WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE guarded.rows (id bigint PRIMARY KEY)")
        yield Guarded(server, authority, client, session)
        cluster.shutdown()


def test_a_stream_goes_in_and_leaves_no_secret_in_journal_log_or_description(
    spark: SparkSession, guarded: Guarded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "epochal")
    spark.range(10).coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).writeStream
    stream = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    sink = guarded.sink()
    EpochWriter(sink).start(stream).awaitTermination()

    assert {row.id for row in guarded.session.execute("SELECT id FROM guarded.rows")} == set(range(10))
    written = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert any(path.parent.name == "epochal" for path in written)
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in caplog.text
    assert SECRET not in f"{sink!r} {sink.describe()} {vars(sink)}"


def test_a_sink_rebuilt_from_the_journal_takes_its_password_from_the_environment(
    spark: SparkSession, guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = guarded.sink(staging=str(tmp_path))
    attempt, handle = stage(sink, 0, spark.range(100, 110))
    rebuilt = CassandraSink.from_description(sink.describe())
    monkeypatch.setenv(HOSTS, ",".join(guarded.server.hosts))
    with pytest.raises(
        Refused, match=r"AuthenticationFailed.*it requires a user and a password: give Connection\(user="
    ):
        rebuilt.commit(attempt, handle)
    monkeypatch.setenv(USER, "writer")
    monkeypatch.setenv(PASSWORD, SECRET)
    rebuilt.commit(attempt, handle)

    assert {row.id for row in guarded.session.execute("SELECT id FROM guarded.rows")} >= set(range(100, 110))


def test_hosts_that_only_a_journal_names_get_no_secret(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USER, "writer")
    monkeypatch.setenv(PASSWORD, SECRET)
    described = guarded.sink(staging=str(tmp_path)).describe()

    with pytest.raises(Refused, match=f"only the journal names its hosts.*--trust {guarded.server.hosts[0]}"):
        CassandraSink.from_description(described).open(LINEAGE)
    with trusting(guarded.server.hosts[0]):
        assert CassandraSink.from_description(described).open(LINEAGE).target


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"password": f"{SECRET}-not"}, "check the user and the password"),
        (
            {"user": None, "password": None},
            "it requires a user and a password: give Connection(user=",
        ),
        ({"ca_file": "OTHER"}, "the server's certificate is not signed by ca_file"),
        ({"ca_file": "nowhere.pem"}, "No such file or directory; check ca_file, cert_file and key_file"),
    ],
)
def test_who_is_not_let_in_is_told_why_without_a_secret(
    guarded: Guarded, tmp_path: Path, changes: dict[str, Any], answer: str
) -> None:
    if changes.get("ca_file") == "OTHER":
        changes = {"ca_file": str(Authority(tmp_path).file)}
    with pytest.raises(Refused) as found:
        guarded.sink(**changes).open(LINEAGE)

    assert str(found.value).startswith(f"sink 'cassandra': Cassandra at {guarded.server.hosts[0]}, port ")
    assert answer in str(found.value)
    assert SECRET not in str(found.value)
