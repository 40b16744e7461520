"""Commits a staged epoch in a process of its own, as `epochal recover` beside a driver does.

python -m integration_tests.kafka_sink.committer ORDER
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from epochal import KafkaSink
from epochal.txn.model import Attempt, Handle

TRIES = 60


def main(order: Path) -> None:
    """Try until it is committed, and say how."""
    facts = json.loads(order.read_text())
    sink = KafkaSink.from_description(facts["description"])
    for _ in range(TRIES):
        try:
            outcome = sink.commit(Attempt(facts["lineage"], 0, 1), Handle.from_json(facts["handle"]))
        except OSError as fault:
            print(fault, flush=True)
            time.sleep(1)
        else:
            print(outcome.value, flush=True)
            return
    sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
