"""What `pip install 'epochal[...]'` installs is enough: each extra alone, in an environment without development tools.

The wheel is built as it is shipped and installed with its dependencies, under the pins of constraints.txt. One
environment serves all extras in turn: after each it is what it was before, from a copy of its packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from epochal.testing import servers
from epochal.testing.servers import CassandraCluster
from integration_tests.cassandra.tables import keyspace
from integration_tests.pages import run_page
from integration_tests.postgres.tables import space_on

ROOT = Path(__file__).parent.parent
INSTALL = ("install", "--no-compile", "-c", str(ROOT / "constraints.txt"))

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]  # pip may have to fetch 500 MB first

STREAM = """\
import epochal

spark = epochal.session("extras", master="local[1]")
spark.range(3).coalesce(1).write.parquet("in")
stream = spark.readStream.schema("id long").parquet("in").writeStream.trigger(availableNow=True)
sink = {sink}
epochal.EpochWriter(sink).start(stream.option("checkpointLocation", "checkpoint")).awaitTermination()
"""
DELTA = STREAM.format(sink='epochal.DeltaSink("out")') + (
    'from deltalake import DeltaTable\nprint(DeltaTable("out").to_pyarrow_table().num_rows)\n'
)
CASSANDRA = STREAM.format(sink='epochal.CassandraSink("{table}", contact_points={hosts}, port={port})')
KAFKA = STREAM.format(sink='epochal.KafkaSink("rows", bootstrap_servers=["{bootstrap}"])')
POSTGRES = STREAM.format(sink='epochal.PostgresSink("{table}", **{options})')
OPERATOR = """\
import epochal
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

class Count(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, timerValues):
        (n,) = self.count.get() or (0,)
        self.count.update((n + sum(1 for _ in rows),))
        yield Row(odd=key[0], n=self.count.get()[0])

spark = epochal.session("extras", master="local[1]", conf=epochal.rocksdb_settings())
spark.range(3).coalesce(1).write.parquet("in")
rows = spark.readStream.schema("id long").parquet("in").selectExpr("id % 2 AS odd").groupBy("odd")
counts = rows.transformWithState(Count(), "odd long, n long", outputMode="Append", timeMode="None")
stream = counts.writeStream.trigger(availableNow=True).option("checkpointLocation", "checkpoint")
epochal.EpochWriter(epochal.RollingFileSink("out", format="json")).start(stream).awaitTermination()
print(sorted((row.odd, row.n) for row in spark.read.json("out").collect()))
"""
HDFS = """\
from epochal.sinks.storage.webhdfs import WebHdfsFiles

files = WebHdfsFiles("{web}")
assert files.create("{uri}/extras/file", b"made once")
print(files.read("{uri}/extras/file").decode())
"""
METRICS = """\
import sys
from epochal.metrics import fault_of, observer_of

