"""Sizes, durations and shares that nobody can mean are faults of an option, as others are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from epochal.sinks.config.quantities import parse_duration, parse_share, parse_size


@pytest.mark.parametrize("parse", [parse_size, parse_duration, parse_share])
@pytest.mark.parametrize("value", ["9" * 400, 10**400, float("inf"), float("nan"), "9" * 308 + "." + "9" * 5_000])
def test_a_number_that_is_too_large_is_a_value_error(parse: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match="above 0"):
        parse(value)
