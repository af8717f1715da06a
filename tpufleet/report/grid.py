"""What a sweep tells: which parameters vary, which of them only repeat (seeds), and how each point of the grid did.

Pure: runs in, values out; the pictures of them are in `heat`, `parallel` and `points`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.report.load import Run, natural
from tpufleet.report.scale import Scale, span_of

JOB = "job"
_REPEATS = re.compile(r"(.*[_.-])?(seed|fold|replica|replicate|repeat|repetition|trial)", re.IGNORECASE)
_BY_RANK = 10  # an axis with at most that many values has them equally far apart, so that each can be read


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the grid: what its runs have in common (`values`, by parameter), and how they did.

    `results` are the finite last values of the deciding metric of those runs that `counted`, in their order; `mean` and
    `sd` (of a sample) of these, None where there are too few.
    """

    values: tuple[tuple[str, str], ...]
    runs: tuple[Run, ...]
    counted: tuple[Run, ...]
    results: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.results) if self.results else None

    @property
    def sd(self) -> float | None:
        return statistics.stdev(self.results) if len(self.results) > 1 else None

    def value(self, name: str) -> str:
        return dict(self.values).get(name, "–")


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter's values in their order, and where each lies on a line from 0 to 1."""

    name: str
    values: tuple[str, ...]
    places: tuple[float, ...]

    def at(self, value: str) -> float:
        return self.places[self.values.index(value)]


def value_of(run: Run, name: str) -> str:
    """A run's value of a parameter; the job counts as one."""
    return run.job if name == JOB and JOB not in run.params else run.params.get(name, "–")


def varying(runs: Sequence[Run]) -> list[str]:
    """The names of parameters with more than one value among `runs`, as the runs name them; the job's name first."""
    names = dict.fromkeys([JOB, *(name for run in runs for name in run.params)])
    return [name for name in names if len({value_of(run, name) for run in runs}) > 1]


def comparable(runs: Sequence[Run]) -> list[list[Run]]:
    """`runs` in groups that have a sweep in common: each job by itself, or together with those of the same parameters
    (another framework, another commit). A completion's time and a training's loss make no picture together."""
    names: dict[str, set[str]] = {}
    for run in runs:
        names.setdefault(run.job, set()).update(run.params)
    groups: dict[frozenset[str], list[Run]] = {}
    for run in runs:
        groups.setdefault(frozenset(names[run.job]), []).append(run)
    return list(groups.values())


def repeats(name: str) -> bool:
    """Whether a parameter only repeats the same training, by its name: a seed, a fold, a trial."""
    return _REPEATS.fullmatch(name) is not None


def points(runs: Sequence[Run], names: Sequence[str], metric: str) -> list[Point]:
    """`runs` grouped by their values of `names`, the lowest mean of `metric` first, those without any last.

    Once any run is done, only those count that are: one that failed half-way has trained less, not worse.
    """
    equal = any(run.state == "done" for run in runs)
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(value_of(run, name) for name in names), []).append(run)
    found = [_point(names, values, members, metric, only_done=equal) for values, members in groups.items()]
    return sorted(found, key=lambda point: math.inf if point.mean is None else point.mean)


def _point(names: Sequence[str], values: Sequence[str], runs: Sequence[Run], metric: str, *, only_done: bool) -> Point:
    # A value near the largest float would overflow in a sum; a loss of that size has diverged as well.
    measured = [run for run in runs if abs(run.metrics.get(metric, math.inf)) < 1e150]
    counted = [run for run in measured if run.state == "done" or not only_done]
    results = [run.metrics[metric] for run in counted]
    return Point(tuple(zip(names, values, strict=True)), tuple(runs), tuple(counted), tuple(results))


def axis(runs: Sequence[Run], name: str) -> Axis:
    """A parameter's axis: few values equally far apart; many numbers to scale, logarithmic where that fits."""
    values = sorted({value_of(run, name) for run in runs}, key=natural)
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) == len(values):
        order = sorted(range(len(values)), key=lambda i: known[i])
        values, known = [values[i] for i in order], [known[i] for i in order]
        if len(values) > _BY_RANK:
            scale = span_of(known)
            scale = Scale(known[0], known[-1], log=scale.log) if known[0] < known[-1] else scale
            return Axis(name, tuple(values), tuple(min(1.0, max(0.0, scale.at(number))) for number in known))
    last = max(1, len(values) - 1)
    return Axis(name, tuple(values), tuple(i / last if len(values) > 1 else 0.5 for i in range(len(values))))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e150 else None


def level(value: float, results: Sequence[float], levels: int = 9) -> int:
    """Where `value` lies among `results`: 0 with the lowest, `levels` - 1 with the highest; what lies far above the
    middle counts as highest, so that one diverged run doesn't make all others look alike."""
    low, high, middle = min(results), max(results), statistics.median(results)
    if middle > low:
        high = min(high, middle + 2 * (middle - low))
    if high <= low:
        return 0
    return min(levels - 1, max(0, int((value - low) / (high - low) * levels)))
