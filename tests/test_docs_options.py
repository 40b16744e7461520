"""The tables of options in the docs are those of the declarations. Where one is not, the right one is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epochal import (
    CassandraSink,
    Complete,
    Connection,
    DeltaSink,
    EpochWriter,
    KafkaSink,
    PostgresSink,
    Rolling,
    RollingFileSink,
    StatePolicy,
    Tuning,
)
from epochal.sinks.config.declaring import declarations
from epochal.sinks.config.tables import table_of
from epochal.spark_plugins.streams.options import Source, StreamOptions, Watermark

DOCS = Path(__file__).parent.parent / "docs"
TABLES: list[tuple[str, Any]] = [
    ("files.md", RollingFileSink),
    ("files.md", Rolling),
    ("files.md", Complete),
    ("delta.md", DeltaSink),
    ("cassandra.md", CassandraSink),
    ("cassandra.md", Connection),
    ("cassandra.md", Tuning),
    ("kafka-sink.md", KafkaSink),
    ("postgres.md", PostgresSink),
    ("operations.md", EpochWriter),
    ("state.md", StatePolicy),
    ("configuration.md", StreamOptions),
    ("configuration.md", Source),
    ("configuration.md", Watermark),
]


@pytest.mark.parametrize(("page", "kind"), TABLES, ids=[kind.__name__ for _, kind in TABLES])
def test_the_table_of_options_is_that_of_the_declarations(page: str, kind: Any) -> None:
    expected = table_of(kind)

    assert expected in (DOCS / page).read_text(), f"docs/{page} has to have this table:\n\n{expected}"


@pytest.mark.parametrize("kind", [kind for _, kind in TABLES], ids=[kind.__name__ for _, kind in TABLES])
def test_help_says_what_each_option_is_for(kind: Any) -> None:
    text = kind.__init__.__doc__

    assert all(f"\n  {name}: " in text for name in declarations(kind))
    assert "](" not in text  # links are for the docs
