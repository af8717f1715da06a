"""How fast runs are and how long they still take: by what they say themselves, else by two looks at their steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_S = 60.0
RATE, STEPS = "steps_per_second", "steps"  # the run contract's names (docs/run-contract.md)


class Pace:
    """Steps per second of runs that are looked at again and again."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[float, int]]] = {}  # by run: when (monotonic seconds) it was at which step

    def look(self, states: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """Remember the runs' steps at `now`. A run that went back (it was resumed) is measured anew."""
        for run, state in states.items():
            step = state.get("step")
            if not isinstance(step, int) or state.get("state") != "running":
                self._looks.pop(run, None)
                continue
            looks = self._looks.setdefault(run, deque())
            if looks and step < looks[-1][1]:
                looks.clear()
            if not looks or step > looks[-1][1]:
                looks.append((now, step))
            while len(looks) > 2 and looks[0][0] < now - WINDOW_S:
                looks.popleft()

    def rate(self, state: Mapping[str, Any]) -> float | None:
        """Steps per second of a run, None while it isn't known or the run doesn't run."""
        if state.get("state") != "running":
            return None
        said = _finite(metrics_of(state).get(RATE))
        if said is not None:
            return said
        looks = self._looks.get(str(state.get("id")))
        if not looks or len(looks) < 2 or looks[-1][0] <= looks[0][0]:
            return None
        return (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])

    def left_s(self, state: Mapping[str, Any]) -> float | None:
        """The seconds that a running run still takes, by its rate and its `steps`; None where either isn't known."""
        rate, all_of_them, step = self.rate(state), steps(state), state.get("step")
        if not rate or rate < 0 or all_of_them is None or not isinstance(step, int):
            return None
        return max(0.0, (all_of_them - step) / rate)


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
