"""Curves while they grow: what is new of them, what is void when a run goes back, how much of them is kept."""

from __future__ import annotations

import json
import random

import pytest

from tpufleet.board.history import Curves, History
from tpufleet.board.records import MOST_METRICS, Counter, Points
from tpufleet.pace import Pace, left_s
from tpufleet.report.curves import CurveReader
from tpufleet.report.load import Limits

RUN = "gpt"


def points(*pairs: tuple[int, float], anew: bool = False) -> Points:
    return Points(RUN, [(step, {"loss": value}) for step, value in pairs], anew)


class Page:
    """Draws what it is told, as a browser does."""

    def __init__(self) -> None:
        self.curves: Curves = {}

    def take(self, history: History, *told: Points) -> None:
        news = history.take(told)
        for run in news.anew:
            self.curves.pop(run, None)
        for run, metrics in news.curves.items():
            for name, (steps, values) in metrics.items():
                curve = self.curves.setdefault(run, {}).setdefault(name, [[], []])
                curve[0] += steps
                curve[1] += values


def test_only_what_is_new_is_told() -> None:
    history = History()
    assert history.take([points((1, 3.0), (2, 2.0))]).curves == {RUN: {"loss": [[1, 2], [3.0, 2.0]]}}
    news = history.take([points((3, 1.23456789))])
    assert (news.curves, news.anew) == ({RUN: {"loss": [[3], [1.23457]]}}, ())
    assert history.take([points()]).curves == {}
    assert history.all() == {RUN: {"loss": [[1, 2, 3], [3.0, 2.0, 1.23457]]}}
    history.keep([])
    assert history.all() == {}


def test_a_page_that_follows_the_news_shows_what_a_report_would() -> None:
    """Runs that resume at random, read in pieces at random: news must come to what reading all of it comes to."""
    chance = random.Random(6)  # noqa: S311 - the same each time, no secret
    for _ in range(200):
        history, page, reader = History(), Page(), CurveReader(500)
        step = 0
        for _ in range(chance.randrange(1, 8)):
            new: list[tuple[int, float]] = []
            for _ in range(chance.randrange(0, 6)):
                step = max(0, step - chance.randrange(1, 9)) if chance.random() < 0.1 else step + chance.randrange(1, 4)
                new.append((step, float(chance.randrange(100))))
                reader.add(*new[-1])
            page.take(history, points(*new))
        kept = [[step for step, _ in reader.points], [value for _, value in reader.points]]
        assert page.curves == history.all() == ({RUN: {"loss": kept}} if reader.points else {})


def test_what_is_kept_of_many_long_runs_is_bounded_and_keeps_the_spikes() -> None:
    history = History()
    history.keep([f"gpt-{n}" for n in range(1000)])
    limit = Limits.of(1000).points
    for start in range(0, 5000, 50):
        steps = range(start, start + 50)
        history.take([Points(RUN, [(step, {"loss": 99.0 if step == 777 else 1.0}) for step in steps])])
    told = history.take([Points("gpt-1", [(step, {"loss": 1.0}) for step in range(5000)])]).curves["gpt-1"]["loss"]
    kept = history.all()
    assert len(kept[RUN]["loss"][0]) <= limit
    assert len(told[0]) <= limit
    assert 99.0 in kept[RUN]["loss"][1]
    assert kept[RUN]["loss"][0][-1] == 4999


def test_records_become_points() -> None:
    counter = Counter()
    text = "\n".join(
        [
            '{"step": 10, "steps": 200, "loss": 2.5, "setup": {"torch": "2.13"}, "ok": true, "name": "x"}',
            "not JSON",
            '{"half": ',
            "[1, 2]",
            '{"step": 20, "loss": NaN, "lr": 1e400, "acc": 1}',
            '{"loss": 2.0}',
            '{"step": -5, "loss": 1.5}',
            "",
        ]
    )
    told = counter.points(RUN, text, anew=True)
    assert list(told.points) == [(10, {"loss": 2.5}), (20, {"acc": 1}), (3, {"loss": 2.0}), (4, {"loss": 1.5})]
    assert told.of == 200


@pytest.mark.parametrize("value", ["1" + "0" * 5000, "-1e999", '"1"', "null", "[1]", "true", "1e301"])
def test_what_is_no_number_to_draw_is_no_point(value: str) -> None:
    told = Counter().points(RUN, f'{{"step": 1, "loss": {value}}}\n{{"step": 2, "loss": 1}}\n', anew=True)
    assert list(told.points) == [(2, {"loss": 1})]
    assert list(Counter().points(RUN, f'{{"step": {value}, "loss": 3}}\n', anew=True).points) in (
        [],
        [(1, {"loss": 3})],
    )


def test_a_run_cant_have_names_without_end() -> None:
    counter = Counter()
    for n in range(100):
        counter.points(RUN, json.dumps({"step": n, **{f"metric{n}-{i}": 1.0 for i in range(50)}}), anew=False)
    told = counter.points(RUN, json.dumps({f"metric0-{i}": 1.0 for i in range(50)} | {"x" * 10_000: 1.0}), anew=False)
    assert len(told.points[0][1]) <= MOST_METRICS + 5
    assert len(counter.names) < 50


def test_how_fast_a_run_goes_is_told_by_its_steps() -> None:
    pace = Pace()
    assert pace.rate(0, 10) is None
    assert pace.rate(5, 20) == 2.0
    assert pace.rate(10, 20) == 2.0, "no new step yet"
    assert pace.rate(15, 40) == 2.0
    assert pace.rate(20, 5) is None, "it resumed from an earlier step"
    assert pace.rate(25, 10) == 1.0
    assert pace.rate(500, 10) is None, "that was long ago"
    assert pace.rate(505, None) is None


@pytest.mark.parametrize(
    ("step", "of", "rate", "left"),
    [(100, 200, 2.0, 50.0), (100, 1333, 1.0, 1200.0), (1, None, 1.0, None), (1, 5, 0.0, None), (9, 5, 1.0, 0.0)],
)
def test_how_long_it_takes_is_told_by_how_fast_it_goes(
    step: int | None, of: int | None, rate: float, left: float | None
) -> None:
    assert left_s(step, of, rate) == left
