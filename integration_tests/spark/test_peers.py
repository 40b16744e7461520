"""What has gone wrong in others' file sinks; each case is named after what was seen there.

Flink's FileSink 2.3, restored from an older retained checkpoint, wrote rows once more and ended as if all were well.
(Restored from the latest one it was exact, and left files in progress behind at every kill, for ever: the chains of
kills, above all that of test_rolling_kills.py, end with a list of every file that is not meant to stay.)
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from epochal import Rewound, Rolling
from integration_tests.spark.chains import publish_what_is_open
from integration_tests.spark.checks import visible_rows
from integration_tests.spark.queries import archive, run, tree
from integration_tests.spark.world import ROWS, World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


def test_an_older_checkpoint_that_is_restored_doubles_nothing_and_says_so(spark: SparkSession, world: World) -> None:
    sink = archive(world, bucket_by=["word"], rolling=Rolling(max_rows=3 * ROWS))
    world.feed(2)
    run(spark, world, sink)  # both epochs are in open parts now
    shutil.copytree(world.checkpoint, world.root / "older")
    world.feed(7)
    run(spark, world, archive(world, bucket_by=["word"], rolling=Rolling(max_rows=3 * ROWS)))
    before, newest = tree(world.first), world.root / "newest"
    world.checkpoint.rename(newest)
    shutil.copytree(world.root / "older", world.checkpoint)
    with pytest.raises(Rewound, match="restored from an older copy") as refused:
        run(spark, world, archive(world, bucket_by=["word"], rolling=Rolling(max_rows=3 * ROWS)))

    assert "Restore the newest copy of the journal" in str(refused.value)
    assert tree(world.first) == before
    # What it says helps: with the newest journal the older checkpoint may stay, and nothing comes twice.
    shutil.rmtree(world.journal)
    shutil.copytree(newest / "epochal", world.journal)
    with pytest.raises(Rewound) as choice:
        run(spark, world, archive(world, bucket_by=["word"], rolling=Rolling(max_rows=3 * ROWS)))
    token = str(choice.value).partition("adopt='")[2].partition("'")[0]
    world.feed(8)
    run(spark, world, archive(world, bucket_by=["word"], rolling=Rolling(max_rows=3 * ROWS)), adopt=token)
    publish_what_is_open(str(world.checkpoint))
    assert visible_rows(world.first) == all_rows(8)
