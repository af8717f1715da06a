"""Values as words in a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tpufleet.cli.follow import summary
from tpufleet.cli.render import age, chip_row, metric_words, number, state_words
from tpufleet.text import counted, natural, size


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"state": "running", "reason": None}, "running"),
        ({"state": "queued", "reason": "no free chip"}, "queued: no free chip"),
        ({"state": "failed", "reason": "exit nonzero", "attempts": [{"exit_code": 3}]}, "failed: exit nonzero (3)"),
        ({"state": "failed", "reason": "lost", "attempts": [{"exit_code": None}]}, "failed: lost"),
        ({"state": "stopped", "reason": "stopped by a person"}, "stopped"),
    ],
)
def test_a_state_is_said_with_its_reason_where_that_says_more(state: dict[str, Any], words: str) -> None:
    assert state_words(state) == words


def test_losses_come_first_and_numbers_are_short() -> None:
    metrics = {"steps_per_second": 20.5, "train_loss": 1.23456, "test_loss": 1.5, "lr": 0.001}
    assert metric_words(metrics, limit=2) == "test_loss 1.5  train_loss 1.235"


@pytest.mark.parametrize(
    ("value", "word"), [(3, "3"), (0.000012345, "1.234e-05"), (float("nan"), "nan"), (True, "True"), ("x", "x")]
)
def test_a_number_is_four_digits_at_most(value: object, word: str) -> None:
    assert number(value) == word


def test_ages_sizes_and_counts_are_for_people() -> None:
    now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    assert age("2026-11-21T11:18:00Z", now) == "42 min"
    assert age("2026-11-21T08:48:00Z", now) == "3 h 12 min"
    assert age("2026-11-18T08:00:00Z", now) == "3 d 4 h"
    assert age("nonsense", now) == ""
    assert (size(999), size(1500), size(20_800_000)) == ("999 B", "1.5 kB", "20.8 MB")
    assert (counted(1, "node"), counted(2, "node")) == ("1 node", "2 nodes")


def test_names_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["tpu-10-w0", "tpu-2-w0", "a-1", "10"], key=natural) == ["10", "a-1", "tpu-2-w0", "tpu-10-w0"]


def test_many_runs_are_summed_up_in_a_line() -> None:
    states = [
        {"state": "running", "step": step, "metrics": {"test_loss": loss}} for step, loss in ((300, 2.3), (420, 2.6))
    ]
    assert summary(states) == "2 runs: 2 running; step 300 to 420; test_loss 2.3 to 2.6"


@pytest.mark.parametrize(
    ("chip", "row"),
    [
        ({"state": "free"}, ("free", "", "", "", "", "", "")),
        (
            {"state": "run", "run": "gpt-seed0", "pid": 812, "user": "tpu", "command": "python3 train.py"},
            ("run", "gpt-seed0", "", "", "812", "", ""),
        ),
        (
            {"state": "person", "user": "lestrade", "pid": 90, "command": "python3 x.py"},
            ("person", "lestrade", "", "", "90", "python3 x.py", ""),
        ),
        ({"state": "free", "seat": "ada"}, ("seat", "ada", "", "", "", "", "")),
        (
            {"state": "run", "run": "g", "hbm_used": 3_200_000_000, "hbm_total": 17_179_869_184, "duty_pct": 77.6},
            ("run", "g", "3.2/17.2 GB", "78 %", "", "", ""),
        ),
    ],
)
def test_a_chip_says_who_is_on_it_and_how_busy_it_is_where_that_is_known(
    chip: dict[str, Any], row: tuple[str, ...]
) -> None:
    assert chip_row("tpu-0-w0:1", chip) == ("tpu-0-w0:1", *row)


def test_a_chip_that_failed_says_so() -> None:
    assert chip_row("tpu-0-w0:1", {"state": "free", "suspect": True})[-1].startswith("suspect: ")
