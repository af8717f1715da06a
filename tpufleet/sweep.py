"""Pure: a job and the values asked for -> the runs it stands for, with stable, readable ids."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence

from tpufleet.errors import UsageError
from tpufleet.model import JobSpec, RunSpec, Scalar
from tpufleet.names import ParamName, RunId, slug
from tpufleet.text import natural

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
MAX_RUNS = 10_000


def expand(
    name: str,
    job: JobSpec,
    *,
    settings: Mapping[ParamName, Scalar] | None = None,
    grid: Mapping[ParamName, Sequence[Scalar]] | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[RunSpec, ...]:
    """The runs of job `name`: the product of its grid, times its `zip` taken together, or times its points.

    `grid` replaces axes or adds some, `settings` fixes them. Of values that belong together (`zip`, `points`)
    `settings` chooses. A run's id has the values in the order of the file: grid, then zip; what is added comes last.

    Raises UsageError for a placeholder that nothing fills, and for points whose ids can't be told apart.
    """
    asked: dict[str, Sequence[Scalar]] = {str(key): values for key, values in (grid or {}).items()}
    fixed = {str(key): value for key, value in (settings or {}).items()}
    _refuse_unused(name, job, {*asked, *fixed})
    rows = _rows(job)
    together = {key for row in rows for key in row}
    _refuse_part(name, together.intersection(asked))
    rows = _chosen(name, rows, {key: value for key, value in fixed.items() if key in together})
    axes: dict[str, Sequence[Scalar]] = {str(key): values for key, values in job.grid.items()}
    axes |= asked | {key: (value,) for key, value in fixed.items() if key not in together}
    count = len(rows) * math.prod(len(values) for values in axes.values())
    if count > MAX_RUNS:
        raise UsageError(f"job {name!r} stands for {count:,} runs; at most {MAX_RUNS:,} make sense")
    before = _product({key: values for key, values in axes.items() if key in job.grid})
    added = _product({key: values for key, values in axes.items() if key not in job.grid})
    runs = tuple(
        _run(name, job, {**first, **row, **last}, env or {}) for first in before for row in rows for last in added
    )
    _refuse_twins(name, runs)
    return runs


def _rows(job: JobSpec) -> list[dict[str, Scalar]]:
    """The values that belong together: the job's points, the rows of its `zip`, or one without any."""
    if job.points:
        return [{str(key): value for key, value in point.items()} for point in job.points]
    names = [str(key) for key in job.zip]
    return [dict(zip(names, row, strict=True)) for row in zip(*job.zip.values(), strict=True)] if names else [{}]


def _chosen(name: str, rows: list[dict[str, Scalar]], wanted: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
    """The rows that have the values wanted; raises UsageError when none has."""
    found = [row for row in rows if all(key in row and _same(row[key], value) for key, value in wanted.items())]
    if not found:
        said = " and ".join(f"{key}={_written(value)}" for key, value in wanted.items())
        values = {key: sorted({_written(row[key]) for row in rows if key in row}, key=natural) for key in wanted}
        there = "; ".join(f"{key}: {', '.join(some[:10])}" for key, some in values.items())
        raise UsageError(f"job {name!r} has no point with {said}", hint=f"it has {there}")
    return found


def _same(one: Scalar, other: Scalar) -> bool:
    """Whether a person would take one value for the other: 1 for 1.0, but not for true."""
    return _written(one) == _written(other) or (type(one) is not bool and type(other) is not bool and one == other)


def _product(axes: Mapping[str, Sequence[Scalar]]) -> list[dict[str, Scalar]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def run_id(job: str, params: Mapping[str, Scalar]) -> str:
    """`gpt-lr0.001-seed0`; a value that would not survive as a file name is followed by a short hash of itself."""
    parts = [job]
    for key, value in params.items():
        text = slug(value)
        if text != _written(value):
            text = f"{text[:24]}.{hashlib.sha256(repr(value).encode()).hexdigest()[:6]}"
        parts.append(f"{key.lower()}{text}")
    whole = "-".join(parts)
    if len(whole) > 128:
        whole = f"{whole[:115]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
    return RunId(whole)


def _run(name: str, job: JobSpec, params: Mapping[str, Scalar], env: Mapping[str, str]) -> RunSpec:
    return RunSpec(
        id=run_id(name, params),
        job=name,
        params=params,
        command=tuple(_fill(word, params, name) for word in job.command),
        env={key: _fill(value, params, name) for key, value in job.env.items()} | dict(env),
        spec=job,
    )


def _fill(word: str, params: Mapping[str, Scalar], job: str) -> str:
    def value(match: re.Match[str]) -> str:
        key = match.group(1)
        if key is None:
            return match.group(0)[0]
        if key not in params:
            raise UsageError(
                f"job {job!r} uses {{{key}}}, which nothing gives a value",
                hint=f"add {key} to the job's grid, or say --set {key}=VALUE; for a plain brace write {{{{",
            )
        return _written(params[key])

    return PLACEHOLDER.sub(value, word)


def _written(value: Scalar) -> str:
    """As a person would type it: booleans as YAML writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_unused(name: str, job: JobSpec, given: Collection[str]) -> None:
    """A name that nothing uses would only give the same runs new ids; it is a slip of the fingers."""
    words = (*job.command, *job.env.values())
    used = {key for word in words for key in PLACEHOLDER.findall(word) if key}
    used |= {str(key) for names in (job.grid, job.zip, *job.points) for key in names}
    for key in sorted(set(given) - used):
        meant = difflib.get_close_matches(key, used, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"it uses: {', '.join(sorted(used)) or 'none'}"
        raise UsageError(f"job {name!r} has no use for {key!r}", hint=hint)


def _refuse_part(name: str, keys: Collection[str]) -> None:
    """`--grid` gives an axis of its own, which a value that belongs to others can't be."""
    for key in sorted(keys):
        raise UsageError(
            f"the values of {key} belong together with others in job {name!r}: --grid can't give it some of its own",
            hint=f"--set {key}=VALUE chooses among them; or change the fleet file",
        )


def _refuse_twins(name: str, runs: Sequence[RunSpec]) -> None:
    seen: dict[str, RunSpec] = {}
    for run in runs:
        if run.id in seen:
            raise UsageError(f"two points of job {name!r} have the id {run.id}: {dict(run.params)}")
        seen[run.id] = run


def parse_value(text: str) -> Scalar:
    """A value typed on the command line: a number or a boolean where it reads as one, else text."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?", text):
        return float(text)
    return text
