"""Runs a command, and turns errors into a message and an exit code."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from epochal.cli import progress
from epochal.cli.arguments import parser
from epochal.cli.exit_codes import INTERRUPTED, code_of
from epochal.cli.text import SafeFormatter, paint, print_in_any_encoding, print_json_error, show, stop_printing
from epochal.sinks.config.trust import trusting
from epochal.txn.errors import EpochalError, OptionError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    print_in_any_encoding()
    options = parser(as_json="--json" in given).parse_args(given)
    verbose = getattr(options, "verbose", False)
    as_json = getattr(options, "json", False)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(message)s" if verbose else "%(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    try:
        with trusting(getattr(options, "trust", None)), progress.shown(None if as_json or verbose else sys.stderr):
            return _run(options)
    except BrokenPipeError:
        stop_printing()
        return 0
    except (EpochalError, OSError) as fault:
        return _fail(fault, code_of(fault), verbose=verbose, as_json=as_json)
    except KeyboardInterrupt as fault:
        if as_json:
            print_json_error(fault, INTERRUPTED, "interrupted; what is decided stays decided")
        else:
            print("interrupted; what is decided stays decided", file=sys.stderr)
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    # Each command imports only what it needs: `status` must not load Spark.
    match options.command:
        case "status":
            from epochal.cli import status

            return status.run(options.checkpoint, options.journal, as_json=options.json)
        case "log":
            from epochal.cli import log

            return log.run(options.path, as_json=options.json)
        case "state":
            from epochal.cli import state

            return state.run(options.checkpoint, cores=options.cores, every=options.all, as_json=options.json)
        case "drill":
            from epochal.cli import drill

            return drill.run(
                options.checkpoint,
                options.journal,
                file=options.file,
                stream=options.stream,
                cores=options.cores,
                as_json=options.json,
            )
        case "plan-recovery":
            from epochal.cli import plan_recovery

            return plan_recovery.run(
                options.checkpoint,
                objective=options.objective,
                budget=options.budget,
                interval=options.interval,
                updates=options.updates,
                partitions=options.partitions,
                cores=options.cores,
                measure=options.measure,
                plot=options.plot,
                verify=options.verify,
                as_json=options.json,
            )
        case "audit":
            from epochal.cli import audit

            return audit.run(options.checkpoint, options.journal, fast=options.fast, as_json=options.json)
        case "top":
            from epochal.cli.console import top

            return top.run(options.checkpoints, options.journal, once=options.once, as_json=options.json)
        case "ui":
            from epochal.cli.console import ui

            return ui.run(options.checkpoints, options.journal, port=options.port, as_json=options.json)
        case "report":
            from epochal.cli.console import report

            return report.run(
                options.checkpoints, options.journal, output=options.output, audit=options.audit, as_json=options.json
            )
        case "recover":
            from epochal.cli import recover

            return recover.run(options.checkpoint, options.journal, timeout=options.timeout, as_json=options.json)
        case "resolve":
            from epochal.cli import resolve

            return resolve.run(
                options.checkpoint,
                options.journal,
                commit=options.commit,
                abort=options.abort,
                timeout=options.timeout,
                as_json=options.json,
            )
        case "roll":
            from epochal.cli import roll

            return roll.run(options.checkpoint, options.journal, timeout=options.timeout, as_json=options.json)
        case "gc":
            from epochal.cli import gc

            return gc.run(
                options.checkpoint, options.journal, remove=options.yes, fencing=options.fence, as_json=options.json
            )
        case "retire":
            from epochal.cli import retire

            return retire.run(
                options.checkpoint, options.journal, why=options.why, undo=options.undo, as_json=options.json
            )
        case "savepoint":
            from epochal.cli import savepoint

            return savepoint.run(
                options.checkpoint, options.target, options.journal, timeout=options.timeout, as_json=options.json
            )
        case "savepoints":
            from epochal.cli import savepoints

            return savepoints.run(options.target, remove=options.remove, verify=options.verify, as_json=options.json)
        case "restore":
            from epochal.cli import restore

            return restore.run(
                options.savepoint,
                options.into,
                fork=options.fork,
                lost_original=options.lost_original,
                wait=options.wait,
                timeout=options.timeout,
                as_json=options.json,
            )
        case "rescale":
            from epochal.cli import rescale

            return rescale.run(
                options.checkpoint,
                options.journal,
                partitions=options.partitions,
                savepoints=options.savepoints,
                stopped=options.stopped,
                timeout=options.timeout,
                as_json=options.json,
            )
        case "compact":
            from epochal.cli import compact

            return compact.run(
                options.path,
                max_bytes=options.max_bytes,
                grace=options.grace,
                header=options.header,
                dry_run=options.dry_run,
                as_json=options.json,
            )
        case "schema":
            from epochal.cli import schema

            return schema.run(options.name)
        case "new-sink":
            from epochal.cli import new_sink

            return new_sink.run(options.name, options.folder, as_json=options.json)
        case "run" | "check":
            from epochal.cli import streams_by_settings

            if options.command == "check" or options.check:
                return streams_by_settings.check(options.file, options.stream, as_json=options.json)
            if options.path:
                return streams_by_settings.print_path()
            if options.json:
                raise OptionError("epochal run", ["--json: only with --check, or by `epochal check --json`"])
            return streams_by_settings.run(options.file, options.stream, _standing_by(options))
        case "serve":
            from epochal.cli import serve

            place = {"port": options.port, "folder": options.folder, "as_json": options.json}
            if options.server == "s3":
                return serve.s3(bucket=options.bucket, program=options.program, **place)
            if options.server == "zookeeper":
                return serve.zookeeper(**place)
            if options.server == "postgres":
                return serve.postgres(**place)
            if options.server == "kafka":
                return serve.kafka(
                    brokers=options.brokers, partitions=options.partitions, topics=options.topics, **place
                )
            if options.server == "hdfs":
                return serve.hdfs(datanodes=options.datanodes, **place)
            return serve.cassandra(nodes=options.nodes, **place)
        case _:
            from epochal.cli.demo import run as demo

            return demo.run(
                epochs=options.epochs,
                rows=options.rows,
                kills=options.kills,
                keep=options.keep,
                timeout=options.timeout,
                as_json=options.json,
            )


def _standing_by(options: argparse.Namespace) -> dict[str, Any] | None:
    """The options of a standby that were given; None if this is none."""
    given = {"lease": options.lease, "when_ended": options.when_ended, "zookeeper": options.zookeeper}
    given = {name: value for name, value in given.items() if value is not None}
    if not options.standby and given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise OptionError("epochal run", [f"{names}: only with --standby"])
    if options.zookeeper is not None:
        from epochal.spark_plugins.standby.zookeeper import check_installed

        check_installed()  # before Spark starts
    return given if options.standby else None


def _fail(fault: Exception, code: int, *, verbose: bool, as_json: bool) -> int:
    if verbose:
        show("".join(traceback.format_exception(fault)), sys.stderr)
    if as_json:
        print_json_error(fault, code)
    else:
        show(f"{paint('epochal:', 'red', sys.stderr)} {type(fault).__name__}: {fault}", sys.stderr)
    return code
