"""A stream's options: all faults of all its parts at once, with the nearest right names; secrets in their place."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from epochal import CassandraSink
from epochal.sinks.config import kinds
from epochal.sinks.config.declaring import Option, SinkName, SinkOptions, declared
from epochal.sinks.config.options import Faults
from epochal.spark_plugins.streams.checking import check_settings
from epochal.spark_plugins.streams.definition import define
from epochal.spark_plugins.streams.options import parse_trigger
from epochal.spark_plugins.streams.reading import from_settings
from epochal.spark_plugins.streams.report import AWAY, FAULTS, OK, Report, StreamReport
from epochal.spark_plugins.streams.secrets import resolve_session
from epochal.testing import DirectoryParticipant
from epochal.txn.errors import OptionError
from tests.spark_plugins.streams.texts import GOOD, defined, faults, read

SECRET = "hunter2"  # it is to be looked for


def test_all_faults_of_all_streams_come_with_the_nearest_right_names(tmp_path: Path) -> None:
    text = """
        [streams.orders]
        chekpoint = "c"
        trigger = "avaliable_now"
        output_mode = "apend"
        comit = "eager"
        source = "json"
        [streams.orders.watermark]
        colum = "ts"
        [streams.orders.sinks.archive]
        type = "fils"
        [streams.payments]
        checkpoint = "c"
        [streams.payments.source]
        formt = "rate"
        options = "x"
        [streams.payments.sinks.lake]
        type = "delta"
        path = "lake"
        mod = "upsert"
    """

    nothing = "neither an option of the stream, of the writer nor of a sink in streams.orders.sinks"
    triggers = "'available_now' or 'processing_time=10 s'; did you mean 'available_now'?"
    installed = "'cassandra', 'delta', 'directory', 'files', 'kafka', 'postgres'"
    assert faults(tmp_path, text) == [
        "streams.orders.source: has options of its own, such as streams.orders.source.format",
        "streams.orders.checkpoint: missing",
        f"streams.orders.trigger='avaliable_now': {triggers}",
        "streams.orders.output_mode='apend': must be one of 'append', 'update', 'complete'; did you mean 'append'?",
        "streams.orders.source.format: missing",
        "streams.orders.watermark.colum: no option of a watermark; did you mean 'column'?",
        "streams.orders.watermark.column: missing",
        "streams.orders.watermark.delay: missing",
        f"streams.orders.sinks.archive.type='fils': must be one of {installed}; did you mean 'files'?",
        f"streams.orders.chekpoint: {nothing}; did you mean 'checkpoint'?",
        f"streams.orders.comit: {nothing}; did you mean 'commit'?",
        "streams.payments.source.formt: no option of a source; did you mean 'format'?",
        "streams.payments.source.options: no option of a source",
        "streams.payments.source.format: missing",
        "streams.payments.sinks.lake.mod: no option of a delta sink; did you mean 'mode'?",
    ]


@pytest.mark.parametrize("lines", ["", "[streams.a.sinks]"])
def test_a_stream_without_sinks_is_refused(tmp_path: Path, lines: str) -> None:
    found = faults(tmp_path, f'[streams.a]\ncheckpoint = "c"\nsource.format = "rate"\n{lines}')

    assert found == ["streams.a.sinks: missing; a stream needs one sink at least"]


def test_a_sink_cannot_have_the_name_of_a_streams_option() -> None:
    settings = {"source.format": "rate", "checkpoint": "c", "sinks": "sql", "sql.type": "files", "sql.path": "x"}
    (stream,) = define(from_settings({f"spark.epochal.a.{key}": text for key, text in settings.items()}))

    assert any("'sql' is the name of a stream's option" in fault for fault in stream.faults)


def test_two_sinks_of_one_name_are_refused() -> None:
    settings = {"source.format": "rate", "checkpoint": "c", "sinks": "x, x", "x.type": "files", "x.path": "x"}
    (stream,) = define(from_settings({f"spark.epochal.a.{key}": text for key, text in settings.items()}))

    assert stream.faults == ("spark.epochal.a: sinks: 'x' is the name of several; give each a name= of its own",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("available_now", {"availableNow": True}),
        ("processing_time=10 s", {"processingTime": "10000 milliseconds"}),
        ("processing_time = 1.5 min", {"processingTime": "90000 milliseconds"}),
        ("processing_time=0 s", {"processingTime": "0 milliseconds"}),
    ],
)
def test_triggers(text: str, expected: dict[str, object]) -> None:
    assert parse_trigger(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("once", "use 'available_now'"),
        ("continuous=1 s", "no micro-batches"),
        ("real-time", "before the checkpoint"),
        ("realTime=5 min", "before the checkpoint"),
        ("processing_time", "'processing_time=10 s'"),
        ("processing_time=soon", "a time above 0"),
        ("processing_time=-1 s", "a time above 0"),
        ("available_now=1", "'available_now' or"),
        ("", "'available_now' or"),
        (5, "'available_now' or"),
    ],
)
def test_triggers_that_cannot_be_exactly_once_or_do_not_exist_are_refused(text: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_trigger(text)


def test_two_streams_of_one_query_name_or_journal_are_a_fault(tmp_path: Path) -> None:
    one = GOOD.replace("[streams.orders]", '[streams.orders]\njournal = "j"')
    other = one[one.index("[streams.orders]") :].replace("streams.orders", "streams.payments")
    text = one + other.replace("[streams.payments]", '[streams.payments]\nquery_name = "orders"')

    assert check_settings(read(tmp_path, text)).report.faults == [
        "streams 'orders', 'payments' have the same query_name, orders; give each its own",
        "streams 'orders', 'payments' have the same journal, j; give each its own",
    ]


# Secrets


@declared
@dataclass(frozen=True, eq=False, repr=False)
class VaultOptions(SinkOptions):
    kind: ClassVar[str] = "vault"

    path: Annotated[str, Option("where it is", journal="target")]
    _: KW_ONLY
    name: SinkName = "vault"
    pin: Annotated[str | None, Option("opens it", secret=True)] = None


class VaultSink(VaultOptions, DirectoryParticipant):
    def __post_init__(self) -> None:
        super().__post_init__()
        DirectoryParticipant.__init__(self, self.path, name=self.name)


class Point:
    name = "vault"

    def load(self) -> object:
        return VaultSink


@pytest.fixture
def _with_vaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of sink that another package brings, with a secret whose name says nothing."""
    monkeypatch.setattr(
        kinds,
        "entry_points",
        lambda *, group, name="vault": [Point()] if name == "vault" else list(entry_points(group=group, name=name)),
    )


