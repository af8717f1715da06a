"""The tables of crash points: what a command passes, a line for each place, and the tests that follow from it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

LINE = re.compile(r"(?P<place>\S+)(?: ×(?P<times>\d+))?: (?P<kinds>.+)")


@dataclass(frozen=True)
class Table:
    """The points of one command, in the order in which it passes them first."""

    times: dict[str, int]  # point -> the passing at which the command is killed a second time; 1: it isn't

    @classmethod
    def of(cls, text: str) -> Table:
        """From lines like `cloud.create ×2: before sent after`: killed when first there, and when there again."""
        times: dict[str, int] = {}
        for line in text.strip().splitlines():
            found = LINE.fullmatch(line.strip())
            assert found, line
            for kind in found["kinds"].split():
                times[f"{found['place']}:{kind}"] = int(found["times"] or 1)
        return cls(times)

    def check(self, passed: Counter[str]) -> None:
        """An undisturbed command passes exactly these; a new effect is missing here until somebody writes it down."""
        assert set(passed) == set(self.times), {
            "not in the table": sorted(set(passed) - set(self.times)),
            "not passed": sorted(set(self.times) - set(passed)),
        }
        seldom = {point: passed[point] for point, times in self.times.items() if passed[point] < times}
        assert seldom == {}, "passed less often than the table says"

    def kills(self, *quick: str, but: Table | None = None, again: bool = True) -> Any:
        """The parameter `point` of a test: the `quick` ones are in every run, the others in `make faults`.

        Points that are killed in another test in the same way are left out: those of the table `but`, and without
        `again` all second passings.
        """
        points = [point for point in self.times if not but or point not in but.times]
        points += [f"{point}#{self.times[point]}" for point in points if again and self.times[point] > 1]
        assert set(quick) <= set(points), set(quick) - set(points)
        slow = pytest.mark.faults
        return pytest.mark.parametrize(
            "point", [point if point in quick else pytest.param(point, marks=slow) for point in points]
        )
