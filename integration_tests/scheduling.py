"""How the suite is shared out between processes, with ``-n``: what takes longest begins first.

A folder whose tests use one server is one process's, so that the server is started once. Of the rest a module is.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

ONE_SERVER = ("cassandra", "connect", "hdfs", "kafka", "kafka_sink", "objects", "postgres")
BESIDE = {"test_extras.py": "cassandra"}  # they use that server too
ONE_BROKER = {"kafka": "kafka_sink"}
# By what they take; whatever is not named here comes after them.
LONGEST = (
    "cassandra",
    "kill_matrix/test_kill_matrix.py",  # needs no Java, while the archive of its classes is made
    "hdfs",
    "objects",
    "kafka_sink",
    "postgres",
    "spark/test_rolling_kills.py",
    "spark/test_kill_chain.py",
    "spark/test_two_drivers.py",
    "operators/test_kills.py",
    "kill_matrix/test_two_drivers.py",
    "kill_matrix/test_rolling.py",
    "delta/test_audit.py",
    "connect",
    "spark/test_compaction_kills.py",
    "spark/test_audit_files.py",
    "delta/test_gate.py",
    "test_examples.py",
    "delta/test_modes.py",
    "delta/test_kills.py",
    "spark/test_standby.py",
    "spark/test_endings.py",
    "delta/test_between_stage_and_commit.py",
    "delta/test_append.py",
    "spark/test_copies.py",
    "spark/test_savepoints.py",
    "spark/test_rescaling.py",
    "test_demo.py",
    "spark/test_tasks_that_move_files.py",
    "test_explorer_full.py",
    "test_cli.py",
)


def scope_of(test: str) -> str:
    """What a test is run together with: a folder or a module below this one."""
    path = PurePosixPath(test.partition("::")[0])
    below = path.relative_to("integration_tests") if path.parts[0] == "integration_tests" else path
    folder = below.parts[0]
    return ONE_BROKER.get(folder, folder) if folder in ONE_SERVER else BESIDE.get(str(below), str(below))


def rank_of(test: str) -> int:
    """Lower is earlier."""
    scope = scope_of(test)
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


class ByServer(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """As ``--dist loadscope``, with scopes that are larger where a server is shared."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
