"""Several logs in one: whole lines under names, and where a log that broke off goes on."""

from __future__ import annotations

import os

import pytest

from tpufleet.cli.log_lines import COLORS, LONGEST, Names, WholeLines, colors_of
from tpufleet.ops.many_logs import MARK_BYTES, unseen


def test_a_line_comes_when_it_has_ended_also_when_a_character_was_cut_in_two() -> None:
    lines = WholeLines()
    data = "step 1 — é\nstep".encode()
    parts = [line for byte in data for line in lines.feed(bytes([byte]))]
    assert parts == ["step 1 — é"]
    assert lines.feed(b" 2") == []
    assert lines.feed(b"", end=True) == ["step 2"]
    assert lines.feed(b"", end=True) == []


def test_a_progress_bar_is_its_last_state() -> None:
    assert WholeLines().feed(b"10 %\r50 %\r100 %\r\nnext\r\n") == ["100 %", "next"]


def test_a_line_without_end_takes_no_memory_without_end() -> None:
    lines = WholeLines()
    pieces = [piece for _ in range(10) for piece in lines.feed(b"x" * LONGEST)]
    assert len(pieces) == 9
    assert {len(piece) for piece in pieces} == {LONGEST}


def test_names_are_aligned_and_shortened_only_where_they_stay_apart() -> None:
    names = Names(["a", "longer"], colors=False, cut=True, unicode=True)
    assert [names.line("a", "x"), names.line("longer", "y")] == ["a      │ x", "longer │ y"]
    long = [f"gpt-lr0.001-width512-depth12-seed{seed}" for seed in (1, 2)]
    assert Names(long, colors=False, cut=True, unicode=False).line(long[0], "x") == "gpt-lr0.001-wi…depth12-seed1 | x"
    assert Names(long, colors=False, cut=False, unicode=False).line(long[0], "x") == f"{long[0]} | x"
    alike = [f"gpt-lr0.001-width{width}-depth12-seed1234567890" for width in (1, 2)]
    assert alike[0] in Names(alike, colors=False, cut=True, unicode=True).line(alike[0], "x")


def test_a_run_has_the_same_colour_in_every_command_and_none_has_red() -> None:
    runs = [f"gpt-seed{seed}" for seed in range(len(COLORS))]
    chosen = colors_of(runs)
    assert chosen == colors_of(runs[::-1])
    assert len(set(chosen.values())) == len(COLORS), "as many as there are, each its own"
    assert 31 not in chosen.values()


def test_only_the_name_is_coloured_and_a_line_cannot_act_on_the_terminal() -> None:
    line = Names(["a"], colors=True, cut=True, unicode=True).line("a", "\x1b]52;c;aGk=\x07\x1b[2J\u202eno\ttab")
    assert line == f"\x1b[{colors_of(['a'])['a']}ma │\x1b[0m \\x1b]52;c;aGk=\\x07\\u202eno     tab"


def test_what_was_shown_of_a_log_is_not_shown_again() -> None:
    log = os.urandom(60_000)
    seen, tail = log[:50_000], log[10_000:]
    assert unseen(seen, tail) == log[50_000:]
    assert unseen(log, tail) == b""


@pytest.mark.parametrize("size", [1, 100, MARK_BYTES, 20_000])
def test_an_older_copy_of_a_log_has_nothing_new(size: int) -> None:
    log = os.urandom(40_000)
    assert unseen(log, log[:size]) == b""


def test_another_log_is_shown_whole() -> None:
    assert unseen(b"one\n" * 10, b"two\n" * 10) == b"two\n" * 10
    assert unseen(b"", b"two\n") == b"two\n"
