"""Tables that fit 40 to 250 characters: what goes, what is shortened, and what never is."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tpufleet.cli.render import CHIP_COLUMNS, HOST_COLUMNS, NODE_COLUMNS
from tpufleet.cli.run_table import run_table
from tpufleet.cli.tables import GAP, Column, Fitted, fit, plain_lines, short
from tpufleet.cli.top_view import HOST_COLUMNS as TOP_HOSTS, chip_columns

WIDTHS = range(40, 251)
STATES = [
    {
        "id": f"gpt-lr0.001-width512-seed{seed}",
        "state": state,
        "reason": reason,
        "step": 1500,
        "chips": [f"tpu-0-w0:{seed}"],
        "commit": "caf59fa10f41",
        "waits": "tpu-0-w0: 4 of 4 chips in use; 1 before it" if state == "queued" else None,
        "metrics": {"test_loss": 2.5, "train_loss": 2.4, "accuracy": 0.5, "steps": 2000, "steps_per_second": 24.4},
        "attempts": [{"started": "2026-11-21T10:00:00Z", "ended": "2026-11-21T10:05:00Z", "exit_code": 3}],
    }
    for seed, (state, reason) in enumerate(
        [("running", None), ("queued", "no free chip"), ("failed", "exit nonzero"), ("done", None)]
    )
]


def drawn(table: Fitted, width: int, height: int = 50) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, height=height, force_terminal=True, no_color=True, markup=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", capture.get()).splitlines()]


@pytest.mark.parametrize("columns", [CHIP_COLUMNS, HOST_COLUMNS, NODE_COLUMNS, TOP_HOSTS, chip_columns("test_loss")])
def test_whatever_the_width_a_table_fits_and_the_least_important_columns_go_first(columns: list[Column]) -> None:
    natural = [max(column.least, len(column.name)) + 7 for column in columns]
    before: set[int] = set()
    for width in WIDTHS:
        chosen = dict(fit(columns, natural, width))
        assert sum(chosen.values()) + GAP * (len(chosen) - 1) <= width
        assert before <= chosen.keys(), "a wider terminal shows no less"
        before = set(chosen)
        gone = [column.rank for index, column in enumerate(columns) if index not in chosen]
        assert min(gone, default=99) >= max(columns[index].rank for index in chosen), "the least important go first"
        assert all(chosen[i] == natural[i] for i, column in enumerate(columns) if i in chosen and column.number)
    assert chosen == dict(enumerate(natural)), "wide enough, everything is whole"


def test_runs_on_a_narrow_terminal_keep_their_id_state_step_and_loss() -> None:
    for width in WIDTHS:
        lines = drawn(Fitted(*run_table(STATES)), width)
        assert all(len(line) <= width for line in lines), width
        assert {"RUN", "STATE", "STEP", "TEST_LOSS"} <= set(lines[0].split()) or width < 50
        assert all(text.split()[0].endswith(str(seed)) for seed, text in enumerate(lines[1:5])), "ids keep their ends"
    narrow, wide = drawn(Fitted(*run_table(STATES)), 80), drawn(Fitted(*run_table(STATES)), 200)
    assert len(narrow) == 5, "nothing goes on below"
    assert all(line.count("1500/2000") == 1 and " 2.5" in line for line in narrow[1:])
    assert {"COMMIT", "TRAIN_LOSS", "ACCURACY", "CHIP", "TIME"} <= set(wide[0].split())
    assert "tpu-0-w0: 4 of 4 chips in use; 1 before it" in wide[2]


def test_ids_can_be_told_apart_on_the_narrowest_terminal() -> None:
    ids = {f"gpt-lr0.00{lr}-seed{seed}" for lr in (1, 3) for seed in range(4)}
    states = [{"id": run, "state": "failed", "step": 1500, "metrics": {"test_loss": 2.5, "steps": 2000}} for run in ids]
    assert {line.split()[0] for line in drawn(Fitted(*run_table(states)), 40)} == {"RUN", *ids}


def test_a_column_without_content_is_not_shown_on_a_terminal_but_in_a_pipe() -> None:
    columns = [Column("a"), Column("empty"), Column("b", number=True)]
    assert drawn(Fitted(columns, [("x", "", 1)]), 80)[0].split() == ["A", "B"]
    assert plain_lines(columns, [("x", "", 1)]) == ["A  EMPTY  B", "x         1"]


def test_a_pipe_gets_everything_whole() -> None:
    columns, rows = run_table(STATES)
    text = "\n".join(plain_lines(columns, rows))
    assert "…" not in text
    assert all(str(state["id"]) in text for state in STATES)
    assert "failed: exit nonzero (3)" in text


def test_no_more_rows_than_the_terminal_has_lines_while_it_moves() -> None:
    rows = [(f"run-{number}",) for number in range(100)]
    lines = drawn(Fitted([Column("run")], rows, beside=4), 80, height=20)
    assert lines[-1] == "… and 87 more rows"
    assert len(lines) == 20 - 4 - 1
    assert len(drawn(Fitted([Column("run")], rows), 80, height=20)) == 101, "whole at the end"


@pytest.mark.parametrize(
    ("width", "end", "middle"),
    [(30, "gpt-lr0.001-seed3", "gpt-lr0.001-seed3"), (11, "gpt-lr0.00…", "gpt-l…seed3"), (1, "…", "…"), (0, "", "")],
)
def test_what_is_too_long_is_cut_at_its_end_or_in_the_middle(width: int, end: str, middle: str) -> None:
    assert short("gpt-lr0.001-seed3", width) == end
    assert short("gpt-lr0.001-seed3", width, middle=True) == middle


def test_cells_are_neither_markup_nor_control_characters() -> None:
    (_, row) = drawn(Fitted([Column("x", wraps=True)], [("[red]\x1b]52;c;aGk=\x07[/red]\u202e",)]), 80)
    assert row == "[red]\\x1b]52;c;aGk=\\x07[/red]\\u202e"


def test_wide_characters_count_as_two() -> None:
    for width in (10, 11, 12):
        lines = drawn(Fitted([Column("x", least=4)], [("日本語日本語日本語",)]), width)
        assert sum(2 if ord(sign) > 0x2FFF else 1 for sign in lines[1]) <= width
