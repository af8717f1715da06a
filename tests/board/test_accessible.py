"""axe-core finds nothing serious on any page of the board, on a phone or a laptop, in light or dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.board.evening import evening_desk
from tests.board.rig import Open, board
from tests.board.visitor import DESK, PHONE, PROJECTOR, Visitor
from tests.browser import needs_browser

pytestmark = needs_browser
LOOKS = [
    pytest.param(PHONE, "dark", marks=pytest.mark.faults),
    pytest.param(DESK, "light"),
    pytest.param(PHONE, "light", marks=pytest.mark.faults),
    pytest.param(DESK, "dark", marks=pytest.mark.faults),
]
SOON: Any = {"timeout": 10_000}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with board(tmp_path, evening_desk()) as opened:
        yield opened


def violations(page: Page) -> list[str]:
    page.evaluate(
        "Promise.all(document.getAnimations().map(a => a.playState === 'running' && a.effect.getComputedTiming()"
        ".endTime < 3000 && a.finished))"
    )  # what fades in is pale meanwhile
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_nothing_keeps_anybody_out(visitor: Visitor, size: dict[str, int], scheme: str) -> None:
    page = visitor.page("/", viewport=size, color_scheme=scheme)
    expect(page.locator("#line")).to_have_text("live", **SOON)
    expect(page.locator(".tc-plot canvas").first).to_be_visible(**SOON)
    assert violations(page) == []
    page.get_by_text("Runs (9)").click(force=True)
    page.locator("#runs th a").first.click()
    expect(page.locator("#drawer .log")).to_contain_text("step", **SOON)
    assert violations(page) == []
    page.goto(page.url.partition("#")[0] + "wall")
    expect(page.locator("#stage blockquote")).to_be_visible(**SOON)
    page.mouse.move(50, 50)
    assert violations(page) == []


def test_whoever_has_only_a_keyboard_reaches_everything(visitor: Visitor) -> None:
    page = visitor.page("/", viewport=DESK)
    expect(page.locator(".tc-plot canvas").first).to_be_visible(**SOON)
    reached: set[str] = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(e => e.id || e.className || e.localName)(document.activeElement)"))
    for wanted in ("skip", "runs-filter", "tc-plot", "tc-button", "tc-filter", "pieces-prompt"):
        assert wanted in reached
    page.locator(".tc-plot").focus()
    page.keyboard.press("+")
    expect(page.locator(".tc-said")).to_contain_text("A part is shown.")
    page.keyboard.press("0")
    expect(page.locator(".tc-said")).not_to_contain_text("A part is shown.")


@pytest.mark.parametrize(
    "size", [{"width": 320, "height": 568}, PHONE, DESK, PROJECTOR], ids=lambda size: size["width"]
)
def test_no_page_is_wider_than_the_screen(visitor: Visitor, size: dict[str, int]) -> None:
    page = visitor.page("/", viewport=size)
    expect(page.locator(".tc-plot canvas").first).to_be_visible(**SOON)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    page.goto(page.url + "wall")
    expect(page.locator("#stage blockquote")).to_be_visible(**SOON)
    assert page.evaluate(f"{fits} && document.documentElement.scrollHeight <= innerHeight")
