"""Runs examples in the session of all tests: `epochal.session` returns the one that runs."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name: str, *arguments: object) -> list[str]:
    """Run an example as a program; the lines that it prints."""
    return printed_by(lambda: runpy.run_path(str(EXAMPLES / name), run_name="__main__"), name, *arguments)


def printed_by(run: Callable[[], object], *arguments: object) -> list[str]:
    """The lines that a program prints."""
    out = io.StringIO()
    with patch.object(sys, "argv", [*map(str, arguments)]), contextlib.redirect_stdout(out):
        run()
    return out.getvalue().splitlines()


@contextlib.contextmanager
def settings_restored(spark: SparkSession) -> Iterator[None]:
    """An example sets its session's settings; the tests after it get theirs back."""
    before = dict(spark.conf.getAll)
    yield
    for name, value in dict(spark.conf.getAll).items():
        if before.get(name) != value and spark.conf.isModifiable(name):
            spark.conf.unset(name) if name not in before else spark.conf.set(name, before[name])
