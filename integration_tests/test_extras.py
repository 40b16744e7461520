"""What `pip install 'epochal[...]'` installs is enough: each extra alone, in an environment without development tools.

The wheel is built as it is shipped and installed with its dependencies, under the pins of constraints.txt. One
environment serves all extras in turn: what an extra brought is taken out again, and that nothing stays is checked.
"""

from __future__ import annotations

import json
import os
import re
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
    packages: frozenset[str]

    @contextmanager
    def extra(self, name: str) -> Iterator[None]:
        """With an extra, for a while."""
        _pip(self.folder, *INSTALL, f"{self.wheel}[{name}]")
        try:
            yield
        finally:
            _pip(self.folder, "uninstall", "--yes", *sorted(_packages(self.folder) - self.packages))
            assert _packages(self.folder) == self.packages

    @property
    def variables(self) -> dict[str, str]:
        """Of a shell in which the environment is active."""
        # Without the interpreter that a Spark of this process has set for its workers: it has everything.
        given = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
        return {**given, "PATH": f"{self.folder / 'bin'}{os.pathsep}{given['PATH']}"}

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


def _pip(environment: Path, *arguments: str) -> str:
    # --quiet: pip would tell where it downloads from.
    quiet = [] if arguments[0] == "list" else ["--quiet"]
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *quiet]
    done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"pip {arguments[0]} failed: {done.stderr[-3000:]}"
    return done.stdout


def _packages(environment: Path) -> frozenset[str]:
    return frozenset(package["name"] for package in json.loads(_pip(environment, "list", "--format", "json")))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    home = tmp_path_factory.mktemp("extras")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(home), versions=["standard"])
    subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
    _pip(home / "env", *INSTALL, str(wheel))
    return Environment(home / "env", Path(wheel), _packages(home / "env"))


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


def test_hdfs_has_what_its_client_needs(environment: Environment, tmp_path: Path) -> None:
    with servers.hdfs() as server, environment.extra("hdfs"):
        code = HDFS.format(web=server.web, uri=server.uri)

        assert environment.run(tmp_path, "python", "-c", code) == "made once"


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
