"""A plan shared out over the processors, and what its workers found, as one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration_tests.kill_matrix.matrix import MatrixResult

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")


def play(plan: str, every: int = 1) -> MatrixResult:
    """Play a plan, or a sample of it, with a worker for each processor; says on stdout what was done."""
    began, used = time.monotonic(), _processor_seconds()
    of = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
    with _room() as room:
        workers = [_start(plan, room / str(shard), shard, of, every) for shard in range(of)]
        ends = [worker.communicate() for worker in workers]
    whole = MatrixResult()
    for worker, (out, err) in zip(workers, ends, strict=True):
        if worker.returncode:
            raise RuntimeError(f"a worker of {plan} ended with {worker.returncode}:\n{err}")
        _add(whole, json.loads(out))
    print(
        f"\n{plan}: {whole.cases} cases, {sum(whole.kills.values())} kills, {sum(whole.holds.values())} drivers held, "
        f"{whole.looks} looks of the readers, {time.monotonic() - began:.0f} s with {of} workers "
        f"({_processor_seconds() - used:.0f} s of processor time)"
    )
    return whole


def report(result: MatrixResult, *, most: int = 10) -> str:
    """What is wrong, and how to see it again; empty if nothing is."""
    lines = [f"{len(result.faults)} cases are wrong"] if result.faults else []
    for case, faults in list(result.faults.items())[:most]:
        lines += [f"{case}", *(f"    {fault}" for fault in faults)]
        lines += [f"    again: PYTHONPATH=. python -m integration_tests.kill_matrix {case}"]
    return "\n".join(lines)


def _start(plan: str, root: Path, shard: int, of: int, every: int) -> subprocess.Popen[str]:
    arguments = [plan, "--shard", f"{shard}/{of}", "--every", str(every), "--root", str(root)]
    return subprocess.Popen(
        [sys.executable, "-m", "integration_tests.kill_matrix", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _add(whole: MatrixResult, part: dict[str, object]) -> None:
    found = MatrixResult(**part)  # type: ignore[arg-type]  # what the fields of one were
    whole.kills += Counter(found.kills)
    whole.holds += Counter(found.holds)
    whole.endings += Counter(found.endings)
    whole.cases += found.cases
    whole.looks += found.looks
    whole.faults |= found.faults


def _processor_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


@contextmanager
def _room() -> Iterator[Path]:
    """A folder in memory where there is such a thing: the matrix makes and removes a million files."""
    folder = tempfile.mkdtemp(prefix="kill-matrix-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
