"""The live board in a real browser: what is new appears by itself, and disturbs nobody who reads, sorts or types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.board.evening import evening, evening_desk, run_ids
from tests.board.rig import Open, board
from tests.board.visitor import DESK, PHONE, Visitor
from tests.browser import needs_browser
from tpufleet.board.records import Points
from tpufleet.board.scene import Piece

pytestmark = needs_browser
SOON: Any = {"timeout": 10_000}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with board(tmp_path, evening_desk()) as opened:
        yield opened


def look(visitor: Visitor, **options: Any) -> Page:
    page = visitor.page("/", **{"viewport": DESK, **options})
    expect(page.locator("#line")).to_have_text("live", **SOON)
    expect(page.locator(".tc-plot canvas").first).to_be_visible(**SOON)
    return page


def names(page: Page) -> list[str]:
    return page.locator("#runs tr:not([hidden]) th a").all_text_contents()


def test_everything_is_there_without_scripts_but_the_curves(visitor: Visitor, opened: Open) -> None:
    opened.poll.touch()
    page = visitor.page("/", java_script_enabled=False)
    expect(page.get_by_text("gpt-lr0.003-seed3").first).to_be_visible(**SOON)  # by the page's own refresh
    for title in ("Chips", "Runs", "What the models write", "Events"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    for title in ("Curves",):
        expect(page.get_by_role("heading", name=title)).to_be_hidden()
    expect(page.locator(".tools").first).to_be_hidden()


def test_a_step_further_changes_the_row_and_the_curve_and_nothing_else(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    last = page.locator("#runs tr").last
    last.evaluate("row => row.remembered = true")
    expect(page.locator(".tc-runs li", has_text="gpt-lr0.001-seed0")).to_contain_text("1.5")
    rows = list(opened.desk.seen.runs)
    rows[0] = replace(rows[0], step=1320, metrics=(("test_loss", 1.234),))
    opened.desk.points = [Points(rows[0].id, [(1320, {"test_loss": 1.234})])]
    opened.desk.seen = replace(opened.desk.seen, runs=tuple(rows))
    expect(page.locator("#runs tr").first).to_contain_text("1,320 of 2,000", **SOON)
    expect(page.locator(".tc-runs li", has_text="gpt-lr0.001-seed0")).to_contain_text("1.234")
    assert last.evaluate("row => row.remembered"), "a row that is the same is left alone"


def test_rows_are_sorted_by_a_header_and_stay_so_with_news(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    assert names(page)[:8] == run_ids()
    page.get_by_role("button", name="Loss").click()
    page.get_by_role("button", name="Loss").click()
    assert page.get_by_role("columnheader", name="Loss").get_attribute("aria-sort") == "descending"
    assert names(page)[0] == "ada-20261121-1810"
    assert names(page)[-1] == "gpt-lr0.003-seed2", "who has no loss yet comes last"
    rows = list(opened.desk.seen.runs)
    rows[0] = replace(rows[0], metrics=(("test_loss", 9.5),))
    opened.desk.seen = replace(opened.desk.seen, runs=tuple(rows))
    expect(page.locator("#runs tr").first).to_contain_text("9.500", **SOON)
    page.get_by_role("button", name="Loss").click()
    assert names(page)[:8] == run_ids()


def test_a_filter_stays_with_news(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    page.get_by_label("Filter the runs").first.fill("failed seed3")
    assert names(page) == ["gpt-lr0.003-seed3"]
    expect(page.locator("#runs-count")).to_have_text("1 of 9")
    rows = [replace(row, reason="disk full") if row.state == "failed" else row for row in opened.desk.seen.runs]
    opened.desk.seen = replace(opened.desk.seen, runs=tuple(rows))
    expect(page.locator("#runs tr:not([hidden])")).to_contain_text("disk full", **SOON)
    assert names(page) == ["gpt-lr0.003-seed3"]


def test_a_phone_sorts_too(visitor: Visitor) -> None:
    page = look(visitor, viewport=PHONE)
    page.get_by_label("Order").select_option("Run ↓")
    assert names(page)[0] == "gpt-lr0.003-seed3"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_new_text_waits_while_somebody_reads(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    first = page.locator(".piece:not([hidden])").first
    first.scroll_into_view_if_needed()
    first.hover()
    before = first.bounding_box()
    new = Piece(None, run_ids()[0], 1400, "It is", " quite so.", "")
    opened.desk.seen = replace(opened.desk.seen, pieces=(new, *opened.desk.seen.pieces))
    expect(page.get_by_role("button", name="1 new text")).to_be_visible(**SOON)
    assert first.bounding_box() == before
    page.get_by_role("button", name="1 new text").click()
    expect(page.locator(".piece").first).to_contain_text("quite so")
    expect(page.get_by_role("button", name="1 new text")).to_be_hidden()


def test_a_new_text_appears_by_itself_while_nobody_reads(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    page.mouse.move(5, 5)
    new = Piece(None, run_ids()[0], 1400, "It is", " quite so.", "")
    opened.desk.seen = replace(opened.desk.seen, pieces=(new, *opened.desk.seen.pieces))
    expect(page.locator(".piece").first).to_contain_text("quite so", **SOON)


def test_texts_are_chosen_by_prompt_by_who_and_by_step(visitor: Visitor) -> None:
    page = look(visitor)
    shown = page.locator(".piece:not([hidden])")
    expect(shown).to_have_count(6)
    page.get_by_label("Who", exact=True).select_option("ada")
    expect(shown).to_have_count(1)
    page.get_by_label("Steps", exact=True).select_option("All steps")
    expect(shown).to_have_count(2)
    page.get_by_label("Prompt", exact=True).select_option("The dog did nothing in the")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("n i ght")


def test_a_runs_drawer_shows_its_log_as_it_grows_and_gives_the_focus_back(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    link = page.get_by_role("link", name="gpt-lr0.001-seed1")
    link.focus()
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="gpt-lr0.001-seed1")
    expect(drawer.get_by_role("region", name="The end of the log")).to_contain_text("step  1280", **SOON)
    expect(drawer).to_contain_text("attempts", ignore_case=True)
    opened.desk.logs[run_ids()[1]] += b"\nand on <b>it</b> goes"
    expect(drawer.locator(".log")).to_contain_text("and on <b>it</b> goes", **SOON)
    rows = list(opened.desk.seen.runs)
    rows[1] = replace(rows[1], step=1999)
    opened.desk.seen = replace(opened.desk.seen, runs=tuple(rows))
    expect(drawer).to_contain_text("1,999 of 2,000", **SOON)
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(link).to_be_focused()


def test_the_drawer_says_what_a_known_message_means(visitor: Visitor, opened: Open) -> None:
    run = run_ids()[1]
    opened.desk.logs[run] = b"TPU initialization failed: open(/dev/vfio/0): Device or resource busy <b>\n"
    page = look(visitor)
    page.get_by_role("link", name=run).click()
    drawer = page.get_by_role("dialog", name=run)
    expect(drawer).to_contain_text("It says that a process still has the chip open", **SOON)
    expect(drawer).to_contain_text("docs/troubleshooting.md#device-or-resource-busy")


def test_a_guests_log_is_not_asked_for(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    page.get_by_role("link", name="ada-20261121-1810").click()
    expect(page.get_by_role("dialog")).to_contain_text("theirs alone")
    assert "ada-20261121-1810" not in opened.desk.logs_read


def test_a_run_that_begins_anew_has_its_curve_drawn_anew(visitor: Visitor, opened: Open) -> None:
    page = look(visitor)
    run = run_ids()[0]
    opened.desk.points = [Points(run, [(10, {"test_loss": 4.321})], anew=True)]
    expect(page.locator(".tc-runs li", has_text=run)).to_contain_text("4.321", **SOON)


def test_how_long_something_goes_on_is_said_in_the_browser(visitor: Visitor) -> None:
    page = look(visitor)
    expect(page.locator(".chip.run time").first).to_have_text("for 9 min")
    expect(page.locator(".happening", has_text="exit code 137").locator("time")).to_have_text("11 min ago")


def test_the_page_says_when_the_line_is_gone(browser: Browser, tmp_path: Path) -> None:
    with board(tmp_path, evening_desk()) as opened:
        guest = Visitor(browser, opened)
        page = guest.page("/", viewport=DESK)
        expect(page.locator("#line")).to_have_text("live", **SOON)
    expect(page.locator("#line")).to_have_text("not live", **SOON)
    assert "stale" in page.locator("body").get_attribute("class").split()
    guest.close()


def test_the_wall_goes_on_and_gives_everybody_a_turn(visitor: Visitor) -> None:
    page = visitor.page("/", viewport=DESK)
    expect(page.locator(".piece").first).to_be_visible(**SOON)
    page.goto(page.url + "wall")
    seen: list[str] = []
    for _ in range(6):
        seen.append(page.locator("#wall-said strong").text_content() or "")
        page.keyboard.press("ArrowRight")
    assert len(set(seen)) == 6, "six have written; each is shown before anybody is shown again"
    page.keyboard.press("ArrowLeft")
    assert page.locator("#wall-said strong").text_content() == seen[-1]
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "laptop"])
def test_the_wall_fits_any_text(visitor: Visitor, opened: Open, size: dict[str, int]) -> None:
    texts = [("wwwwwwwww " * length)[:length] for length in (1, 40, 400, 4000)]
    pieces = tuple(Piece(str(n), "run", 1, "", text, "") for n, text in enumerate(texts))
    opened.desk.seen = replace(evening(), pieces=pieces)
    page = visitor.page("/wall", viewport=size)
    quote = page.locator("#stage blockquote")
    for text in texts:
        expect(quote).to_contain_text(text[:30], **SOON)
        fits = "q => q.scrollHeight <= q.parentElement.clientHeight && q.scrollWidth <= q.parentElement.clientWidth"
        assert quote.evaluate(fits)
        assert quote.evaluate("q => parseFloat(getComputedStyle(q).fontSize) / innerHeight") >= 0.0259
        assert (quote.text_content() == text) == (len(text) < 4000)
        page.keyboard.press("ArrowRight")
