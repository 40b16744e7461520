"""A server that requires TLS and a password: rows go in, and no secret comes out anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from epochal import EpochWriter, PostgresSink
from epochal.cli import main
from epochal.participant import TRUSTED_HOSTS, Claim, Refused
from epochal.sinks.postgres.connection import PASSWORD, USER
from epochal.testing import servers
from integration_tests.cassandra.certificates import Authority
from integration_tests.postgres.tables import LINEAGE, Space, space_on
from integration_tests.spark.queries import to_checkpoint
from integration_tests.spark.world import SCHEMA, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECRET = "tell-nobody-7f3a"


@dataclass(frozen=True)
class Guarded:
    """A schema on the server, and what a client needs to be let in."""

    space: Space
    authority: Authority

    def sink(self, **changes: Any) -> PostgresSink:
        tls = {"sslmode": "verify-full", "ca_file": str(self.authority.file)}
        return self.space.sink(f"{self.space.name}.rows", **{**tls, **changes})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    signed = authority.sign("server")
    tls = {"ssl": "on", "ssl_cert_file": signed.certificate, "ssl_key_file": signed.key}
    with servers.postgres(password=SECRET, settings=tls) as server, space_on(server) as space:
        space.table("rows", "id bigint, file bigint, kind text, word text")
        yield Guarded(space, authority)


def test_a_stream_goes_in_by_tls_and_commands_need_the_hosts_trust(
    spark: SparkSession,
    world: World,
    guarded: Guarded,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    world.feed(1)
    frame = spark.readStream.schema(SCHEMA).parquet(str(world.source))
    EpochWriter(guarded.sink()).start(to_checkpoint(frame, world)).awaitTermination()
    monkeypatch.setenv(USER, guarded.space.server.user)
    monkeypatch.setenv(PASSWORD, SECRET)
    monkeypatch.delenv(TRUSTED_HOSTS, raising=False)
    untrusted = main(["audit", str(world.checkpoint)])
    said = capsys.readouterr()
    trusted = main(["audit", str(world.checkpoint), "--trust", "127.0.0.1"])

    assert guarded.space.execute(f"SELECT count(*) FROM {guarded.space.name}.rows") == [(6,)]
    assert untrusted != trusted
    assert "only the journal names its hosts" in said.out + said.err
    texts = [said.out, said.err, caplog.text, *capsys.readouterr()]
    texts += [path.read_text(errors="replace") for path in world.checkpoint.rglob("*") if path.is_file()]
    assert not [text for text in texts if SECRET in text]


def test_a_wrong_password_or_authority_is_refused_and_not_waited_for(guarded: Guarded, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    for changes, why in (
        ({"password": "wrong"}, "check the user and the password"),
        ({"password": None}, f"give password=, or set {PASSWORD}"),
        ({"ca_file": str(other.file)}, "not signed by ca_file"),
    ):
        with pytest.raises(Refused, match=why) as raised:
            guarded.sink(**changes).open(LINEAGE)
        assert SECRET not in str(raised.value)


def test_a_user_without_rights_is_told_which_it_lacks(guarded: Guarded) -> None:
    space = guarded.space
    with space.connect() as admin:
        admin.execute(f"CREATE ROLE {space.name} LOGIN PASSWORD '{SECRET}'".encode())
        sink = guarded.sink(user=space.name)
        with pytest.raises(Refused, match=r"lacks INSERT on .*rows"):
            sink.open(LINEAGE)
        admin.execute(f"GRANT USAGE ON SCHEMA {space.name} TO {space.name}".encode())
        admin.execute(f"GRANT INSERT ON {space.name}.rows TO {space.name}".encode())
        limited = guarded.sink(user=space.name, ledger_schema=f"{space.name}_none")
        with pytest.raises(Refused, match=r"(?s)may not make epochal's own tables.*CREATE TABLE"):
            claim(limited)
        admin.execute(f"CREATE SCHEMA {space.name}_none AUTHORIZATION {space.name}".encode())

        assert claim(limited)
        with space.connect(user=space.name) as own, pytest.raises(psycopg.errors.InsufficientPrivilege):
            own.execute(f"SELECT * FROM {space.name}.rows".encode())
        admin.execute(f"DROP OWNED BY {space.name} CASCADE; DROP ROLE {space.name}".encode())


def claim(sink: PostgresSink) -> bool:
    made = Claim(lineage=LINEAGE, generation=1, start="a", journal="/j")
    return sink.claim(made, version=sink.open(LINEAGE).version)
