"""What a run measured: the points of its metrics.jsonl, read once for curves, tables and exports alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter, lt
from pathlib import Path
from typing import cast

from tpufleet.report.curves import Point
from tpufleet.report.records import Record, as_number, as_record, as_text, batches
from tpufleet.report.text import clean

MAX_NAMES = 60  # parameters, metrics and facts of one run; more is a mistake of the job's, or malice
MAX_NAME = 80  # characters of one
TOTAL = "steps"  # how many steps the run will take: said in records beside the metrics, and no metric
_LARGEST_STEP = 2**53


@dataclass(slots=True)
class Metrics:
    """`points` (step, value) by metric, ascending in step, `facts` what was written in words (a device, versions).

    A record without a step counts as its number. A step that was passed already means that the run resumed from an
    earlier checkpoint: what it had written of that metric from there on is void. A value may be NaN or infinite.
    """

    points: dict[str, list[Point]] = field(default_factory=dict[str, list[Point]])
    facts: dict[str, str] = field(default_factory=dict[str, str])
    broken: int = 0
    _records: int = 0

    @classmethod
    def read(cls, path: Path) -> Metrics:
        metrics = cls()
        for batch in batches(path):
            metrics.take(batch)
        return metrics

    def take(self, batch: Sequence[Record | None]) -> None:
        """The next records; None for a line that held none."""
        good = [record for record in batch if record is not None]
        self.broken += len(batch) - len(good)
        for names, alike in groupby(good, tuple[str, ...]):  # a column at a time: there are millions in a big sweep
            self._take(names, list(alike))

    def table(self) -> dict[str, list[Point]]:
        """The points by the metrics' names as they may be shown, without what is no metric."""
        return {clean(name[:MAX_NAME]): points for name, points in self.points.items() if name != TOTAL}

    def _take(self, names: Sequence[str], alike: Sequence[Record]) -> None:
        """Records that have the same `names` in the same order."""
        columns = dict(zip(names, zip(*(record.values() for record in alike), strict=True), strict=True))
        numbers = range(self._records + 1, self._records + 1 + len(alike))
        self._records += len(alike)
        told = columns.pop("step", numbers)
        steps = [
            number if step is None or not abs(step) <= _LARGEST_STEP else step
            for number, step in zip(numbers, map(as_number, told), strict=True)
        ]
        for name, column in columns.items():
            self._take_column(name, steps, column)

    def _take_column(self, name: str, steps: Sequence[float], column: Sequence[object]) -> None:
        if set(map(type, column)) == {float}:
            new = list(zip(steps, cast("Sequence[float]", column), strict=True))
        else:
            values = list(map(as_number, column))
            self._take_words(name, (said for said, value in zip(column, values, strict=True) if value is None))
            new = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
        if not new or (name not in self.points and not self._has_room):
            return
        points = self.points.setdefault(name, [])
        at = list(map(itemgetter(0), new))
        if all(map(lt, at, islice(at, 1, None))) and (not points or points[-1][0] < at[0]):
            points += new
            return
        for point in new:
            while points and points[-1][0] >= point[0]:
                points.pop()
            points.append(point)

    def _take_words(self, name: str, said: Iterable[object]) -> None:
        """What is not a number; an object of such things, as of a run's set-up, gives one for each part."""
        for value in said:
            for part, text in _words(name, value):
                if part in self.facts or self._has_room:
                    self.facts[part] = text

    @property
    def _has_room(self) -> bool:
        return len(self.points) + len(self.facts) < MAX_NAMES


def read_points(path: Path) -> dict[str, list[Point]]:
    """Metric → its points (step, value), of a metrics.jsonl, as `Metrics.table` has them."""
    return Metrics.read(path).table()


def _words(name: str, value: object) -> Iterator[tuple[str, str]]:
    parts = as_record(value)
    for part, item in parts.items():
        yield f"{name} {part}", as_text(item)
    if not parts:
        yield name, as_text(value)
