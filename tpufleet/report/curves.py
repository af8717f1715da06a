"""A metric over the steps of a run, thinned while it is read so that a picture stays small."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

Point = tuple[float, float]
_STEP, _VALUE = itemgetter(0), itemgetter(1)
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

    @classmethod
    def of(cls, points: Sequence[Point], limit: int) -> Curve:
        """The curve of a metric's points (one or more, ascending in step), with at most `limit` of them drawn."""
        finite = points
        if not all(map(math.isfinite, map(_VALUE, points))):
            finite = [point for point in points if math.isfinite(point[1])]
        lowest = min(finite, key=_VALUE, default=None)
        return cls(tuple(thin(finite, limit)), points[-1][1], lowest, len(points) - len(finite))


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
    """At most `limit` (4 or more) of `points`, which ascend: the first, the last, and the extremes of equal spans.

    Keeping extremes, not averages or every n-th, keeps the spikes, which are what one looks for in a loss.
    """
    if len(points) <= limit:
        return list(points)
    first, last = points[0][0], points[-1][0]
    spans = (limit - 2) // 2
    width = (last - first) / spans or 1.0
    kept = {points[0], points[-1]}
    begin = 0
    for span in range(1, spans + 1):
        end = bisect_left(points, first + span * width, begin, key=_STEP) if span < spans else len(points)
        if begin < end:
            inside = points[begin:end]
            kept |= {min(inside, key=_VALUE), max(inside, key=_VALUE)}
            begin = end
    return sorted(kept)


def spread(indexes: int, limit: int) -> Iterable[int]:
    """At most `limit` (2 or more) indexes of `indexes`, evenly apart, the first and the last among them."""
    if indexes <= limit:
        return range(indexes)
    return sorted({round(i * (indexes - 1) / (limit - 1)) for i in range(limit)})
