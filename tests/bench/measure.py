"""Seconds measured in turn, and what one way takes as a multiple of another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A line of the table: `what` took `ratios` times as long as `against`, one ratio for each round."""

    what: str
    against: str
    ratios: Sequence[float]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class Skipped:
    """A benchmark that can't be done here, and why."""

    what: str
    reason: str


def timed(work: Callable[[], object]) -> float:
    """The seconds that `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turn(rounds: int, works: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each work says it took (seconds), round by round: A B A B, so that a slow moment falls on all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(work())
    return seconds


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Round by round, how many times as long ours took."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, in columns that can be read as they are."""
    cells = [("measured", "against", "ratio", "min–max", "rounds")]
    cells += [
        (
            row.what,
            row.against,
            f"{row.median:.2f}",
            f"{min(row.ratios):.2f}–{max(row.ratios):.2f}",
            str(len(row.ratios)),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
