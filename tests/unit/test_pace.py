"""How fast runs go, and how long they still take."""

from __future__ import annotations

from typing import Any

import pytest

from tpufleet.cli.pace import Pace


def run(step: int | None, state: str = "running", **metrics: float | None) -> dict[str, Any]:
    return {"id": "gpt", "state": state, "step": step, "metrics": metrics}


def test_what_a_run_says_of_its_speed_counts() -> None:
    state = run(500, steps_per_second=20.0, steps=2000)
    assert (Pace().rate(state), Pace().left_s(state)) == (20.0, 75.0)


def test_two_looks_tell_the_speed_of_a_run_that_says_nothing() -> None:
    pace = Pace()
    for now, step in ((0.0, 100), (2.0, 100), (4.0, 140), (5.0, 140)):
        pace.look({"gpt": run(step, steps=240)}, now)
    assert pace.rate(run(140)) == 10.0
    assert pace.left_s(run(140, steps=240)) == 10.0


def test_a_run_that_went_back_is_measured_anew_and_old_looks_are_forgotten() -> None:
    pace = Pace()
    for now, step in ((0.0, 1000), (1.0, 1100), (2.0, 500), (3.0, 510)):
        pace.look({"gpt": run(step)}, now)
    assert pace.rate(run(510)) == 10.0
    for second in range(4, 200):
        pace.look({"gpt": run(510 + (second - 3))}, float(second))
    assert pace.rate(run(706)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "state",
    [
        run(None),
        run(5),
        run(5, steps=10),
        run(5, "done", steps=10, steps_per_second=1.0),
        run(5, steps=float("nan"), steps_per_second=float("inf")),
        run(5, steps=10, steps_per_second=0.0),
        run(5, steps=10, steps_per_second=-1.0),
        run(5, steps=None, steps_per_second=None),
        {"id": "gpt", "state": "running", "step": 5, "metrics": None},
    ],
)
def test_what_is_not_known_is_not_said(state: dict[str, Any]) -> None:
    assert Pace().left_s(state) is None


def test_a_run_past_its_last_step_has_nothing_left() -> None:
    assert Pace().left_s(run(12, steps=10, steps_per_second=1.0)) == 0.0
