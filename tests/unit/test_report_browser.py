"""The report in a real browser: nothing in it runs or leads away, everybody can read it, and its tables and pictures
answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser import browsing, needs_browser
from tests.unit.report_data import (
    PAYLOADS,
    START,
    node_record,
    stamp,
    write_home,
    write_hostile_home,
    write_listing,
    write_nodes,
    write_run,
)
from tpufleet import report
from tpufleet.report.text import clean

pytestmark = needs_browser
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def evening(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on eight runs of two nodes, one of them preempted on the way."""
    home = write_home(tmp_path_factory.mktemp("evening") / "sherlock")
    write_nodes(home, [node_record(f"tpu-{n}", [f"tpu-{n}-w0"]) for n in range(2)])
    return report.write(home)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on more runs than are put into the page at once."""
    return report.write(write_home(tmp_path_factory.mktemp("crowd") / "sherlock", runs=120, points=2))


@contextmanager
def reading(browser: Browser, page: Path, **options: Any) -> Iterator[Page]:
    """The page opened from its file; at the end the browser has complained of nothing, asked nobody, and shown no
    dialog."""
    heard: list[str] = []
    context = browser.new_context(**{"viewport": LAPTOP, **options})
    tab = context.new_page()
    tab.on("console", lambda message: heard.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: heard.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: heard.append(request.url) if request.url != page.as_uri() else None)
    tab.goto(page.as_uri())
    yield tab
    context.close()
    assert heard == []


def test_thirty_injections_do_nothing_in_a_browser_and_are_shown(browser: Browser, tmp_path: Path) -> None:
    page = report.write(write_hostile_home(tmp_path / "home"))
    with reading(browser, page) as tab:
        for summary in tab.locator("details.run > summary").all():
            summary.click()
        shown = tab.locator("body").inner_text()
        told = tab.locator("#live").inner_text()
        tab.mouse.move(600, 400)
        for payload in PAYLOADS:
            line = clean(payload).split("\n")[0]
            assert shown.count(line) >= 3, payload
        assert (
            tab.evaluate(
                "document.querySelectorAll('main script, main iframe, main img, main a:not([href^=\"#\"])').length"
            )
            == 0
        )
        assert told


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(PHONE, "light", id="phone-light"),
        pytest.param(LAPTOP, "dark", id="laptop-dark"),
        pytest.param(PHONE, "dark", id="phone-dark", marks=pytest.mark.faults),
        pytest.param(LAPTOP, "light", id="laptop-light", marks=pytest.mark.faults),
    ],
)
def test_no_serious_barrier_is_found_and_nothing_scrolls_sideways(
    browser: Browser, evening: Path, scheme: str, size: dict[str, int]
) -> None:
    # axe is put in by the test, which the page's own policy forbids
    with reading(browser, evening, color_scheme=scheme, viewport=size, bypass_csp=True) as tab:
        tab.locator("details.run > summary").first.click()
        found = Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"]
        assert [f for f in found if f["impact"] in ("serious", "critical")] == []
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_without_scripts_the_pictures_and_everything_else_are_there(browser: Browser, crowd: Path) -> None:
    with reading(browser, crowd, java_script_enabled=False) as tab:
        expect(tab.locator(".chart.labelled").first).to_be_visible()
        expect(tab.locator("table.runs tbody tr")).to_have_count(120)
        expect(tab.locator(".card")).to_have_count(120)
        expect(tab.locator("#live canvas")).to_have_count(0)
        tab.locator("details.run > summary").last.click()
        expect(tab.locator("details.run[open] pre").last).to_be_visible()


def test_where_scripts_run_the_curves_are_live_and_on_paper_they_are_pictures(browser: Browser, evening: Path) -> None:
    with reading(browser, evening) as tab:
        expect(tab.locator("#live canvas").first).to_be_visible()
        expect(tab.locator(".chart.labelled")).to_be_hidden()
        tab.emulate_media(media="print")
        expect(tab.locator(".chart.labelled")).to_be_visible()
        expect(tab.locator("#live canvas").first).to_be_hidden()


def test_a_table_is_sorted_by_its_headings_all_rows_of_it(browser: Browser, crowd: Path) -> None:
    with reading(browser, crowd) as tab:
        expect(tab.locator("table.runs tbody tr")).to_have_count(100)
        heading = tab.locator("table.runs th", has_text="test_loss")
        heading.get_by_role("button").press("Enter")
        expect(tab.locator("table.runs tbody tr")).to_have_count(120)
        assert heading.get_attribute("aria-sort") == "ascending"
        losses = column(tab, heading)
        assert losses == sorted(losses)
        heading.get_by_role("button").press("Enter")
        assert column(tab, heading) == losses[::-1]


def column(tab: Page, heading: Any) -> list[float]:
    index = heading.evaluate("cell => cell.cellIndex")
    values = "(rows, index) => rows.map((row) => Number(row.cells[index].dataset.v))"
    return tab.locator("table.runs tbody tr").evaluate_all(values, index)


def test_a_link_to_a_run_opens_what_is_known_of_it_even_where_that_came_folded(browser: Browser, crowd: Path) -> None:
    with reading(browser, crowd) as tab:
        run = "gpt-lr0.007-seed2"
        expect(tab.locator(f"[id='run-{run}']")).to_have_count(0)
        tab.locator("table.runs").get_by_role("link", name=run, exact=True).click()
        expect(tab.locator(f"[id='run-{run}']")).to_be_visible()
        expect(tab.locator(f"[id='run-{run}'] pre").last).to_be_visible()


def test_completions_are_filtered_by_run_and_by_words(browser: Browser, crowd: Path) -> None:
    with reading(browser, crowd) as tab:
        tab.get_by_placeholder("run, prompt or words").fill("seed3 lr0.00")
        expect(tab.locator(".filter [role=status]")).to_contain_text("of 120")
        names = tab.locator(".card:not([hidden]) .whose").all_text_contents()
        assert names and all("seed3" in name and "lr0.00" in name for name in names)


def test_pointing_at_a_run_finds_it_in_the_other_pictures(browser: Browser, evening: Path) -> None:
    with reading(browser, evening) as tab:
        tab.locator("table.runs tbody tr").nth(2).hover()
        run = tab.locator("table.runs tbody tr").nth(2).get_attribute("data-run")
        picked = tab.locator("g.picked").evaluate_all("all => all.map((each) => each.dataset.run)")
        assert len(picked) == 2
        assert set(picked) == {run}


def test_a_run_that_was_preempted_shows_where_and_when(browser: Browser, tmp_path: Path) -> None:
    record = write_run(tmp_path, 0, {"lr": "0.001", "seed": "0"})
    first = record["attempts"][0]
    record["attempts"] = [first | {"reason": "preempted", "exit_code": None}, first | {"n": 2, "started": stamp(START)}]
    write_listing(tmp_path, [record])
    with reading(browser, report.write(tmp_path)) as tab:
        expect(tab.locator(".timeline .end.interrupted")).to_have_count(1)
        expect(tab.locator(".timeline rect")).to_have_count(2)
        expect(tab.locator("#fleet .ends")).to_contain_text("preempted")
