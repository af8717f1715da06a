"""The curves of all runs, and which of their points are new: what `report` draws from files, kept while it grows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise

from tpufleet.board.records import Points
from tpufleet.report.curves import CurveReader, Point, thin
from tpufleet.report.load import Limits

Curves = dict[str, dict[str, list[list[float]]]]  # run -> metric -> [[step…], [value…]]


@dataclass(frozen=True)
class News:
    """Points to append, by run and metric; what was known of runs that are `anew` is to be dropped before."""

    curves: Curves = field(default_factory=dict[str, dict[str, list[list[float]]]])
    anew: tuple[str, ...] = ()


class History:
    """Curves by run and metric. They are thinned to what a picture has room for, given how many runs there are."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, CurveReader]] = {}
        self._limit = Limits.of(0).points

    def keep(self, runs: Collection[str]) -> None:
        """Forget all runs but these, and go by their number."""
        self._limit = Limits.of(len(runs)).points
        for run in self._runs.keys() - set(runs):
            del self._runs[run]

    def take(self, told: Iterable[Points]) -> News:
        """Add what is new to the curves; gives what whoever has drawn them so far needs to know."""
        curves: Curves = {}
        anew: list[str] = []
        for points in told:
            had = bool(self._runs.get(points.run))
            if points.anew:
                self._runs.pop(points.run, None)
            readers = self._runs.setdefault(points.run, {})
            fresh, went_back = self._add(readers, points)
            if had and (points.anew or went_back):
                anew.append(points.run)
                curves[points.run] = self._curves(readers)
            elif not had:
                curves[points.run] = self._curves(readers)
            else:
                curves[points.run] = {name: columns(thin(new, self._limit)) for name, new in fresh.items()}
        return News({run: metrics for run, metrics in curves.items() if metrics}, tuple(anew))

    def all(self) -> Curves:
        return {run: curves for run, readers in self._runs.items() if (curves := self._curves(readers))}

    def _add(self, readers: dict[str, CurveReader], points: Points) -> tuple[dict[str, list[Point]], bool]:
        """Adds the points; gives those that are new by metric, and whether the run went back to an earlier step."""
        fresh: dict[str, list[Point]] = {}
        for step, values in points.points:
            for name, value in values.items():
                if name in fresh:
                    fresh[name].append((step, value))
                else:
                    fresh[name] = [(step, value)]
        went_back = False
        for name, new in fresh.items():
            reader = readers.setdefault(name, CurveReader(self._limit))
            if all(one[0] < other[0] for one, other in pairwise(chain(reader.points[-1:], new))):
                reader.points += new  # nothing is void, so that they need not be looked at one by one
            else:
                went_back = True
                for step, value in new:
                    reader.add(step, value)
            if len(reader.points) > 2 * self._limit:  # the reader would keep more, but here all runs are in memory
                reader.points = thin(reader.points, self._limit)
        return fresh, went_back

    def _curves(self, readers: dict[str, CurveReader]) -> dict[str, list[list[float]]]:
        return {name: columns(thin(reader.points, self._limit)) for name, reader in readers.items() if reader.points}


def columns(points: Iterable[Point]) -> list[list[float]]:
    """Points as `[[step…], [value…]]`, the values in six digits: they are looked at, not computed with."""
    steps: list[float] = []
    values: list[float] = []
    for step, value in points:
        steps.append(step)
        values.append(float(f"{value:.6g}"))
    return [steps, values]
