"""The orders that are streamed: one file an epoch, the same orders on every machine."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

SCHEMA = "order_id BIGINT, customer STRING, region STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP, day DATE"
REGIONS = ("africa", "americas", "asia", "europe")
START = datetime(2026, 11, 16, tzinfo=UTC)


def write(folder: Path, *, epochs: int, rows: int) -> None:
    """Write the source: one file for each epoch."""
    folder.mkdir(parents=True)
    for epoch in range(epochs):
        lines = [json.dumps(order(epoch * rows + number)) for number in range(rows)]
        (folder / f"orders-{epoch:05d}.json").write_text("\n".join(lines) + "\n", encoding="ascii")


def order(number: int) -> dict[str, object]:
    """One order.

    >>> order(7) == order(7), order(7)["order_id"]
    (True, 7)
    """
    chance = random.Random(number)  # nothing secret
    at = START + timedelta(seconds=17 * number)
    return {
        "order_id": number,
        "customer": f"customer-{chance.randrange(5000):04d}",
        "region": chance.choice(REGIONS),
        "amount": f"{chance.randrange(100, 50000) / 100:.2f}",
        "ordered_at": at.isoformat(),
        "day": at.date().isoformat(),
    }
