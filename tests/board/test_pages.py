"""The board's parts as they are drawn: each by itself, and all of them in a page that needs no scripts."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.board.evening import evening
from tests.board.rig import words_of
from tpufleet.board.board_page import SCRIPTS, STYLES, board_page
from tpufleet.board.files import FILES, file
from tpufleet.board.markup import to_log
from tpufleet.board.parts import LISTS, draw, head, part_id
from tpufleet.board.run_row import run_row
from tpufleet.board.scene import Chip, Happening, HostChips, Piece, RunRow, Scene
from tpufleet.board.wall_page import wall_page
from tpufleet.report.html import fragment

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
RUN = RunRow("gpt-lr0.001-seed0", "gpt", "running", step=500, of=2000, metrics=(("test_loss", 1.75),))
PIECE = Piece("ada", "ada-1", 5, "El", "ementary", "2026-11-21T18:00:00Z")


def said(element: Any) -> str:
    return words_of(fragment(element)).strip()


def test_the_whole_evening_is_on_the_page_without_scripts() -> None:
    page = board_page("sherlock", evening(NOW))
    words = words_of(page)
    for text in (
        "gpt-lr0.001-seed0",
        "1,300 of 2,000",
        "no answer for 40 s",
        "grace",
        "Without a seat: zoe",
        "Afghanistan",
    ):
        assert text in words
    assert words.count("gpt-lr0.003-seed3") >= 2, "a run that has failed is in the table, and in the events"
    assert re.search(r'<noscript><meta http-equiv="refresh"', page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("page", [board_page, wall_page])
def test_a_page_loads_only_files_of_our_own_and_has_no_style_or_script_in_it(page: Any) -> None:
    text = page("sherlock", evening(NOW))
    loaded = re.findall(r'<(?:link|script)[^>]* (?:href|src)="([^"]+)"', text)
    assert set(loaded) <= set(FILES)
    assert not re.search(r"<style|<script>|<script(?! src)| style=| on\w+=", text)


def test_every_file_of_the_pages_is_in_the_package_and_needs_nothing_from_elsewhere() -> None:
    assert set(SCRIPTS) | set(STYLES) <= set(FILES)
    for path in FILES:
        text, kind = file(path)
        assert kind in ("text/css", "text/javascript", "image/svg+xml")
        assert not re.search(r"""(?:url\(|@import|fetch\(|import\(?)\s*["'`]?(?:https?:)?//""", text), path


def test_a_part_keeps_its_id_while_what_it_says_changes() -> None:
    assert part_id("runs", RUN) == part_id("runs", replace(RUN, step=900, state="done", metrics=()))
    down = HostChips("tpu-0-w0", problem="no answer")
    assert part_id("hosts", down) == part_id("hosts", HostChips("tpu-0-w0", (Chip("tpu-0-w0:0", "free"),)))


def test_parts_that_say_something_else_have_other_ids() -> None:
    pieces = [PIECE] + [
        replace(PIECE, **{field.name: 6 if field.name == "step" else "other"}) for field in fields(PIECE)
    ]
    assert len({part_id("pieces", piece) for piece in pieces}) == len(pieces)
    assert part_id("runs", RUN) != part_id("runs", replace(RUN, person="ada")), "a guest's run of the same name"
    moved = Piece(None, "ada", None, "a", "b")
    assert part_id("pieces", moved) != part_id("pieces", replace(moved, prompt="", text="ab"))


@pytest.mark.parametrize("text", ["", "x" * 10_000, '"><script>', "\ud800\x00\u202e", "a b\n\tc", "../../x"])
def test_an_id_is_of_safe_characters_whatever_it_is_made_of(text: str) -> None:
    items = {"hosts": HostChips(text), "runs": RunRow(text, text, text), "pieces": Piece(text, text, None, text, text)}
    items["happenings"] = Happening(NOW, text, text, text)
    assert set(items) == set(LISTS)
    for name, item in items.items():
        assert re.fullmatch(rf"{name}-[0-9a-f]{{18}}", part_id(name, item))
        assert f'id="{part_id(name, item)}"' in fragment(draw(name, item))


def test_no_run_name_leads_out_of_the_logs() -> None:
    for name in ("../host", "//evil.example", "a/b", "a?b#c", 'x" onclick="y', "%2e", "\ud800"):
        found = re.fullmatch(r'<a href="([^"]*)">.*</a>', fragment(to_log(name, "x")))
        assert found
        assert re.fullmatch(r"/log/[A-Za-z0-9_.~%-]*", found[1])


def test_a_state_is_said_by_a_word_and_not_by_colour_alone() -> None:
    for state in ("running", "recovering", "queued", "done", "failed", "stopped", "made-up"):
        assert state in said(run_row("x", replace(RUN, state=state)))


def test_a_run_says_how_far_it_is_how_fast_and_how_long_it_will_take() -> None:
    row = replace(RUN, rate=24.1, left_s=62.0, chips=("tpu-0-w0:1",))
    text = said(run_row("x", row))
    for part in ("500 of 2,000", "24.1", "1 min 02 s", "tpu-0-w0:1", "1.750"):
        assert part in text
    assert '<progress value="500" max="2000"' in fragment(run_row("x", row))


def test_what_isnt_known_is_a_dash_and_sorts_last() -> None:
    markup = fragment(run_row("x", RunRow("a", "a", "queued")))
    assert markup.count(">–<") == 5
    assert markup.count('data-value=""') == 5


def test_the_losses_lead_with_the_one_that_decides() -> None:
    text = said(run_row("x", replace(RUN, metrics=(("acc", 0.5), ("train_loss", 1.2), ("test_loss", 1.7)))))
    assert text.index("1.700") < text.index("train_loss 1.200")


def test_a_chip_says_whose_it_is_and_who_is_on_it() -> None:
    chips = (
        Chip("a-w0:0", "run", run="gpt-1", since=NOW - timedelta(minutes=5), hbm_used=8 * 10**9, hbm_total=16 * 10**9),
        Chip("a-w0:1", "in use", "ada", "bob"),
        Chip("a-w0:2", "free", "grace"),
        Chip("a-w0:3", "free"),
        Chip("a-w0:4", "in use"),
    )
    first, second, third, fourth, last = (
        words_of(part) for part in fragment(draw("hosts", HostChips("a-w0", chips))).split("<li")[1:]
    )
    assert "gpt-1" in first and "since 17:55 UTC" in first and "50 %" in first
    assert "ada" in second and "now: bob" in second
    assert "grace" in third and "idle" in third
    assert "free" in fourth
    assert "somebody" in last and "in use" in last


def test_the_head_says_what_is_there_and_what_is_wrong() -> None:
    assert said(head(Scene())) == "Looking …"
    assert said(head(Scene(at=NOW))) == "No host is there yet."
    scene = evening(NOW)
    assert "8 chips · 6 at work · 3 hosts, 1 down · runs: 6 running, 1 recovering, 1 queued, 1 failed" in said(
        head(scene)
    )
    assert "Nothing newer is known: the cloud is gone" in said(head(replace(scene, problem="the cloud is gone")))


def test_a_thing_that_is_told_twice_is_shown_once() -> None:
    page = board_page("sherlock", Scene(NOW, pieces=(PIECE, PIECE), runs=(RUN, RUN)))
    assert page.count(f'id="{part_id("pieces", PIECE)}"') == page.count(f'id="{part_id("runs", RUN)}"') == 1


def test_the_wall_shows_what_models_write_and_nothing_else() -> None:
    page = wall_page("sherlock", evening(NOW))
    assert "Afghanistan" in page
    assert "tpu-0-w0" not in page
