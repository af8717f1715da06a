"""What of all that runs left a person wants home."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tpufleet.errors import UsageError
from tpufleet.model import Host, HostView
from tpufleet.names import HostName
from tpufleet.ops.choose import Choice, Wish, alive_since, best_runs, kinds, moment

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
HOST = Host(HostName("tpu-0-w0"), "tpu-0", "z", 0, "127.0.0.1", 22, "1-w0")


def run(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "job": "gpt", "state": "done", "attempts": [], **fields}


def choice(*runs: dict[str, Any], **wish: Any) -> Choice:
    return Wish(**wish).among([HostView(HOST, probe={"chips": [], "runs": list(runs)})])


def test_without_a_wish_everything_comes() -> None:
    everything = choice(run("a"))
    assert everything == Choice()
    assert everything.wants_run("b")
    assert everything.wants("plots/loss.svg")
    assert everything.wants_checkpoint("b", newest=False)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("logs", {"log.txt"}),
        ("metrics", {"metrics.jsonl"}),
        ("completions", {"completions.jsonl"}),
        ("artifacts", {"plots/loss.svg"}),
        ("checkpoints", {"log.txt", "metrics.jsonl", "completions.jsonl"}),  # whoever goes on from one needs them
    ],
)
def test_only_brings_its_kind_and_the_record_of_what_the_run_was(kind: str, wanted: set[str]) -> None:
    found = Choice(kinds=kinds([kind]))
    files = ("log.txt", "metrics.jsonl", "completions.jsonl", "plots/loss.svg", "changes.diff")
    assert {path for path in files if found.wants(path)} == wanted | {"changes.diff"}
    assert found.wants_checkpoint("a", newest=True) is (kind == "checkpoints")


def test_the_best_are_those_of_the_lowest_test_loss_whatever_else_is_measured() -> None:
    runs = [run(f"a{n}", metrics={"train_loss": -n, "test_loss": loss}) for n, loss in enumerate([3.0, 1.0, 2.0, 1.0])]
    assert best_runs(runs, 2) == {"a1", "a3"}
    assert best_runs(runs, 9) == {"a0", "a1", "a2", "a3"}


def test_without_a_test_loss_the_first_loss_counts_and_what_is_not_a_number_is_no_good_one() -> None:
    values = [float("nan"), float("-inf"), None, True, "0.1", 2, 3.5]
    runs = [run(f"a{n}", metrics={"acc": -n, "Train_Loss": value}) for n, value in enumerate(values)]
    assert best_runs([*runs, run("none"), run("null", metrics=None)], 1) == {"a5"}


def test_of_the_best_the_newest_checkpoint_comes_and_everything_else_of_all() -> None:
    found = choice(run("a", metrics={"test_loss": 1}), run("b", metrics={"test_loss": 2}), best=1)
    assert found.runs is None
    assert found.wants("log.txt")
    wanted = [
        (name, newest) for name in "ab" for newest in (True, False) if found.wants_checkpoint(name, newest=newest)
    ]
    assert wanted == [("a", True)]


@pytest.mark.parametrize("metrics", [{}, {"accuracy": 0.5}, {"test_loss": float("nan")}])
def test_without_any_loss_there_are_no_best(metrics: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="no run has told one"):
        choice(run("a", metrics=metrics), best=1)


def test_the_best_of_a_job_are_looked_for_in_the_job() -> None:
    runs = [run("a", metrics={"test_loss": 1}), run("b", job="big", metrics={"test_loss": 2})]
    found = choice(*runs, names=["big"], best=1)
    assert (found.runs, found.best) == ({"b"}, {"b"})


def test_since_takes_the_runs_under_way_and_those_that_began_or_ended_later() -> None:
    early, late = "2026-11-21T10:00:00Z", "2026-11-21T17:30:00.123Z"
    runs = [
        run("old", attempts=[{"started": early, "ended": early}]),
        run("ended", attempts=[{"started": early, "ended": late}]),
        run("again", attempts=[{"started": early, "ended": early}, {"started": late, "ended": None}]),
        run("running", state="running", attempts=[{"started": early, "ended": None}]),
        run("sent", submitted=late),
        run("odd", submitted="yesterday", attempts=[{"started": 5, "ended": "9999-12-31T23:59:59-23:59"}]),
    ]
    assert choice(*runs, since=moment("1h", NOW)).runs == {"ended", "again", "running", "sent"}
    assert choice(runs[0], since=moment("1h", NOW)).runs == frozenset(), "none, and not all"
    assert alive_since(runs[0], moment("1d", NOW))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("30m", datetime(2026, 11, 21, 17, 30, tzinfo=UTC)),
        ("7d", datetime(2026, 11, 14, 18, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T05:00", datetime(2026, 11, 21, 5, tzinfo=UTC)),
        ("2026-11-21T05:00:00Z", datetime(2026, 11, 21, 5, tzinfo=UTC)),
        ("2026-11-21T05:00+02:00", datetime(2026, 11, 21, 3, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_length_of_time_ago_or_a_date(text: str, found: datetime) -> None:
    assert moment(text, NOW) == found


@pytest.mark.parametrize("text", ["", "yesterday", "8", "-1h", "1w", "2026-13-01", "9999999d", "2026-11-22", "\x1b[2J"])
def test_what_is_no_moment_that_was_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"--since") as refused:
        moment(text, NOW)
    assert refused.value.hint


def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="logs, metrics, completions, checkpoints, artifacts, not 'log'"):
        kinds(["metrics", "log"])
