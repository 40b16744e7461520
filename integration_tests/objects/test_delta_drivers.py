"""Drivers of one stream with table, checkpoint and journal on an object store: two at once, and while it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.cli import exit_codes, main
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import Faults, StoreProxy
from integration_tests.objects.remote import Remote
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end, committed
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FAULTS = Faults(lost=0.03, failed=0.02, refused=0.05, slow=0.05, pause=0.02, read_conflicts=False)
FILES = 3
STARTS = 12
DELTA = ("--sinks", "delta")


@pytest.fixture
def remote(reached: S3Store, folder: str, tmp_path: Path) -> Remote:
    return Remote(reached, folder, tmp_path, checkpoint=True)


@pytest.fixture
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands start no Spark."""
    monkeypatch.setattr("epochal.cli.streams.start_spark", lambda path: pytest.fail(f"Spark was started for {path}"))


@pytest.mark.usefixtures("_without_spark")
def test_of_two_drivers_that_both_write_commits_one_does_and_the_other_is_told(
    drivers: Children, remote: Remote
) -> None:
    world = remote.world
    gate = world.root / "gate"
    world.feed(FILES)
    stalled = drivers.start(world.root, *DELTA, *remote.arguments, "--gate-after-batch", str(gate), "--unaware")
    stalled.wait_for(gate)
    second = drivers.run(world.root, *DELTA, *remote.arguments)
    gate.unlink()
    first = stalled.wait()

    assert second.ending is Ending.DONE, second.output
    assert first.ending is Ending.CONCURRENT_UPDATE, first.output
    check_at_the_end(remote.look(), files=FILES)
    for command in ("recover", "gc", "log"):
        assert main([command, f"{remote.uri}/checkpoint"]) == 0


@pytest.mark.matrix
def test_a_driver_that_stalled_after_it_had_staged_is_fenced_out(drivers: Children, remote: Remote) -> None:
    world = remote.world
    gate = world.root / "gate"
    world.feed(FILES)
    stalled = drivers.start(world.root, *DELTA, *remote.arguments, points=f"after-stage=pause:{gate}@2")
    stalled.wait_for(gate)
    after_stalling = committed(remote.look())
    second = drivers.run(world.root, *DELTA, *remote.arguments)
    gate.unlink()
    first = stalled.wait()

    assert after_stalling == {0}
    assert second.ending is Ending.DONE, second.output
    assert first.ending is Ending.FENCED_OUT, first.output
    check_at_the_end(remote.look(), files=FILES)


@pytest.mark.parametrize("files", [3, pytest.param(25, marks=pytest.mark.matrix)])
def test_a_store_that_fails_only_costs_time(
    files: int, drivers: Children, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own requests are lost, refused and slow too: its checkpoint and staged files, and our own commits.

    S3A takes a 409 to a read for an error of its caller, so now and then Spark ends the query; the next start goes on.
    """
    world = remote.world
    world.feed(files)
    endings: list[Ending] = []
    with StoreProxy(remote.store.endpoint, FAULTS, seed=files) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        while Ending.DONE not in endings and len(endings) < STARTS:
            ended = drivers.run(world.root, *DELTA, *remote.arguments)
            endings.append(ended.ending)
            check_after_a_kill(remote.look())
    print(f"\n{files} epochs, {proxy.requests.total()} requests, {proxy.injected.total()} faults: {proxy.injected}")

    assert endings[-1] is Ending.DONE, ended.output
    assert {*endings} <= {Ending.DONE, Ending.FAILED}
    check_at_the_end(remote.look(), files=files)


@pytest.mark.matrix
@pytest.mark.usefixtures("_without_spark")
def test_commands_finish_and_report_a_stream_whose_checkpoint_is_on_the_store_without_spark(
    drivers: Children, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    world, checkpoint = remote.world, f"{remote.uri}/checkpoint"
    world.feed(2)
    ended = drivers.run(world.root, *DELTA, *remote.arguments, points="before-log=kill@2")
    assert ended.ending is Ending.KILLED, ended.output

    assert main(["recover", checkpoint]) == 0
    assert main(["status", checkpoint]) == exit_codes.DEAD, "all is shown, and the driver was killed"
    assert main(["gc", checkpoint]) == 0
    assert "s3://" in capsys.readouterr().out
    check_after_a_kill(remote.look())
    assert committed(remote.look()) == {0, 1}
