"""How the suite is shared out."""

from __future__ import annotations

from pathlib import Path

from integration_tests.scheduling import BESIDE, LONGEST, ONE_BROKER, ONE_SERVER, rank_of, scope_of

HERE = Path(__file__).parent


def test_what_is_named_is_there() -> None:
    named = (*LONGEST, *ONE_SERVER, *BESIDE, *BESIDE.values(), *ONE_BROKER, *ONE_BROKER.values())

    assert [name for name in named if not (HERE / name).exists()] == []


def test_tests_of_one_server_are_one_scope_and_others_go_by_their_module() -> None:
    assert scope_of("integration_tests/hdfs/test_kills.py::test_a") == scope_of(
        "integration_tests/hdfs/test_b.py::t[x]"
    )
    assert scope_of("integration_tests/kafka/test_kills.py::test_a") == "kafka_sink"
    assert scope_of("integration_tests/spark/test_avro.py::test_a[b::c]") == "spark/test_avro.py"


def test_what_takes_longest_begins_first() -> None:
    tests = ["integration_tests/test_cli.py::a", "integration_tests/hdfs/b.py::c", "integration_tests/delta/d.py::e"]

    assert sorted(tests, key=rank_of) == [tests[1], tests[0], tests[2]]
