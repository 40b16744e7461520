"""A stream into Cassandra whose dead letters roll, as an old version left it: made here, and put into another server.

    python -m integration_tests.cassandra.old_letters integration_tests/old_versions/v1

Beside the checkpoint and the letters an archive holds the tables, epochal's own too. Keyspace and endpoint are replaced
as the root is (`integration_tests.old_versions.moving`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import epochal
from epochal.testing import servers
from integration_tests.cassandra.tables import Keyspace, keyspace
from integration_tests.old_versions.make import killed
from integration_tests.old_versions.moving import pack, unpack
from integration_tests.old_versions.streams import Place, to_checkpoint
from integration_tests.spark.driver import PLAIN, _compact_often
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED

ARCHIVE = "dead-letters.tar.gz"
MODULE = "integration_tests.cassandra.old_letters"
TABLES = {
    "kinds": "kind text, id bigint, word text, at timestamp, PRIMARY KEY (kind, id)",
    "epochal_streams": "target text, lineage text, adopts text, epoch bigint, stamp bigint, recent text, "
    "PRIMARY KEY (target, lineage)",
    "epochal_parts": "target text, lineage text, epoch bigint, part text, PRIMARY KEY ((target, lineage), epoch, part)",
    "epochal_claims": "target text, version bigint static, lineage text, claim text, PRIMARY KEY (target, lineage)",
}
# What an archive has in the place of `_names`.
NEUTRAL = (
    "cassandra server-of-the-stream table-of-the-stream",
    "cassandra:host-of-the-stream/keyspace_of_the_stream.",
    "keyspace_of_the_stream",
    '"contact_points":["host-of-the-stream"]',
    '"port":65535',
)


def letters_of(place: Place) -> Path:
    return place.root / "letters"


def sink_of(place: Place, hosts: list[str], port: int, space: str) -> epochal.CassandraSink:
    """A kind that is empty is no partition: two rows of each epoch go to the dead letters."""
    rolling = epochal.Rolling(max_rows=5)
    letters = epochal.RollingFileSink(str(letters_of(place)), format="json", rolling=rolling, name="letters")
    return epochal.CassandraSink(f"{space}.kinds", contact_points=hosts, port=port, dead_letters=letters, name="kinds")


def put_back(archive: Path, place: Place, space: Keyspace) -> None:
    """Unpack the stream, and fill a new keyspace with its tables."""
    for name, columns in TABLES.items():
        space.table(name, columns)
    unpack(archive, place.root, dict(zip(NEUTRAL, _names(space), strict=True)))
    for name, rows in json.loads((place.root / "tables.json").read_text()).items():
        for row, stamp in rows:
            stamped = f" USING TIMESTAMP {stamp}" if stamp else ""
            space.execute(f"INSERT INTO {space.name}.{name} JSON {_literal(row)}{stamped}")


def main(folder: Path) -> None:
    """Make the archive: the journal has epoch 4 as decided, and no sink has committed it."""
    with (
        servers.cassandra() as cluster,
        keyspace(cluster) as space,
        tempfile.TemporaryDirectory() as temporary,
    ):
        space.table("kinds", TABLES["kinds"])
        place = Place(Path(temporary).resolve() / "stream")
        driver = (MODULE, "drive", ",".join(space.hosts), str(space.port), space.name)
        killed(driver, place, "after-prepared=kill@5")
        killed(driver, place, "before-commit=kill")
        (place.root / "tables.json").write_text(json.dumps({name: _rows(space, name) for name in TABLES}, indent=1))
        pack(place.root, folder / ARCHIVE, dict(zip(_names(space), NEUTRAL, strict=True)))


def drive(place: Place, hosts: str, port: str, space: str) -> None:
    """A driver that runs until it is killed."""
    _compact_often()
    spark = epochal.session("driver", master="local[2]", conf={**CHEAP, **SHORT_LIVED, **LOOPBACK, **PLAIN})
    writer = epochal.EpochWriter(sink_of(place, hosts.split(","), int(port), space))
    writer.start(to_checkpoint(spark, place)).awaitTermination()


def _rows(space: Keyspace, name: str) -> list[tuple[str, int | None]]:
    """The rows of a table as JSON, each with the time that it was written with where a sink has fixed it."""
    stamp = ", WRITETIME(word) AS stamp" if name == "kinds" else ""
    rows = [row[0] for row in space.execute(f"SELECT JSON * FROM {space.name}.{name}")]
    if not stamp:
        return [(row, None) for row in rows]
    stamps = [row.stamp for row in space.execute(f"SELECT id{stamp} FROM {space.name}.{name}")]
    return list(zip(rows, stamps, strict=True))


def _names(space: Keyspace) -> tuple[str, ...]:
    """What records say about where the table is, and which."""
    tables = space.execute(f"SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = '{space.name}'")
    (server,) = space.execute("SELECT cluster_name FROM system.local")
    number = next(row.id for row in tables if row.table_name == "kinds")
    hosts = ",".join(space.hosts)
    return (
        f"cassandra {server.cluster_name} {number}",
        f"cassandra:{hosts}/{space.name}.",
        space.name,
        f'"contact_points":{json.dumps(space.hosts, separators=(",", ":"))}',
        f'"port":{space.port}',
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        drive(Place(Path(sys.argv[-1]).parent), *sys.argv[2:-1])
    else:
        main(Path(sys.argv[1]))
