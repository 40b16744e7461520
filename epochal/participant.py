"""Everything that the author of a participant needs, in one place.

A participant is a store that can take part in a writer's two-phase commit. `epochal/testing/directory.py` is a whole
one in a page, `epochal.testing.contract` is the suite that it must pass.

>>> from epochal.participant import Attempt, Batch
>>> batch = Batch(attempt=Attempt("1f0c9a2e", 42, 3), rows=["a", "b"], offsets="ab12")
>>> batch.attempt.epoch, batch.state, batch.watermark
(42, {}, None)
"""

from epochal.sinks.config.declaring import Option, SinkName, SinkOptions, declared
from epochal.sinks.storage.register import Lineages, Register
from epochal.txn import failpoints
from epochal.txn.audit import Difference, Expected, Scope, StoreReport
from epochal.txn.commit_checks import VisibleEpoch, check_predecessor, check_same_attempt
from epochal.txn.errors import (
    BadRows,
    DataLost,
    EpochalError,
    FencedOut,
    OptionError,
    Refused,
    Rewound,
    StoreAway,
    TwoJournals,
)
from epochal.txn.model import (
    NO_EPOCH,
    Attempt,
    Batch,
    Claim,
    Handle,
    Json,
    Memory,
    OpenRows,
    Outcome,
    RollRequest,
    Staged,
)
from epochal.txn.participant import Auditable, Participant, Rolls, Wrapper
from epochal.txn.row_digests import RowDigest
from epochal.txn.state.typed import Edit, ListState, MapState, ValueState

__all__ = [
    "NO_EPOCH",
    "Attempt",
    "Auditable",
    "BadRows",
    "Batch",
    "Claim",
    "DataLost",
    "Difference",
    "Edit",
    "EpochalError",
    "Expected",
    "FencedOut",
    "Handle",
    "Json",
    "Lineages",
    "ListState",
    "MapState",
    "Memory",
    "OpenRows",
    "Option",
    "OptionError",
    "Outcome",
    "Participant",
    "Refused",
    "Register",
    "Rewound",
    "RollRequest",
    "Rolls",
    "RowDigest",
    "Scope",
    "SinkName",
    "SinkOptions",
    "Staged",
    "StoreAway",
    "StoreReport",
    "TwoJournals",
    "ValueState",
    "VisibleEpoch",
    "Wrapper",
    "check_predecessor",
    "check_same_attempt",
    "declared",
    "failpoints",
]
