"""Pure: how fast runs go, by the steps between two looks, and how long they will take by that."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 120.0
LONGEST_S = 10 * 365 * 86400.0  # what takes longer is no time that anybody waits


@dataclass
class Pace:
    """One run's steps over time, as they were seen in the last minutes."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def rate(self, at: float, step: int | None) -> float | None:
        """Steps per second, with the `step` that the run is at now (seconds of a clock that only grows)."""
        if step is None or (self._seen and step < self._seen[-1][1]):
            self._seen.clear()  # it resumed from an earlier one
        while self._seen and self._seen[0][0] < at - WINDOW_S:
            self._seen.popleft()
        if step is not None and (not self._seen or step > self._seen[-1][1]):
            self._seen.append((at, step))
        if len(self._seen) < 2:
            return None
        (since, first), (until, last) = self._seen[0], self._seen[-1]
        return rounded((last - first) / (until - since)) if until > since else None


def left_s(step: int | None, of: int | None, rate: float | None) -> float | None:
    """The seconds that remain, in two digits, so that they don't change with every look."""
    if step is None or of is None or not rate or not 0 < rate < math.inf:
        return None
    left = rounded(max(0, of - step) / rate, digits=2)
    return left if left <= LONGEST_S else None


def rounded(value: float, *, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")
