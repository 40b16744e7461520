"""What can go wrong with a server for tests."""

from __future__ import annotations

from epochal.txn.errors import EpochalError


class ServerFailed(EpochalError):
    """A server could not be had, did not start, or cannot do what was asked; the message says what helps."""
