"""Settings of all unit tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("epochal", deadline=None)  # a busy machine is no fault
settings.load_profile("epochal")
