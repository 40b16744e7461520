"""Everything that the author of a participant needs, in one place.

A participant is a store that can take part in a writer's two-phase commit. `epochal/testing/directory.py` is a whole
one in a page, `epochal.testing.contract` is the suite that it must pass.

>>> from epochal.participant import Attempt, Batch
>>> batch = Batch(attempt=Attempt("1f0c9a2e", 42, 3), rows=["a", "b"], offsets="ab12")
>>> batch.attempt.epoch, batch.state, batch.watermark
(42, {}, None)
"""

from epochal.sinks.config.declaring import CheckedOptions, Option, SinkName, SinkOptions, declared, secrets_in
from epochal.sinks.config.options import Faults
from epochal.sinks.config.quantities import parse_duration, parse_size
from epochal.sinks.config.trust import HOSTS as TRUSTED_HOSTS
from epochal.sinks.config.trust import distrusted
from epochal.sinks.spark.reasons import marked
from epochal.sinks.spark.staged_files import StagedEpoch, StagedFiles
from epochal.sinks.spark.values import in_utc, quoted
from epochal.sinks.storage.register import Lineages, Register
from epochal.txn import failpoints
from epochal.txn.audit import ROWS_NOT_READ, Difference, Expected, Scope, StoreReport
from epochal.txn.commit_checks import VisibleEpoch, check_predecessor, check_same_attempt
from epochal.txn.errors import (
    BadRows,
    CutGone,
    DataLost,
    EpochalError,
    FencedOut,
    OptionError,
    Refused,
    Rewound,
    SinkUnavailable,
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
    lineage_tag,
)
from epochal.txn.participant import Abilities, Auditable, OnConnect, Participant, Rolls, Wrapper
from epochal.txn.past import HasPast, NoPast, SinkAt
from epochal.txn.row_digests import RowDigest, digest_text
from epochal.txn.state.typed import Edit, ListState, MapState, ValueState

__all__ = [
    "NO_EPOCH",
    "ROWS_NOT_READ",
    "TRUSTED_HOSTS",
    "Abilities",
    "Attempt",
    "Auditable",
    "BadRows",
    "Batch",
    "CheckedOptions",
    "Claim",
    "CutGone",
    "DataLost",
    "Difference",
    "Edit",
    "EpochalError",
    "Expected",
    "Faults",
    "FencedOut",
    "Handle",
    "HasPast",
    "Json",
    "Lineages",
    "ListState",
    "MapState",
    "Memory",
    "NoPast",
    "OnConnect",
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
    "SinkAt",
    "SinkName",
    "SinkOptions",
    "SinkUnavailable",
    "Staged",
    "StagedEpoch",
    "StagedFiles",
    "StoreAway",
    "StoreReport",
    "TwoJournals",
    "ValueState",
    "VisibleEpoch",
    "Wrapper",
    "check_predecessor",
    "check_same_attempt",
    "declared",
    "digest_text",
    "distrusted",
    "failpoints",
    "in_utc",
    "lineage_tag",
    "marked",
    "parse_duration",
    "parse_size",
    "quoted",
    "secrets_in",
]
