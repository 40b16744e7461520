"""The commands of `epochal` and their options, as argparse has them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from epochal._version import __version__
from epochal.cli.exit_codes import MEANINGS, USAGE
from epochal.cli.text import print_json_error
from epochal.sinks.config.options import nearest
from epochal.sinks.config.quantities import parse_duration, parse_share, parse_size
from epochal.txn.live import LEAST_LEASE
from epochal.txn.printable import printable
from epochal.txn.retirement import LONGEST as LONGEST_REASON

EXAMPLES = """examples:
  epochal status  checkpoints/orders            the status of the stream and of each sink
  epochal status  checkpoints/orders --json     the same as JSON
  epochal log     checkpoints/orders            the last epochs, and which offsets and files each of them read
  epochal state   checkpoints/orders            what Spark's operators keep, and how long a recovery would take
  epochal drill   checkpoints/orders            recover a copy of it in new processes, and measure each part
  epochal plan-recovery checkpoints/orders --objective "10 s"
                                                the cheapest settings of Spark's state that hold it
  epochal audit   checkpoints/orders            is every row in every sink exactly once? row counts and digests
  epochal audit   checkpoints/orders --fast     checks names, lengths and logs only, without Spark
  epochal top     checkpoints/*                 the same for several streams, live on the terminal
  epochal ui      checkpoints/*                 the same in a browser, with a timeline of epochs
  epochal report  checkpoints/* -o status.html  the same as one HTML file
  epochal recover checkpoints/orders            finish what Spark has checkpointed, without the query
  epochal resolve checkpoints/orders --abort 42 remove what a dead driver has staged of epoch 42, or say why not
  epochal roll    checkpoints/orders            publish all open parts; stops a running query
  epochal gc      checkpoints/orders            list what can be removed, and what must stay and why
  epochal gc      checkpoints/orders --yes      remove it
  epochal retire  checkpoints/orders --why TEXT record that the stream is over: status is well, a start is refused
  epochal savepoint checkpoints/orders backups  copy the stream as it is at one epoch; its query may run
  epochal savepoints backups                    list savepoints
  epochal restore backups/NAME checkpoints/new  let the stream go on there; --fork begins another one
  epochal rescale checkpoints/orders --partitions 8    change how many partitions the state of a stopped query has
  epochal compact archive/orders                join small files of a RollingFileSink's target while the query runs
  epochal schema  status                        the JSON schema of status --json; of errors: epochal schema error
  epochal new-sink queue                        write a package with a sink of your own, which works from the start
  epochal check   orders.toml                   are sources, SQL, sinks and checkpoints of all streams right?
  epochal run     orders.toml                   run the streams of a settings file; exit codes are in its --help
  epochal run     orders.toml --standby         the same as soon as the driver that runs them dies or hangs
  epochal demo                                  see exactly-once under kill -9, in a minute
  epochal serve   cassandra | hdfs | kafka | postgres | s3 | zookeeper   run a real server on loopback until Ctrl-C

CHECKPOINT is the query's checkpointLocation: a folder, or a URI such as hdfs://host/checkpoints/orders.
PATH is the target of a sink, spelled the same way.
exit codes:
""" + "".join(f"  {code:<4}{meaning}\n" for code, meaning in MEANINGS.items())
SCHEMAS = (
    "audit",
    "compact",
    "drill",
    "error",
    "gc",
    "log",
    "new-sink",
    "plan-recovery",
    "recover",
    "rescale",
    "resolve",
    "restore",
    "retire",
    "roll",
    "savepoint",
    "savepoints",
    "state",
    "status",
    "top",
)
RUN_EPILOG = """with spark-submit:
  spark-submit --properties-file orders.properties "$(epochal run --path)" [FILE] [--stream NAME]

exit codes: 0 all streams ended, or were stopped by SIGTERM or Ctrl-C, and are settled; 1 a stream failed, or could not
be settled or checked: start it again; 2 wrong settings or refused: a restart would end in the same way
"""
MOST_PORT = 65535
FOLDER_HELP = "keep the data in this folder, and reuse the data that is there"


class _Strict(argparse.ArgumentParser):
    """Takes options by their full names only. A command refuses what it does not know itself, with its own usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            wrong = [name.partition("=")[0] for name in unknown if name.startswith("-")]
            hints = dict.fromkeys(nearest(name, self._option_string_actions) for name in wrong)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(hints)}")
        return found, unknown


class _Parser(_Strict):
    """Has an exit code of its own for wrong usage, which says nothing about a stream."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: error: {printable(message)}\n")


class _JsonParser(_Strict):
    """Prints usage errors as JSON too."""

    def error(self, message: str) -> NoReturn:
        print_json_error(argparse.ArgumentError(None, message), USAGE)
        self.exit(USAGE)


def parser(*, as_json: bool = False) -> argparse.ArgumentParser:
    """The commands and their options."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help='print JSON; errors too, as {"error": ...}')
    # Accepted before and after the command. SUPPRESS: an absent one must not reset the other.
    verbose = argparse.ArgumentParser(add_help=False)
    verbose.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the log, and tracebacks of errors",
    )
    stream = argparse.ArgumentParser(add_help=False)
    stream.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    _add_stores(stream)

    kind: type[argparse.ArgumentParser] = _JsonParser if as_json else _Parser
    whole = kind(
        prog="epochal",
        description="Exactly-once sinks for PySpark Structured Streaming.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[verbose],
    )
    whole.add_argument("--version", action="version", version=f"epochal {__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    about = "show the status of a stream and its sinks; reads only"
    commands.add_parser("status", parents=[stream, common, verbose], help=about, description=_sentence(about))
    about = "list the last epochs of a journal, with the offsets and files that each has read; reads only"
    listing = commands.add_parser("log", parents=[common, verbose], help=about, description=_sentence(about))
    listing.add_argument(
        "path", metavar="PATH", help="a checkpoint, or the folder of a journal whose checkpoint is lost"
    )
    _add_state(commands, [common, verbose])
    about = "check that the sinks hold exactly the rows that were staged; reads only"
    audit = commands.add_parser("audit", parents=[stream, common, verbose], help=about, description=_sentence(about))
    audit.add_argument(
        "--fast",
        action="store_true",
        help="check names, lengths and logs only; reads no rows and needs no Spark",
    )
    _add_console(commands, [common, verbose])
    about = "finish every epoch that Spark has checkpointed, without running the query and without stopping it"
    recover = commands.add_parser(
        "recover", parents=[stream, common, verbose], help=about, description=_sentence(about)
    )
    about = "publish every open part before its limits are reached; stops a query that still runs"
    roll = commands.add_parser("roll", parents=[stream, common, verbose], help=about, description=_sentence(about))
    about = "commit or abort one epoch by hand, where Spark does not decide otherwise; else say why not"
    resolve = commands.add_parser(
        "resolve", parents=[stream, common, verbose], help=about, description=_sentence(about)
    )
    which = resolve.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--commit", type=_number(0), metavar="N", help="make epoch N visible, if Spark has checkpointed it"
    )
    which.add_argument("--abort", type=_number(0), metavar="N", help="remove what a dead driver has staged of epoch N")
    for patient in (recover, roll, resolve):
        patient.add_argument(
            "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds to wait for a store (60)"
        )
    about = "list the staged data that dead drivers left behind; --yes removes it"
    collect = commands.add_parser("gc", parents=[stream, common, verbose], help=about, description=_sentence(about))
    collect.add_argument("--yes", action="store_true", help="remove it; without this option nothing is changed")
    collect.add_argument(
        "--fence",
        action="store_true",
        help="treat the newest driver as dead too; with --yes, a driver that still runs is stopped",
    )
    about = "record that a stream is over for good, so that status is well and a start is refused; --undo takes it back"
    retire = commands.add_parser("retire", parents=[stream, common, verbose], help=about, description=_sentence(about))
    whether = retire.add_mutually_exclusive_group(required=True)
    whether.add_argument("--why", type=_reason, metavar="TEXT", help="the reason, which status shows")
    whether.add_argument("--undo", action="store_true", help="take it back: the query may be started again")
    _add_moving(commands, stream, [common, verbose])
    about = "join the small files of a rolling-file target; readers of the manifest see every row once meanwhile"
    compact = commands.add_parser("compact", parents=[common, verbose], help=about, description=_sentence(about))
    compact.add_argument("path", metavar="PATH", help="the target of a RollingFileSink")
    compact.add_argument(
        "--max-bytes", type=_size, default="128 MB", metavar="SIZE", help="the size of joined files (128 MB)"
    )
    compact.add_argument(
        "--grace",
        type=_duration,
        default="0",
        metavar="TIME",
        help="keep replaced files this long, such as 1h, for readers that listed them; a later run removes them (0)",
    )
    compact.add_argument(
        "--header", type=_yes_or_no, metavar="yes|no", help="whether CSV files have a header; needed for CSV"
    )
    compact.add_argument("--dry-run", action="store_true", help="only list what would be joined")
    about = "print the JSON schema of what a command prints with --json"
    schema = commands.add_parser("schema", parents=[verbose], help=about, description=_sentence(about))
    schema.add_argument("name", metavar="NAME", choices=SCHEMAS, help=", ".join(SCHEMAS))
    about = "write a package with a sink of your own: a working one for SQLite, to put another store in its place"
    begun = commands.add_parser("new-sink", parents=[common, verbose], help=about, description=_sentence(about))
    begun.add_argument("name", metavar="NAME", help="the sink's type in Spark settings, such as queue")
    begun.add_argument("--folder", metavar="DIR", help="the folder to write, which must not be there (epochal-NAME)")
    configured = argparse.ArgumentParser(add_help=False)
    configured.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="FILE.toml, or FILE.properties with spark.epochal.NAME.*; without it, the settings that spark-submit got",
    )
    configured.add_argument("--stream", action="append", default=[], metavar="NAME", help="only this one; repeatable")
    about = "check the streams of a settings file: options, source, SQL, columns, checkpoints, targets; writes nothing"
    commands.add_parser("check", parents=[configured, common, verbose], help=about, description=_sentence(about))
    about = "run the streams of a settings file, or of Spark's settings, until they end or a signal stops them"
    run = commands.add_parser(
        "run",
        parents=[configured, verbose],
        help=about,
        description=_sentence(about),
        epilog=RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("--check", action="store_true", help="only check, as `epochal check` does")
    run.add_argument("--json", action="store_true", help="with --check: print JSON")
    run.add_argument(
        "--standby", action="store_true", help="wait, warm, until the driver that runs a stream is gone; then take over"
    )
    run.add_argument(
        "--lease",
        type=_lease,
        metavar="TIME",
        help="with --standby: silent for so long, 10 s or more, a driver hangs (10 s)",
    )
    run.add_argument(
        "--when-ended",
        choices=("wait", "leave", "take-over"),
        metavar="WHAT",
        help="with --standby: what to do when a query has ended in order: wait, leave or take-over (wait)",
    )
    run.add_argument(
        "--zookeeper", metavar="HOST:PORT[,..]", help="with --standby: keep the lease there; every driver needs it"
    )
    run.add_argument("--path", action="store_true", help="print the path of the program, for spark-submit")
    about = "show exactly-once under kill -9, next to a plain foreachBatch under the same kills"
    demo = commands.add_parser("demo", parents=[common, verbose], help=about, description=_sentence(about))
    demo.add_argument("--kills", type=_number(3), default=3, metavar="N", help="number of kills (3)")
    demo.add_argument("--epochs", type=_number(4), metavar="N", help="number of epochs (8, or more for more kills)")
    demo.add_argument("--rows", type=_number(1), default=3000, metavar="N", help="orders in each epoch (3000)")
    demo.add_argument("--keep", metavar="DIR", help="run in this folder, which must be new or empty, and keep it")
    demo.add_argument("--timeout", type=_seconds, default=600.0, metavar="S", help="seconds before it gives up (600)")
    about = "run a real server on loopback until Ctrl-C"
    serve = commands.add_parser("serve", parents=[verbose], help=about, description=_sentence(about))
    kinds = serve.add_subparsers(dest="server", metavar="SERVER", required=True)
    about = "Apache Cassandra 5, in containers or as local processes from Maven's jars"
    cassandra = kinds.add_parser("cassandra", parents=[common, verbose], help=about, description=about)
    cassandra.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="number of nodes (1)")
    cassandra.add_argument(
        "--port", type=_port(1), metavar="N", help="the port for clients (9042, or a free one if 9042 is in use)"
    )
    cassandra.add_argument("--folder", metavar="DIR", help=FOLDER_HELP)
    about = "Apache Hadoop's HDFS 3.5, a NameNode and DataNodes, in containers or as local processes from Maven's jars"
    hdfs = kinds.add_parser("hdfs", parents=[common, verbose], help=about, description=about)
    hdfs.add_argument("--datanodes", type=int, choices=(1, 2, 3), default=1, help="number of DataNodes (1)")
    hdfs.add_argument("--port", type=_port(1), metavar="N", help="the NameNode's port for clients (a free one)")
    hdfs.add_argument("--folder", metavar="DIR", help=FOLDER_HELP)
    about = "Apache Kafka 4.1, brokers that are their own controllers, as local processes from Maven's jars"
    kafka = kinds.add_parser("kafka", parents=[common, verbose], help=about, description=about)
    kafka.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="number of brokers (1)")
    kafka.add_argument(
        "--partitions", type=_number(1), default=1, metavar="N", help="partitions of topics that are made by use (1)"
    )
    kafka.add_argument(
        "--topic",
        dest="topics",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="make a topic, with one partition unless said otherwise; repeatable",
    )
    kafka.add_argument(
        "--port", type=_port(1), metavar="N", help="the port for clients (9092, or a free one if 9092 is in use)"
    )
    kafka.add_argument("--folder", metavar="DIR", help=FOLDER_HELP)
    about = "PostgreSQL, as a local process: the installed one, else 17 from a Maven repository"
    postgres = kinds.add_parser("postgres", parents=[common, verbose], help=about, description=about)
    postgres.add_argument(
        "--port", type=_port(1), metavar="N", help="the port for clients (5432, or a free one if 5432 is in use)"
    )
    postgres.add_argument("--folder", metavar="DIR", help=FOLDER_HELP)
    about = "an object store that speaks S3's protocol, as a local process: moto, in memory, or versitygw, on files"
    s3 = kinds.add_parser("s3", parents=[common, verbose], help=about, description=_sentence(about))
    s3.add_argument("--bucket", default="epochal", metavar="NAME", help="the bucket that it has (epochal)")
    s3.add_argument(
        "--server",
        dest="program",
        choices=("moto", "versitygw"),
        default="moto",
        help="moto, or versitygw, which Go's tool chain builds once (moto)",
    )
    s3.add_argument("--folder", metavar="DIR", help=f"of versitygw: {FOLDER_HELP}")
    s3.add_argument(
        "--port", type=_port(1), metavar="N", help="the port for clients (9000, or a free one if 9000 is in use)"
    )
    about = "Apache ZooKeeper 3.9, as a local process from pyspark's jars"
    zookeeper = kinds.add_parser("zookeeper", parents=[common, verbose], help=about, description=about)
    zookeeper.add_argument(
        "--port", type=_port(1), metavar="N", help="the port for clients (2181, or a free one if 2181 is in use)"
    )
    zookeeper.add_argument("--folder", metavar="DIR", help=FOLDER_HELP)
    return whole


def _add_trust(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--trust",
        metavar="HOST[,HOST]",
        help="send user and password, or a certificate, to these hosts of a store, which only the journal names",
    )


def _add_stores(command: argparse.ArgumentParser) -> None:
    _add_trust(command)
    command.add_argument("--journal", metavar="J", help="the journal's location, if EpochWriter has journal=")


def _add_state(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], parents: list[argparse.ArgumentParser]
) -> None:
    """The commands about the state of Spark's operators."""
    about = "show what Spark's operators keep, what a recovery would replay, and how long it would take; reads only"
    state = commands.add_parser("state", parents=parents, help=about, description=_sentence(about))
    state.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    state.add_argument("--cores", type=_number(1), metavar="N", help="predict for N cores (those of this machine)")
    state.add_argument("--all", action="store_true", help="show every partition")
    about = "recover a copy of a checkpoint in new processes, and measure what each part takes; writes to no sink"
    drill = commands.add_parser("drill", parents=parents, help=about, description=_sentence(about))
    drill.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    drill.add_argument("--file", metavar="FILE", help="the settings file that defines the query, as for `epochal run`")
    drill.add_argument("--stream", metavar="NAME", help="the stream in it, if it has several")
    drill.add_argument("--journal", metavar="J", help="the journal's location, if EpochWriter has journal=")
    drill.add_argument("--cores", type=_number(1), metavar="N", help="recover with N cores (those of this machine)")
    about = "propose the cheapest settings of Spark's state that hold a recovery time; measures this machine once"
    plan = commands.add_parser("plan-recovery", parents=parents, help=about, description=_sentence(about))
    plan.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    wanted = plan.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--objective", type=_time, metavar="TIME", help="how long a recovery may take, such as '10 s'")
    wanted.add_argument("--budget", type=_share, metavar="SHARE", help="of a processor, such as '5 %%': the quickest")
    plan.add_argument("--interval", type=_time, metavar="TIME", help="the time between two epochs (as in commits/)")
    plan.add_argument("--updates", type=_number(1), metavar="N", help="changes of state in an epoch (as in its files)")
    plan.add_argument(
        "--partitions", type=_number(1), action="append", default=[], metavar="N", help="try N too; repeatable"
    )
    plan.add_argument("--cores", type=_number(1), metavar="N", help="plan for N cores (those of this machine)")
    plan.add_argument("--measure", action="store_true", help="measure this machine again")
    plan.add_argument("--plot", metavar="FILE", help="draw recovery time against cost, as SVG")
    plan.add_argument("--verify", action="store_true", help="recover a scratch stream of this size with the proposal")


def _add_moving(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    stream: argparse.ArgumentParser,
    parents: list[argparse.ArgumentParser],
) -> None:
    """The commands that copy and move streams."""
    about = "copy a stream with its journal at one epoch into a folder of savepoints; its query may run"
    taken = commands.add_parser("savepoint", parents=[stream, *parents], help=about, description=_sentence(about))
    taken.add_argument("target", metavar="TARGET", help="a folder of savepoints, which share what is the same in them")
    taken.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds to wait for a store, if one is needed (60)"
    )
    about = "list the savepoints in a folder"
    listing = commands.add_parser("savepoints", parents=parents, help=about, description=_sentence(about))
    listing.add_argument("target", metavar="TARGET", help="the folder")
    listing.add_argument("--verify", action="store_true", help="read every file back and compare its digest")
    listing.add_argument("--remove", action="append", default=[], metavar="NAME", help="remove a savepoint; repeatable")
    about = "make a checkpoint of a savepoint: the stream goes on there, and where it was it is closed"
    restored = commands.add_parser("restore", parents=parents, help=about, description=_sentence(about))
    restored.add_argument("savepoint", metavar="SAVEPOINT", help="a folder of savepoints / the name of one")
    restored.add_argument(
        "into", metavar="CHECKPOINT", help="the new checkpointLocation: a folder that is not there yet"
    )
    _add_trust(restored)
    which = restored.add_mutually_exclusive_group()
    which.add_argument(
        "--fork", action="store_true", help="begin another stream, for targets of its own; the original is left alone"
    )
    which.add_argument(
        "--lost-original",
        action="store_true",
        help="the original is gone for good: go on without closing it, if it cannot be reached",
    )
    restored.add_argument(
        "--wait", type=_seconds, default=60.0, metavar="S", help="seconds to wait for the original's driver to end (60)"
    )
    restored.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds to wait for a store (60)"
    )
    about = "change how many partitions the state of a stopped query has; a rescale that was killed is finished"
    rescaled = commands.add_parser("rescale", parents=[stream, *parents], help=about, description=_sentence(about))
    rescaled.add_argument("--partitions", type=_number(1), required=True, metavar="N", help="how many there shall be")
    rescaled.add_argument(
        "--savepoints",
        metavar="TARGET",
        help="the folder for the savepoint that is taken first (CHECKPOINT-savepoints)",
    )
    rescaled.add_argument(
        "--stopped", action="store_true", help="no driver runs, although nothing tells so from here: you know it"
    )
    rescaled.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds to wait for a store (60)"
    )


def _add_console(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], parents: list[argparse.ArgumentParser]
) -> None:
    """The commands that show several streams."""
    streams = argparse.ArgumentParser(add_help=False)
    streams.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+", help="the checkpointLocations of queries")
    _add_stores(streams)
    about = "show streams, sinks, epochs, lag and what is held, live on the terminal; reads only"
    top = commands.add_parser("top", parents=[streams, *parents], help=about, description=_sentence(about))
    top.add_argument("--once", action="store_true", help="print one frame and end")
    about = "show the same in a browser, with a timeline of epochs; a page on 127.0.0.1, reads only"
    ui = commands.add_parser("ui", parents=[streams, *parents], help=about, description=_sentence(about))
    ui.add_argument("--port", type=_port(0), metavar="N", help="the page's port (4180, or a free one; 0: a free one)")
    about = "write the page as one HTML file that can be sent around; reads only"
    report = commands.add_parser("report", parents=[streams, *parents], help=about, description=_sentence(about))
    report.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write; - for stdout")
    report.add_argument("--audit", action="store_true", help="run `epochal audit --fast` and put the result in")


def _sentence(text: str) -> str:
    """Upper-case the first letter only: names keep their spelling."""
    return text[0].upper() + text[1:]


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a number of seconds, 0 or more")
    return value


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r}: {fault}") from None


def _duration(text: str) -> float:
    try:
        return 0.0 if text.strip() == "0" else parse_duration(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r}: 0, or {fault}") from None


def _time(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r}: {fault}") from None


def _lease(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if seconds < LEAST_LEASE:
        raise argparse.ArgumentTypeError(f"{text!r}: {LEAST_LEASE:.0f} s or more, such as '30 s' or '1 min'")
    return seconds


def _share(text: str) -> float:
    try:
        return parse_share(text)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text!r}: {fault}") from None


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r}: yes or no")
    return text.lower() == "yes"


def _reason(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_REASON:
        raise argparse.ArgumentTypeError(f"a reason for people, of up to {LONGEST_REASON} characters")
    if printable(text.strip(), keep="") != text.strip():
        raise argparse.ArgumentTypeError("a reason in one line, without control characters")
    return text.strip()


def _topic(text: str) -> tuple[str, int]:
    """A topic to be made: its name, and how many partitions.

    >>> _topic("orders"), _topic("orders:3")
    (('orders', 1), ('orders', 3))
    """
    name, colon, partitions = text.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r}: a topic's name has letters, digits, '.', '_' and '-'")
    return name, _number(1)(partitions) if colon else 1


def _port(least: int) -> Callable[[str], int]:
    """A port of TCP."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= MOST_PORT:
            raise argparse.ArgumentTypeError(f"{text!r}: a port, {least} to {MOST_PORT}")
        return int(text)

    return parse


def _number(least: int) -> Callable[[str], int]:
    """A whole number, not below a limit."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number, {least} or more")
        return int(text)

    return parse
