"""Streams from files: TOML and properties mean the same, and what is wrong with their form is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal import StatePolicy
from epochal.sinks.config.options import Faults
from epochal.spark_plugins import local_disk
from epochal.spark_plugins.streams import properties_file
from epochal.spark_plugins.streams.reading import from_file, from_settings
from epochal.txn.errors import OptionError
from tests.spark_plugins.streams.texts import GOOD, GOOD_PROPERTIES, defined, faults, read


def test_toml_and_properties_describe_the_same_stream(tmp_path: Path) -> None:
    toml, properties = read(tmp_path, GOOD), read(tmp_path, GOOD_PROPERTIES, "streams.properties")

    assert toml.faults == properties.faults == ()
    assert toml.streams == properties.streams
    assert (
        toml.spark
        == properties.spark
        == {
            "spark.sql.shuffle.partitions": "8",
            "spark.speculation.interval": "200ms",
        }
    )


def test_the_examples_describe_the_same_stream() -> None:
    examples = Path(__file__).parents[3] / "examples"
    toml, properties = from_file(str(examples / "orders.toml")), from_file(str(examples / "orders.properties"))

    assert toml.faults == properties.faults == ()
    assert toml.spark == properties.spark
    here, there = toml.streams["orders"], properties.streams["orders"]
    assert {key: " ".join(text.split()).replace("toml/", "properties/") for key, text in here.items()} == dict(there)


def test_a_stream_of_a_file_is_whole(tmp_path: Path) -> None:
    stream = defined(tmp_path, GOOD)

    source, options, writer = stream.whole()
    assert stream.faults == ()
    assert source.options == {"maxFilesPerTrigger": "1", "multiLine": "true", "kafka.group.id": "orders"}
    assert options.trigger_arguments == {"availableNow": True}
    assert stream.watermark is not None
    assert [sink.name for sink in writer.sinks] == ["archive", "lake"]
    assert stream.query_name == "orders"


def test_settings_of_a_session_are_streams_too() -> None:
    given = from_settings(
        {"spark.epochal.orders.source.format": "rate", "spark.epochal.localDisk": "false", "spark.x": "y"}
    )

    assert dict(given.streams) == {"orders": {"source.format": "rate"}}
    assert given.faults == ()
    assert "no stream" in from_settings({"spark.epochal.localDisk": "false"}).faults[0]


def test_a_setting_of_the_session_is_no_stream(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD_PROPERTIES + f"{local_disk.SWITCH} = false\n", "streams.properties")

    assert given.faults == ()
    assert given.spark[local_disk.SWITCH] == "false"


@pytest.mark.parametrize("name", ["a.b", "a/b", "../a", "", "1a", "a b", "a" * 65])
def test_a_stream_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    given = read(tmp_path, f'[streams."{name}"]\ncheckpoint = "c"\n')

    assert f"stream {name!r}: a name is a letter" in given.faults[0]
    assert not given.streams


@pytest.mark.parametrize("name", ["a.b", "a/b", "a,b", ""])
def test_a_sink_name_that_settings_could_not_have_is_refused(tmp_path: Path, name: str) -> None:
    text = GOOD + f'[streams.orders.sinks."{name}"]\ntype = "files"\npath = "x"\n'

    assert [fault for fault in faults(tmp_path, text) if "a sink's name is" in fault]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("streams = 3", "streams: must be a table"),
        ("[stream.orders]", "stream: the tables are [spark] and [streams.NAME]; did you mean 'streams'?"),
        ("[streams]\norders = 3", "streams.orders: must be a table"),
        ("[streams.a]\n[[streams.a.sinks]]\ntype='files'", "streams.a.sinks: give each sink a table with its name"),
        ("[streams.a]\nsinks = ['x']", "streams.a.sinks: give each sink a table with its name"),
        ("[streams.a]\ncheckpoint = 1979-05-27", "streams.a.checkpoint: must be a text, a number"),
        (
            "[streams.a.source]\noptions = [{a = 1}]",
            "streams.a.source.options: must be a list of texts; a list of tables",
        ),
        ("[streams.a.source]\noptions.x = [[1]]", "streams.a.source.options.x: must be a list of texts"),
        ("[streams.a.source.options]\na.b = 1\n'a.b' = 2", "streams.a.source.options.a.b: given twice"),
        (
            "[streams.a.sinks.sql]\ntype='files'\n[streams.a.sql]\nx=1",
            "streams.a.sinks.sql: streams.a.sql has the same",
        ),
        ("[spark]\n'spark.x' = 1\n[streams.a]", "spark.spark.x: leave out the second 'spark.'"),
        ("[spark.epochal.a]\nsql = 'x'\n[streams.a]", "write the settings of a stream into [streams.a]"),
        ("[spark]\nx = 1", "no stream: begin one with [streams.NAME]"),
    ],
)
def test_a_form_that_is_wrong_is_named(tmp_path: Path, text: str, fault: str) -> None:
    assert [found for found in faults(tmp_path, text) if found.startswith(fault) or fault in found]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("checkpoint", "5", "streams.orders.checkpoint='5': must be a text, in quotes"),
        ("checkpoint", "true", "streams.orders.checkpoint='true': must be a text, in quotes"),
        ("sql", "['a', 'b']", "streams.orders.sql='a, b': must be a text, in quotes"),
        ("max_pending", "true", "streams.orders.max_pending='true': must be a whole number"),
        ("max_pending", "1.5", "streams.orders.max_pending='1.5': must be a whole number"),
        ("cache", "1", "streams.orders.cache='1': must be true or false"),
        ("state.dirty_ratio", "0", "streams.orders.state.dirty_ratio=0: a part above 0 and up to 1, such as"),
        ("state.dirty_ratio", "1.5", "streams.orders.state.dirty_ratio=1.5: a part above 0 and up to 1, such as"),
        ("state.recovery", "-1", "streams.orders.state.recovery=-1: a time above 0, such as"),
        ("state.recovery", "inf", "streams.orders.state.recovery=inf: a time above 0, such as"),
        ("state.recovery", "nan", "streams.orders.state.recovery=nan: a time above 0, such as"),
        ("state.recovery", "true", "streams.orders.state.recovery='true': must be a number, or a text in quotes"),
        ("state.recovery", "['1 s']", "streams.orders.state.recovery='1 s': must be a text, in quotes"),
        ("trigger", "{ x = 1 }", "streams.orders.trigger.x: no option of a stream; did you mean 'trigger'?"),
    ],
)
def test_a_value_of_the_wrong_type_is_a_fault(tmp_path: Path, key: str, value: str, fault: str) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key} =")]
    lines.insert(lines.index("[streams.orders]") + 1, f"{key} = {value}")

    assert [found for found in faults(tmp_path, "\n".join(lines)) if found.startswith(fault)]


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("recovery = 0.5", StatePolicy(recovery=0.5)),
        ("recovery = 2", StatePolicy(recovery=2)),
        ("recovery = '500 ms'", StatePolicy(recovery="500 ms")),
        ("cpu = 0.02", StatePolicy(cpu=0.02)),
        ("dirty_ratio = 0.3", StatePolicy(dirty_ratio=0.3)),
        ("segment_age = 60", StatePolicy(segment_age=60)),
    ],
)
def test_what_is_a_number_or_a_text_may_be_either(tmp_path: Path, value: str, policy: StatePolicy) -> None:
    stream = defined(tmp_path, GOOD.replace("[streams.orders]\n", f"[streams.orders]\nstate.{value}\n"))

    assert stream.faults == ()
    assert stream.writer is not None
    assert stream.writer._settings.state == policy.policy


def test_limits_of_parts_may_be_numbers(tmp_path: Path) -> None:
    more = "rolling.max_age = 300\nrolling.max_bytes = 65536\nrolling.max_rows = 1000"

    assert faults(tmp_path, GOOD.replace('rolling.max_age = "5 min"', more)) == []


def test_the_hint_for_a_name_with_dots_is_the_nearest_name(tmp_path: Path) -> None:
    more = "state.recovry = 1\nstat.cpu = 1\n"
    found = faults(tmp_path, GOOD.replace("[streams.orders]\n", f"[streams.orders]\n{more}"))

    assert [fault.rpartition("; ")[2] for fault in found] == [
        "did you mean 'state.recovery'?",
        "did you mean 'state.cpu'?",
    ]


def test_the_name_of_a_group_alone_lists_what_it_has(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, GOOD.replace("[streams.orders]\n", "[streams.orders]\nstate = 1\n"))

    assert "it has options of its own: 'state.recovery', 'state.cpu'" in found


def test_a_text_with_a_comma_is_no_element_of_a_list(tmp_path: Path) -> None:
    found = faults(tmp_path, GOOD.replace('"region", "hour', '"a,b", "hour'))

    assert found == ["streams.orders.sinks.archive.bucket_by: 'a,b' has a comma, which separates the texts of a list"]


def test_duplicate_tables_and_broken_toml_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not TOML: Cannot declare"):
        read(tmp_path, GOOD + "[streams.orders.sinks.lake]\n")
    with pytest.raises(OptionError, match="is not TOML"):
        read(tmp_path, "[streams")


def test_files_that_cannot_be_read_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    (tmp_path / "folder.toml").mkdir()

    for name, match in {
        "latin.toml": "is not UTF-8",
        "folder.toml": "cannot be read: Is a directory",
        "none.toml": "cannot be read: No such file",
        "orders.yaml": "is neither",
    }.items():
        with pytest.raises(OptionError, match=match):
            from_file(str(tmp_path / name))


def test_properties_that_belong_to_nothing_are_named(tmp_path: Path) -> None:
    text = GOOD_PROPERTIES + "epochal.orders.sql = x\nspark.epochal.orders = y\nspark.epochal.orders.sql = z\n"

    found = faults(tmp_path, text, "streams.properties")

    assert "spark.epochal.orders.sql: given twice" in found
    assert any(fault.startswith("epochal.orders.sql: every setting begins with 'spark.'") for fault in found)
    assert any(fault.startswith("spark.epochal.orders: neither spark.epochal.<stream>.<option>") for fault in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b = c", {"a": "b = c"}),
        ("  a   b c  ", {"a": "b c"}),
        ("a\\ b\\=c = d", {"a b=c": "d"}),
        ("a", {"a": ""}),
        ("a = x\\\\\nb = y", {"a": "x\\", "b": "y"}),
        ("a = one, \\\n  # no comment, \\\n  two", {"a": "one, # no comment, two"}),
        ("a = \\u00e4\\t!", {"a": "ä\t!"}),
        ("! no\n#no\n\n\r\na=b\r\nc=d", {"a": "b", "c": "d"}),
        ("a = end\\", {"a": "end"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert properties_file.read(text, Faults("file")) == expected


def test_only_the_streams_that_were_named(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD + '[streams.payments]\ncheckpoint = "c"\n')

    assert list(given.only(["payments"]).streams) == ["payments"]
    assert "did you mean 'orders'?" in given.only(["order"]).faults[0]


def test_settings_of_the_session_complete_a_file_and_win(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD).overlaid(
        {
            "spark.epochal.orders.trigger": "processing_time=1 min",
            "spark.epochal.orders.lake.mode": "complete",
            "spark.epochal.other.sql": "x",
        }
    )

    assert list(given.streams) == ["orders"]
    assert given.streams["orders"]["trigger"] == "processing_time=1 min"
    assert given.streams["orders"]["lake.mode"] == "complete"
    assert given.is_in_file("orders", "sql")
    assert not given.is_in_file("orders", "trigger")
