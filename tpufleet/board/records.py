"""Pure: what runs wrote, from lines of JSON to values that can be kept. Nothing is believed of its kind or length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tpufleet.report.records import as_count, as_number
from tpufleet.report.text import clean

MOST_METRICS = 16  # of one run, that have a curve
LONGEST_NAME = 80
LARGEST = 2**53  # of a step; what is larger, no program that trains has counted
LARGEST_VALUE = 1e300  # of a metric: whatever is beyond it can't be drawn, NaN and the infinities among it
FACTS = frozenset({"step", "steps", "compilations", "compile_seconds"})  # numbers of a run that are no curve

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Points:
    """New points of a run's curves, in the order they were written: `(step, {metric: value})`.

    `anew`: they are the run's first, and what was known of it before is void. `of` is how many steps there will be.
    """

    run: str
    points: Sequence[tuple[int, Mapping[str, float]]] = ()
    anew: bool = False
    of: int | None = None


@dataclass(frozen=True)
class Written:
    """A completion."""

    step: int | None
    prompt: str
    text: str


@dataclass
class Counter:
    """Numbers the records of a run that don't say their step, from one text of lines to the next."""

    seen: int = 0
    names: dict[str, str | None] = field(default_factory=dict[str, "str | None"])  # as shown; None: it has no curve

    def points(self, run: str, text: str, *, anew: bool) -> Points:
        """The points in lines of a metrics.jsonl."""
        if anew:
            self.seen = 0
        found: list[tuple[int, Mapping[str, float]]] = []
        of: int | None = None
        names = self.names
        for record in objects(text):
            self.seen += 1
            if not record.keys() <= names.keys():
                self._learn(record)
            if "steps" in record:
                of = as_count(record["steps"]) or of
            values = {
                name: value
                for key, value in record.items()
                if (type(value) is float or type(value) is int) and -LARGEST_VALUE < value < LARGEST_VALUE
                if (name := names.get(key)) is not None
            }
            if values:
                step = record.get("step")
                whole = step if type(step) is int and 0 <= step <= LARGEST else as_count(step)
                found.append((self.seen if whole is None else whole, values))
        return Points(run, found, anew, of)

    def _learn(self, record: Json) -> None:
        """Give new names of numbers their curve, while there is room."""
        for key in record.keys() - self.names.keys():
            if key in FACTS:
                self.names[key] = None
            elif as_number(record[key]) is not None and len(self.names) < MOST_METRICS + len(FACTS):
                self.names[key] = clean(key)[:LONGEST_NAME]


def finite(value: float) -> float | None:
    """A number in six digits; None for what is none, or too large to be one."""
    return float(f"{value:.6g}") if -LARGEST_VALUE < value < LARGEST_VALUE else None


def objects(text: str) -> Iterator[Json]:
    """The JSON objects of some lines; whatever else there is passes."""
    lines = [line for line in text.split("\n") if line.startswith("{") and line.endswith("}")]
    values = _parsed(f"[{','.join(lines)}]")  # all at once is twice as fast
    if not isinstance(values, list) or len(cast("list[object]", values)) != len(lines):
        values = [_parsed(line) for line in lines]
    for value in cast("list[object]", values):
        if isinstance(value, dict):
            yield cast("Json", value)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # ValueError also covers a number of more than 4,300 digits
        return None


def written(record: Json, longest: int) -> Written | None:
    """The completion that a record is, its texts cut to `longest` characters; None for anything else."""
    text, prompt = record.get("text"), record.get("prompt")
    if not isinstance(text, str):
        return None
    prompt = prompt[:longest] if isinstance(prompt, str) else ""
    return Written(as_step(record.get("step")), prompt, text[:longest].removeprefix(prompt))


def as_step(value: object) -> int | None:
    """A step, if this counts something: no truth value, no fraction, nothing that is too long to be shown."""
    return value if type(value) is int and 0 <= value <= LARGEST else None
