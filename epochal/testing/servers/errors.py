"""The error of servers for tests."""

from __future__ import annotations

from epochal.txn.errors import EpochalError


class ServerFailed(EpochalError):
    """A server is not available, did not start, or cannot do what was asked; the message says what to do."""