target = sys.argv[1]
print(fault_of(target) or observer_of(target))
"""


@dataclass(frozen=True)
class Environment:
    """A new environment with epochal and what it depends on, and nothing else."""

    folder: Path
    wheel: Path

    @contextmanager
    def extra(self, name: str) -> Iterator[None]:
        """With an extra, for a while."""
        _pip(self.folder, *INSTALL, f"{self.wheel}[{name}]")
        try:
            yield
        finally:
            shutil.rmtree(self.folder)
            _copied(self._kept, self.folder)

    def keep(self) -> None:
        """What it is after each extra: as it is now."""
        _copied(self.folder, self._kept)

    @property
    def _kept(self) -> Path:
        return self.folder.with_suffix(".kept")

    @property
    def variables(self) -> dict[str, str]:
        """Of a shell in which the environment is active."""
        # Without the interpreter that a Spark of this process has set for its workers: it has everything.
        given = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
        return {**given, **_compiled_beside(self.folder), "PATH": f"{self.folder / 'bin'}{os.pathsep}{given['PATH']}"}

    def run(self, folder: Path, *arguments: str) -> str:
        """What a program of the environment says."""
        done = subprocess.run(
            [str(self.folder / "bin" / arguments[0]), *arguments[1:]],
            cwd=folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    def settled(self, folder: Path) -> Any:
        return json.loads(self.run(folder, "epochal", "status", "checkpoint", "--json"))["settled"]


def _copied(folder: Path, copy: Path) -> None:
    """With second names for the same files, which are 500 MB: pip replaces files, it does not write into them."""
    shutil.copytree(folder, copy, symlinks=True, copy_function=os.link)


def _compiled_beside(environment: Path) -> dict[str, str]:
    """What Python has compiled, for all extras."""
    return {"PYTHONPYCACHEPREFIX": str(environment.with_suffix(".compiled"))}


def _pip(environment: Path, *arguments: str) -> None:
    # --quiet: pip would tell where it downloads from.
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    variables = {**os.environ, **_compiled_beside(environment)}
    done = subprocess.run([*pip, *arguments], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"pip {arguments[0]} failed: {done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    home = tmp_path_factory.mktemp("extras")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(home), versions=["standard"])
    subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
    _pip(home / "env", *INSTALL, str(wheel))
    made = Environment(home / "env", Path(wheel))
    made.keep()
    return made


def test_without_an_extra_the_quickstart_goes_from_install_to_a_recovered_crash_and_top_has_what_it_needs(
    environment: Environment, java_options: str, tmp_path: Path
) -> None:
    page = ROOT / "docs" / "quickstart.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "quickstart.py").write_text(code)

    assert code == (ROOT / "examples" / "quickstart.py").read_text()
    assert run_page(page, tmp_path, environment.variables) == 14
    checkpoint = "orders-example/checkpoint"
    assert "1 stream" in environment.run(tmp_path, "epochal", "report", checkpoint, "-o", "report.html")
    with environment.extra("top"):
        shown = environment.run(tmp_path, "epochal", "top", checkpoint, "--once")
    assert "epoch 4 is visible everywhere" in " ".join(shown.split())


def test_delta_has_what_its_sink_needs(environment: Environment, tmp_path: Path) -> None:
    with environment.extra("delta"):
        assert environment.run(tmp_path, "python", "-c", DELTA) == "3"
        assert environment.settled(tmp_path)


def test_cassandra_has_what_its_sink_needs(
    environment: Environment, cassandra: CassandraCluster, tmp_path: Path
) -> None:
    with keyspace(cassandra) as space, environment.extra("cassandra"):
        table = space.table("rows", "id bigint PRIMARY KEY")
        code = CASSANDRA.format(table=table, hosts=list(cassandra.hosts), port=cassandra.port)
        environment.run(tmp_path, "python", "-c", code)

        assert sorted(row.id for row in space.execute(f"SELECT id FROM {table}")) == [0, 1, 2]
        assert environment.settled(tmp_path)


def test_kafka_has_what_its_sink_needs(environment: Environment, tmp_path: Path) -> None:
    with servers.kafka() as broker, environment.extra("kafka"):
        broker.create_topic("rows")
        environment.run(tmp_path, "python", "-c", KAFKA.format(bootstrap=broker.bootstrap))

        assert sorted(record.value or b"" for record in broker.read("rows")) == [b'{"id":%d}' % n for n in range(3)]
        assert environment.settled(tmp_path)


def test_postgres_has_what_its_sink_needs(environment: Environment, tmp_path: Path) -> None:
    with servers.postgres() as server, space_on(server) as space, environment.extra("postgres"):
        table = space.table("rows", "id bigint")
        options = {**server.options, "ledger_schema": space.ledger}
        environment.run(tmp_path, "python", "-c", POSTGRES.format(table=table, options=options))

        assert sorted(space.execute(f"SELECT id FROM {table}")) == [(0,), (1,), (2,)]


def test_hdfs_has_what_its_client_needs(environment: Environment, tmp_path: Path) -> None:
    with servers.hdfs() as server, environment.extra("hdfs"):
        code = HDFS.format(web=server.web, uri=server.uri)

        assert environment.run(tmp_path, "python", "-c", code) == "made once"


def test_state_has_what_operators_of_ones_own_need(environment: Environment, tmp_path: Path) -> None:
    with environment.extra("state"):
        assert environment.run(tmp_path, "python", "-c", OPERATOR).splitlines()[-1] == "[(0, 2), (1, 1)]"
        assert environment.settled(tmp_path)


@pytest.mark.parametrize(
    ("extra", "target", "name"),
    [("metrics", "prometheus://127.0.0.1:0", "Prometheus"), ("otel", "opentelemetry", "OpenTelemetry")],
)
def test_metrics_have_what_they_need_and_say_what_is_missing(
    environment: Environment, tmp_path: Path, extra: str, target: str, name: str
) -> None:
    without = environment.run(tmp_path, "python", "-c", METRICS, target)
    with environment.extra(extra):
        found = environment.run(tmp_path, "python", "-c", METRICS, target)

    assert without == f"needs a package that is not installed: pip install 'epochal[{extra}]'"
    assert found == f"epochal's metrics for {name}"
