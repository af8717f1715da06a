"""Pure: what a job's sweep may have wrong: `grid`, `zip` and `points`, each by itself and all together."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator

from tpufleet.config.lists import twins
from tpufleet.config.marks import Finding, Path
from tpufleet.model import JobSpec, Scalar

MAX_RUNS = 10_000
PLACEHOLDER = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*)\}")


def findings_about_sweep(path: Path, job: JobSpec) -> Iterator[Finding]:
    """`path` is the job's."""
    for name, values in job.grid.items():
        if not values:
            yield Finding((*path, "grid", name), f"`{name}` has no values", "write at least one, or leave the line out")
        yield from twins((*path, "grid", name), [_written(value) for value in values])
    yield from _zip((*path, "zip"), job)
    yield from _points((*path, "points"), job)
    rows = len(job.points) or max((len(values) for values in job.zip.values()), default=1)
    runs = rows * math.prod(len(values) for values in job.grid.values())
    if runs > MAX_RUNS:
        at = next(key for key in ("grid", "points", "zip") if getattr(job, key))
        yield Finding((*path, at), f"the {at} stands for {runs:,} runs; at most {MAX_RUNS:,} make sense")
    yield from _slips(path, job)


def _zip(path: Path, job: JobSpec) -> Iterator[Finding]:
    longest = max((len(values) for values in job.zip.values()), default=0)
    for name, values in job.zip.items():
        if name in job.grid:
            yield Finding((*path, name), f"`{name}` is in `grid` too", "leave it out of one of them", at_key=True)
        if len(values) != longest:
            sentence = f"`{name}` has {len(values)} of {longest} values: lists of `zip` are taken together"
            yield Finding((*path, name), sentence, "write lists of one length; what shall be combined goes to `grid`")
    if job.zip and not longest:
        yield Finding(path, "`zip` has no values", "write at least one in each list, or leave it out")
    if job.zip:
        rows = [" ".join(map(_written, row)) for row in zip(*job.zip.values(), strict=False)]
        yield from twins((*path, next(iter(job.zip))), rows)


def _points(path: Path, job: JobSpec) -> Iterator[Finding]:
    if not job.points:
        return
    for key, used in (("grid", job.grid), ("zip", job.zip)):
        if used:
            hint = "write all points out, or leave one of them out"
            yield Finding(path, f"`points` are all there is to run: `{key}` beside them can't be meant", hint, True)
    for index, point in enumerate(job.points):
        if not point:
            yield Finding((*path, index), "a point has no values", "such as {lr: 0.001, seed: 0}")
    yield from twins(
        path, [", ".join(sorted(f"{key}: {_written(value)}" for key, value in point.items())) for point in job.points]
    )


def _slips(path: Path, job: JobSpec) -> Iterator[Finding]:
    """A name with values that nothing uses, beside a placeholder without any that is written much like it.

    By itself neither is wrong: `--set` may give the one its value, and the other may tell runs apart by their ids.
    """
    words = (*job.command, *job.env.values())
    wanted = {key for word in words for key in PLACEHOLDER.findall(word)}
    places: dict[str, Path] = {}
    for index, point in enumerate(job.points):
        places |= {str(name): ("points", index, name) for name in point if name not in places}
    for key, axes in (("zip", job.zip), ("grid", job.grid)):
        places |= {str(name): (key, name) for name in axes}
    for name in sorted(set(places) - wanted):
        meant = difflib.get_close_matches(name, wanted - set(places), n=1)
        if meant:
            sentence = f"nothing uses `{name}`, and nothing gives {{{meant[0]}}} a value"
            yield Finding((*path, *places[name]), sentence, f"did you mean `{meant[0]}`?", at_key=True)


def _written(value: Scalar) -> str:
    """A value as it stands in a run's id (`sweep`), by which runs are told apart."""
    return str(value).lower()
