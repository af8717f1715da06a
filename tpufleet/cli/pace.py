"""How fast runs are and how long they still take: by what they say themselves, else by two looks at their steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tpufleet import pace

RATE, STEPS = "steps_per_second", "steps"  # the run contract's names (docs/run-contract.md)
BOOKKEEPING = frozenset({RATE, STEPS, "compilations", "compile_seconds", "epoch", "time", "seconds"})  # no results


class Pace:
    """Steps per second of runs that are looked at again and again."""

    def __init__(self) -> None:
        self._runs: dict[str, pace.Pace] = {}
        self._rates: dict[str, float | None] = {}

    def look(self, states: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """Take note of the runs' steps at `now` (monotonic seconds)."""
        for run, state in states.items():
            step = state.get("step")
            runs = isinstance(step, int) and state.get("state") == "running"
            self._rates[run] = self._runs.setdefault(run, pace.Pace()).rate(now, step if runs else None)

    def rate(self, state: Mapping[str, Any]) -> float | None:
        """Steps per second of a run, None while it isn't known or the run doesn't run."""
        if state.get("state") != "running":
            return None
        said = _finite(metrics_of(state).get(RATE))
        return self._rates.get(str(state.get("id"))) if said is None else said

    def left_s(self, state: Mapping[str, Any]) -> float | None:
        """The seconds that a running run still takes, by its rate and its `steps`; None where either isn't known."""
        step = state.get("step")
        return pace.left_s(step if isinstance(step, int) else None, steps(state), self.rate(state))


def steps(state: Mapping[str, Any]) -> int | None:
    """How many steps a run will take in all, if it says so."""
    said = _finite(metrics_of(state).get(STEPS))
    return int(said) if said is not None and said > 0 else None


def metrics_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last value of each of a run's metrics."""
    metrics: Mapping[str, Any] = state.get("metrics") or {}
    return metrics


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
