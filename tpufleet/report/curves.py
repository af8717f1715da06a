"""A metric over the steps of a run, thinned while it is read so that a picture stays small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]
_BUFFER = 8_000  # points of one metric in memory; a hundred evaluations an hour fill it in three days


@dataclass(frozen=True, slots=True)
class Curve:
    """What a run's metric did: drawn `points` (step, value), the `last` value as written, the `lowest`.

    `points` holds finite values only, ascending in step. `unfinite` counts NaN and infinities.
    """

    points: tuple[Point, ...]
    last: float
    lowest: Point | None
    unfinite: int


@dataclass(slots=True)
class CurveReader:
    """Takes a metric's values in the order they were written, keeping a bounded number; a curve has `limit` points."""

    limit: int
    points: list[Point] = field(default_factory=list[Point])
    last: float = math.nan
    unfinite: int = 0

    def add(self, step: float, value: float) -> None:
        """The next value. A step that was passed already means that the run resumed from an earlier
        checkpoint: what it wrote beyond that is void."""
        points = self.points
        while points and points[-1][0] >= step:
            points.pop()
        self.last = value
        if not math.isfinite(value):
            self.unfinite += 1
            return
        points.append((step, value))
        if len(points) >= _BUFFER:
            self.points = thin(points, _BUFFER // 2)

    def curve(self) -> Curve:
        lowest = min(self.points, key=lambda point: point[1], default=None)
        return Curve(tuple(thin(self.points, self.limit)), self.last, lowest, self.unfinite)


def thin(points: Sequence[Point], limit: int) -> list[Point]:
    """At most `limit` (4 or more) of `points`: the first, the last, and the extremes of equal spans of steps.

    Keeping extremes, not averages or every n-th, keeps the spikes, which are what one looks for in a loss.
    """
    if len(points) <= limit:
        return list(points)
    first, last = points[0][0], points[-1][0]
    spans = (limit - 2) // 2
    width = (last - first) / spans or 1.0
    low: dict[int, Point] = {}
    high: dict[int, Point] = {}
    for point in points:
        span = min(spans - 1, int((point[0] - first) / width))
        if span not in low or point[1] < low[span][1]:
            low[span] = point
        if span not in high or point[1] > high[span][1]:
            high[span] = point
    return sorted({points[0], points[-1], *low.values(), *high.values()})


def spread(indexes: int, limit: int) -> Iterable[int]:
    """At most `limit` (2 or more) indexes of `indexes`, evenly apart, the first and the last among them."""
    if indexes <= limit:
        return range(indexes)
    return sorted({round(i * (indexes - 1) / (limit - 1)) for i in range(limit)})