SERVING = """
[streams.orders.sinks.serving]
type = "cassandra"
table = "shop.orders"
user = "writer"
password = "{password}"
"""


def test_a_password_in_a_file_is_refused_with_the_advice_and_not_shown(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, GOOD + SERVING.format(password=SECRET))

    assert fault.startswith("streams.orders.sinks.serving.password: this is a secret")
    assert "${env:NAME}" in fault
    assert "spark.epochal.orders.serving.password to spark-submit with --conf" in fault
    assert SECRET not in fault


@pytest.mark.parametrize(
    "line",
    [
        f"options.'kafka.ssl.keystore.password' = '{SECRET}'",
        f"options.secretKey = '{SECRET}'",
        f"options.'kafka.sasl.jaas.config' = 'PlainLoginModule required username=me password={SECRET};'",
    ],
)
def test_secrets_among_the_options_of_a_source_are_refused_in_a_file(tmp_path: Path, line: str) -> None:
    text = f'[streams.a]\ncheckpoint = "c"\n[streams.a.source]\nformat = "kafka"\n{line}\n'
    text += '[streams.a.sinks.out]\ntype = "files"\npath = "x"\n'

    (fault,) = faults(tmp_path, text)

    assert "this is a secret" in fault
    assert SECRET not in fault


def test_columns_that_are_called_like_secrets_are_none(tmp_path: Path) -> None:
    text = GOOD.replace("region STRING", "token STRING, password STRING").replace('"region", ', '"token", ')
    text = text.replace("SELECT * FROM", "SELECT token, password FROM")

    assert faults(tmp_path, text) == []


def test_the_environment_gives_secrets_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    stream = defined(tmp_path, GOOD + SERVING.format(password="${env:SHOP_PASSWORD}"))

    _, _, writer = stream.whole()
    (sink,) = (sink for sink in writer.sinks if isinstance(sink, CassandraSink))
    assert (sink.cluster.user, sink.cluster.password) == ("writer", SECRET)
    assert SECRET in stream.secrets


