"""The axes of a picture: which values they span, where they are marked, and with what words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.report.text import number

LARGEST = 1e300  # what is beyond would be infinite once air is added
_LOG_RATIO = 30  # a loss that falls further than this is unreadable at its end on a linear axis


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high`; logarithmic for values that span orders of magnitude."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where `value` lies: 0 at the low end, 1 at the high end, beyond that outside."""
        if self.log:
            return math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, wanted: int) -> list[float]:
        """About `wanted` round values within the axis."""
        if self.log:
            return _log_ticks(self.low, self.high)
        step = round_step((self.high - self.low) / wanted)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))


def span_of(values: Sequence[float]) -> Scale:
    """The axis for measured values: all of them with a little air, except for rare ones far above the rest
    (a run that diverged), which would press the others flat."""
    ordered = sorted(min(max(value, -LARGEST), LARGEST) for value in values)
    low, high = ordered[0], ordered[-1]
    most = ordered[int(0.98 * (len(ordered) - 1))]
    ceiling = most + 3 * (most - low)
    if len(ordered) >= 20 and most > low and high > ceiling:
        high = ceiling
    if low > 0 and high / low > _LOG_RATIO:
        return Scale(low / 1.1, high * 1.1, log=True)
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    floor = 0.0 if 0 <= low < air else low - air  # no axis runs below zero for the sake of air
    return Scale(floor, high + air)


def steps_of(values: Sequence[float]) -> Scale:
    """The axis of steps: from the first to the last, from 0 when the first is near it."""
    low, high = min(values), max(values)
    if 0 <= low <= high * 0.2:
        low = 0.0
    return Scale(low, high if high > low else low + 1)


def tick_label(value: float) -> str:
    """`0`, `1.5`, `500`, `20k`, `1.5M`, `1e-05`: as short as it can be said."""
    if value == 0:
        return "0"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size <= abs(value) < 1e12:
            return f"{value / (size if unit != 'k' else 1e3):.6g}{unit}"
    return number(value) if abs(value) >= 1e3 else f"{value:.6g}"


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = (1, 2, 5) if high / low < 2_000 else (1,)
    stride = max(1, len(powers) // 8)
    every = [mark * 10.0**power for power in powers[::stride] for mark in marks]
    return [value for value in every if low <= value <= high]
