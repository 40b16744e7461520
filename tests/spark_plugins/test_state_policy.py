"""How a user says what a recovery may cost, in code and in settings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from epochal import EpochWriter, RollingFileSink, StatePolicy
from epochal.sinks.config.options import Faults
from epochal.sinks.config.settings import Settings
from epochal.txn.errors import OptionError
from epochal.txn.state.policy import Knobs, Policy


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (StatePolicy(), Policy()),
        (StatePolicy(recovery="500 ms"), Policy(recovery=0.5)),
        (StatePolicy(recovery=timedelta(seconds=2)), Policy(recovery=2.0)),
        (StatePolicy(cpu="2 %"), Policy(cpu=0.02)),
        (StatePolicy(cpu=0.1), Policy(cpu=0.1)),
        (
            StatePolicy(dirty_ratio=0.66, segment_age="1 s", retention=0.1),
            Policy(knobs=Knobs(dirty_ratio=0.66, segment_age=1.0, retention=0.1)),
        ),
    ],
    ids=str,
)
def test_a_policy_says_the_same_in_numbers(given: StatePolicy, expected: Policy) -> None:
    assert given.policy == expected


def test_all_that_is_wrong_is_in_one_error() -> None:
    with pytest.raises(OptionError) as caught:
        StatePolicy(recovery="soon", cpu="200 %", dirty_ratio=0)

    text = str(caught.value)
    assert "recovery='soon'" in text
    assert "cpu='200 %'" in text
    assert "a part above 0 and up to 1" in text


@pytest.mark.parametrize("given", [{"recovery": 1, "cpu": 0.1}, {"cpu": 0.1, "dirty_ratio": 0.5}])
def test_one_objective_is_enough(given: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="give one of them"):
        StatePolicy(**given)


def test_settings_give_a_policy_too() -> None:
    faults = Faults("settings")
    found = Settings(EpochWriter, "spark.epochal.orders.", faults).arguments({"state.recovery": "500 ms"}, "the writer")

    assert not faults.found
    assert found == {"state": StatePolicy(recovery="500 ms")}


def test_something_else_is_refused() -> None:
    with pytest.raises(OptionError, match=r"StatePolicy\(recovery='500 ms'\)"):
        EpochWriter(RollingFileSink("archive"), state="500 ms")  # type: ignore[arg-type]
