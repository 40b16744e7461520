"""Read only whole epochs while the query writes.

    python examples/exactly_once_reader.py FOLDER/archive

A plain reader of the folder may see an epoch's files arrive one by one. The manifest lists an epoch when it is
complete.
"""

from __future__ import annotations

import sys

import epochal


def main(target: str) -> None:
    """Read the files that the manifest lists, and compare their rows with its counts."""
    epochs = epochal.published(target)
    files = [f"{target}/{name}" for epoch in epochs for name, _ in epoch.files]
    for epoch in epochs:
        print(f"epoch {epoch.epoch}: {epoch.rows} orders in {len(epoch.files)} files")

    spark = epochal.session("reader")
    total = spark.read.json(files).count() if files else 0
    print(f"read {total} orders; the manifest promised {sum(epoch.rows for epoch in epochs)}")


if __name__ == "__main__":
    main(sys.argv[1])
