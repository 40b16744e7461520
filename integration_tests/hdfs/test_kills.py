"""Drivers killed around every step of two file sinks, with checkpoint, journal and targets on HDFS."""

from __future__ import annotations

import pytest

from integration_tests.hdfs.remote import Remote
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end
from integration_tests.spark.children import Children

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# In the default suite test_rolling.py dies on HDFS, around the same steps of files.
CHAIN = (
    "after-generation",
    "after-enrol",
    "after-write@2",  # leaves staged files without a record
    "before-seal",
    "after-abort",
    "before-prepared",
    "after-prepared",
    "after-decided",
    "before-rename@2",
    "after-rename@5",
    "after-marker@2",
    "before-manifest@2",
    "after-cleanup@3",
    "before-done",
    "before-snapshot",
    "after-purge",
)


@pytest.mark.matrix
def test_a_kill_around_every_step_on_hdfs_loses_doubles_and_shows_early_nothing(
    drivers: Children, remote: Remote
) -> None:
    arguments = ["--sinks", "2", "--small-journal", *remote.arguments]
    files = killed_at_each(drivers, remote.world, CHAIN, arguments, lambda: check_after_a_kill(remote.look()))

    check_at_the_end(remote.look(), files=files)