def test_a_part_of_a_value_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGE", "test")
    stream = defined(tmp_path, GOOD.replace("checkpoints/orders", "checkpoints/${env:STAGE}/orders"))

    assert stream.options is not None
    assert stream.options.checkpoint == "checkpoints/test/orders"


def test_a_variable_that_is_not_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    found = faults(tmp_path, GOOD + SERVING.format(password="${env:SHOP_PASSWORD}"))

    assert found[0] == (
        "streams.orders.sinks.serving.password: ${env:SHOP_PASSWORD}: the environment has no SHOP_PASSWORD"
    )
    assert "names no variable" in faults(tmp_path, GOOD.replace("incoming", "${env:a-b}"))[0]


@pytest.mark.usefixtures("_with_vaults")
def test_a_third_party_sink_takes_part_with_its_own_options_and_its_secrets_are_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIN", SECRET)
    text = GOOD + '[streams.orders.sinks.safe]\ntype = "vault"\npath = "x"\n'

    good = defined(tmp_path, text + 'pin = "${env:PIN}"')
    assert good.faults == ()
    assert good.writer is not None
    assert good.writer.sinks[-1].name == "safe"

    (fault,) = faults(tmp_path, text + f'pin = "{SECRET}"')
    assert fault.startswith("streams.orders.sinks.safe.pin: this is a secret")
    assert faults(tmp_path, text + "pni = 'x'") == [
        "streams.orders.sinks.safe.pni: no option of a vault sink; did you mean 'pin'?"
    ]


@pytest.mark.usefixtures("_with_vaults")
def test_a_secret_in_sparks_settings_must_be_one_that_spark_redacts(tmp_path: Path) -> None:
    own = {"source.format": "rate", "checkpoint": "c", "sinks": "safe", "safe.type": "vault", "safe.path": "x"}
    given = from_settings({f"spark.epochal.a.{key}": text for key, text in {**own, "safe.pin": SECRET}.items()})

    (stream,) = define(given)
    (redacted,) = define(given, "(?i)password|[.]pin$")

    (fault,) = stream.faults
    assert fault.startswith("spark.epochal.a.safe.pin: Spark would show this secret in its UI")
    assert SECRET not in fault
    assert redacted.faults == ()


def test_a_password_that_spark_submit_gave_completes_a_file(tmp_path: Path) -> None:
    text = (GOOD + SERVING).replace('password = "{password}"', "")
    given = read(tmp_path, text).overlaid({"spark.epochal.orders.serving.password": SECRET})

    (stream,) = define(given)

    assert stream.faults == ()
    assert SECRET in stream.secrets


def test_secrets_of_the_session_are_refused_in_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    text = GOOD.replace("[spark]", f'[spark]\nssl.keyPassword = "{SECRET}"\nhadoop.x.secret = "${{env:KEY}}"')
    found = Faults("file")

    settings = resolve_session(read(tmp_path, text), found)

    (fault,) = found.found
    assert fault.startswith("spark.ssl.keyPassword: this is a secret")
    assert SECRET not in fault
    assert settings["spark.hadoop.x.secret"] == SECRET


def test_a_redaction_that_only_java_understands_is_refused(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD.replace("[spark]", "[spark]\nredaction.regex = '\\p{Alpha}word'"))

    with pytest.raises(OptionError, match=r"none that Python knows: bad escape \\p"):
        resolve_session(given, Faults(""))
    with pytest.raises(OptionError, match=r"spark\.redaction\.regex"):
        define(given, given.spark["spark.redaction.regex"])


def test_no_message_of_a_report_has_a_secret() -> None:
    report = StreamReport("orders", secrets=frozenset({SECRET}))

    report.fault(f"cannot log in with {SECRET}")
    report.unchecked(f"{SECRET} was not accepted")

    assert SECRET not in Report("file", [report]).details() + str(report.to_json())


def test_faults_come_before_stores_that_are_away_in_the_exit_code() -> None:
    good, away, wrong = StreamReport("a"), StreamReport("b", away=["x"]), StreamReport("c", faults=["y"])

    assert [Report("f", streams).code for streams in ([good], [good, away], [good, away, wrong])] == [OK, AWAY, FAULTS]
    assert [stream.verdict for stream in (good, away, wrong)] == ["ok", "1 unchecked", "1 fault"]
