"""One recovery, in a process of its own: ``python -m epochal.spark_plugins.recovery.trial`` with a task on stdin.

It prints one line of JSON that begins with `MARK`: when which part ended, in seconds since the parent spawned it. What
Spark prints goes elsewhere. The kinds of tasks:

* ``scratch``: build scratch streams (`scratch.build`), one after the other.
* ``count``: recover a scratch stream with its query.
* ``stream``: recover a stream that a settings file defines, with its own query and without its sinks.
* ``stores``: restore the stores alone, by Spark's own state reader. For streams whose query is not known here.
* ``journal``: restore the sinks' state from the journal. Without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins.recovery.signals import signals_held
from epochal.txn.errors import Refused, SparkGone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "epochal-trial:"
TIMEOUT = 1800.0  # seconds
Answer = dict[str, Any]


def run(task: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Answer:
    """Do a task in a new process, and return what it measured."""
    command = [sys.executable, "-m", "epochal.spark_plugins.recovery.trial"]
    given = json.dumps({**task, "spawned": time.time()})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        code, printed, complained = _run(command, given, environment, timeout)
    except subprocess.TimeoutExpired as fault:
        raise Refused(
            f"the trial of a recovery took more than {timeout:.0f} s and was ended. Nothing was changed"
        ) from fault
    for line in printed.splitlines():
        if line.startswith(MARK):
            answer: Answer = json.loads(line.removeprefix(MARK))
            if "fault" in answer:
                raise Refused(f"the trial of a recovery failed: {answer['fault']}. Nothing of the stream was changed")
            return answer
    last = [line for line in complained.splitlines() if line.strip()][-3:]
    raise Refused(f"the trial of a recovery ended with {code}: {'; '.join(last)}. Nothing was changed")


def _run(command: list[str], given: str, environment: Mapping[str, str], timeout: float) -> tuple[int, str, str]:
    """Run a process: its code, stdout and stderr. If that is given up, what it has started is killed with it.

    Spark's JVM would else go on for a while, and write into folders that are being removed.
    """
    pipe = subprocess.PIPE
    child = None
    try:
        with signals_held():
            child = subprocess.Popen(  # not a block of its own: a signal must find it before that
                command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
            )
        printed, complained = child.communicate(given, timeout)
    except BaseException:
        if child is not None:
            with child, suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        raise
    return child.returncode, printed, complained


def main() -> None:
    """Do the task on stdin."""
    task = json.loads(sys.stdin.read())
    kinds: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
        "scratch": _scratch,
        "count": _count,
        "stream": _stream,
        "stores": _stores,
        "journal": _journal,
    }
    try:
        answer = kinds[task["kind"]](task)
    except Exception as fault:  # noqa: BLE001  # whatever it is, the parent hears of it
        answer = {"fault": _reason(fault)}
    _answer(answer)


def _reason(fault: BaseException) -> str:
    """Why it failed, without the pages of Java that Spark adds."""
    from epochal.spark_plugins.streams.running import cause_in

    return cause_in(str(fault)) or f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"


def _answer(answer: Answer) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()


def _session(task: Mapping[str, Any]) -> tuple[SparkSession, float]:
    """The session, and the seconds until it was there."""
    from epochal.spark_plugins.session import session

    cores = int(task["cores"])
    spark = session("epochal drill", master=f"local[{cores}]", conf=dict(task.get("conf", {})))
    return spark, time.time() - float(task["spawned"])


def _scratch(task: Mapping[str, Any]) -> Answer:
    from epochal.spark_plugins.recovery.scratch import Scratch, build

    spark, _ = _session(task)
    built = {}
    for one in task["streams"]:
        scratch = Scratch.from_json(one)
        made = build(spark, scratch, Path(task["folder"], scratch.name), slots=int(task["cores"]))
        built[scratch.name] = {"wall": made.wall, "cpu": made.cpu}
    spark.stop()
    return {"built": built}


def _count(task: Mapping[str, Any]) -> Answer:
    from epochal.spark_plugins.recovery.scratch import Scratch, frame

    scratch = Scratch.from_json(task["stream"])
    spark, until_session = _session(task)
    made = frame(spark, rows=int(task["rows"]), keys=scratch.keys, slots=int(task["cores"]))
    return _first_epoch(made, task, "update", until_session)


def _stream(task: Mapping[str, Any]) -> Answer:
    from epochal.sinks.config.options import Faults
    from epochal.spark_plugins.streams.checking import check_settings
    from epochal.spark_plugins.streams.frames import build
    from epochal.spark_plugins.streams.reading import from_file
    from epochal.spark_plugins.streams.report import StreamReport
    from epochal.spark_plugins.streams.secrets import resolve_session
    from epochal.spark_plugins.streams.sessions import own_session

    given = from_file(task["file"]).only([task["stream"]])
    (stream,) = check_settings(given).streams
    _, options, _ = stream.whole()
    faults = Faults(given.what)
    settings = resolve_session(given, faults)
    faults.done()
    spark = own_session(settings, master=f"local[{int(task['cores'])}]")
    until_session = time.time() - float(task["spawned"])
    report = StreamReport(stream.name)
    made = build(spark, stream, report).frame
    if made is None:
        raise Refused(f"the query of stream {stream.name!r} cannot be made: {'; '.join(report.faults)}")
    return _first_epoch(made, task, options.output_mode, until_session)


def _first_epoch(made: DataFrame, task: Mapping[str, Any], mode: str, until_session: float) -> Answer:
    """Run the query until its first epoch is committed."""
    spawned, checkpoint = float(task["spawned"]), Path(task["checkpoint"])
    commit = checkpoint / "commits" / str(task["epoch"])
    begun: list[float] = []
    written = threading.Event()

    def write(batch: DataFrame, epoch: int) -> None:
        if epoch > int(task["epoch"]):
            written.wait()  # what comes after the first epoch is not run
        begun.append(time.time() - spawned)
        batch.write.format("noop").mode("overwrite").save()

    query = made.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint)).foreachBatch(write).start()
    while not commit.exists():
        if not query.isActive:
            raise Refused(
                f"the query ended before its first epoch: {_reason(query.exception() or SparkGone('it was stopped'))}"
            )
        time.sleep(0.005)
    until_epoch = time.time() - spawned
    answer = {"session": until_session, "begun": begun[0], "epoch": until_epoch}
    # The process ends by the kill of a crash: stopping a session takes seconds that a recovery does not have.
    _answer(answer)
    os._exit(0)


def _stores(task: Mapping[str, Any]) -> Answer:
    """Restore each store, and read one row of each: Spark's reader loads a store as a query does."""
    spark, until_session = _session(task)
    if task.get("unique"):
        spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    _ = spark.streams.active  # starts what stores report to
    spark.range(0, 8, 1, int(task["cores"])).write.format("noop").mode("overwrite").save()  # not part of a restore
    before = _stages(spark)
    for store in task["stores"]:
        reader = spark.read.format("statestore").options(**store)
        reader.load(task["checkpoint"]).limit(1).write.format("noop").mode("overwrite").save()
    after = _stages(spark)
    state = sum(seconds for number, seconds in after.items() if number not in before)
    spark.stop()
    return {"session": until_session, "state": state}


def _stages(spark: SparkSession) -> dict[int, float]:
    """How long each stage ran, by its number: planning is not part of it."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    nothing = jvm.java.util.ArrayList()
    store = spark.sparkContext._jsc.sc().statusStore()
    stages = store.stageList(nothing, False, False, gateway.new_array(jvm.double, 0), nothing)
    found = {}
    for place in range(stages.size()):
        stage = stages.apply(place)
        begun, ended = stage.submissionTime(), stage.completionTime()
        if begun.isDefined() and ended.isDefined():
            found[int(stage.stageId())] = (ended.get().getTime() - begun.get().getTime()) / 1000
    return found


def _journal(task: Mapping[str, Any]) -> Answer:
    from epochal.txn.files import LocalFiles
    from epochal.txn.journal import Journal
    from epochal.txn.state.policy import Measured

    began = time.perf_counter()
    journal = Journal(LocalFiles(), task["journal"])
    journal.read()
    extent = journal.extent()
    return {
        "sinks": time.perf_counter() - began,
        "predicted": extent.predicted(Measured()),  # as before it was read: not by what this reading measured
        "entries": extent.live,
    }


if __name__ == "__main__":
    main()
