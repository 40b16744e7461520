"""Claims of a target: compare and set, by transactions that share one transactional id.

Who begins to use the id shuts out everybody before it, then reads the newest version, then commits the next one: so of
several that have read the same version only one commits, and each of the others finds another version, or is shut out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from epochal.participant import Claim, Lineages, StoreAway
from epochal.sinks.kafka.cluster.clients import Cluster
from epochal.sinks.kafka.cluster.transactions import Sending, ShutOut, held
from epochal.sinks.kafka.layout import claims_key, transactional_id
from epochal.sinks.kafka.ledger import Ledger
from epochal.sinks.kafka.ledger_state import claims_to_json

SHORT = Sending(timeout=10.0)  # one message
TRIES = 10
TURN = 2.0  # seconds that another process gets to commit what it has begun


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one target."""

    cluster: Cluster
    ledger: Ledger
    topic: str
    target: str

    def read(self, lineage: str) -> Lineages:
        return self.ledger.read(self.target, lineage).lineages(self.target)

    def claim(self, claim: Claim, version: int) -> bool:
        """Add a claim; False if the target was claimed since `version`."""

        def after(before: Lineages) -> Lineages | None:
            return before.with_claim(claim) if before.version == version else None

        return self._changed(claim, after)

    def withdraw(self, claim: Claim) -> None:
        """Take back a claim, unless another start of its lineage has followed."""

        def after(before: Lineages) -> Lineages | None:
            found = before.without(claim)
            return None if found is before else found

        self._changed(claim, after)

    def _changed(self, claim: Claim, after: Callable[[Lineages], Lineages | None]) -> bool:
        """Commit what follows the newest version; False if nothing does."""
        with held(self.cluster, transactional_id(self.target)) as transactions:
            for _ in range(TRIES):
                before = self.read(claim.lineage)
                if after(before) is None:
                    return False
                wanted = None
                try:
                    producer, _ = transactions.producer(SHORT)
                    before = self.read(claim.lineage)  # nobody else can commit any more
                    wanted = after(before)
                    if wanted is None:
                        return False
                    producer.begin()
                    with producer.errors("claim the target"):
                        producer.mark(self.topic, claims_key(self.target), claims_to_json(wanted))
                    producer.flush()
                    producer.commit()
                    self.ledger.committed(producer.marked)
                except ShutOut:
                    self._give_turn(claim, before)
                    continue
                except StoreAway:
                    if wanted is None:
                        raise
                    # It may be committed or not: the next producer brings that to an end.
                    transactions.drop()
                    transactions.producer(SHORT)
                    if self._is_newest(claim, wanted):
                        return True
                    raise
                finally:
                    transactions.drop()  # starts are rare
                return True
        raise StoreAway(f"other starts have claimed the target {TRIES} times meanwhile")

    def _is_newest(self, claim: Claim, wanted: Lineages) -> bool:
        found = self.read(claim.lineage)
        return (found.version, dict(found.claims)) == (wanted.version, dict(wanted.claims))

    def _give_turn(self, claim: Claim, before: Lineages) -> None:
        """Give the process that has shut this one out its time to commit."""
        deadline = time.monotonic() + TURN * (0.5 + random.random())
        while time.monotonic() < deadline and self.read(claim.lineage).version == before.version:
            time.sleep(0.05)
