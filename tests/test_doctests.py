"""The examples in docstrings are run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import epochal

# What only an extra installs, by the name it is imported under.
OF_EXTRAS = {"cassandra", "confluent_kafka", "delta", "deltalake", "hdfs", "psycopg"}
FOUND = (module.name for module in pkgutil.walk_packages(epochal.__path__, "epochal."))
MODULES = sorted(name for name in FOUND if not name.endswith(".__main__"))  # importing one runs it


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OF_EXTRAS:
            raise
        pytest.skip(f"needs an extra: {error.name} is not installed")

    assert doctest.testmod(module).failed == 0


def test_linked_folders_are_searched_for_examples() -> None:
    assert {"epochal.txn.failpoints", "epochal.spark_plugins.checkpoint"} <= set(MODULES)
