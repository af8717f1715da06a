"""The plotting module in a real browser: what it shows, what it forgets, and that it is quick with a thousand runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.board.rig import board
from tests.board.visitor import DESK, Visitor
from tests.browser import needs_browser
from tpufleet.board.files import file
from tpufleet.report import marks

pytestmark = needs_browser
SOON: Any = {"timeout": 10_000}
FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def empty(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The board of an empty fleet, in which there is place for curves of our own."""
    with board(tmp_path_factory.mktemp("board")) as opened:
        visitor = Visitor(browser, opened)
        page = visitor.page("/", viewport=DESK)
        expect(page.locator("#line")).to_have_text("live", **SOON)
        yield page
        visitor.close()
        assert visitor.complaints == []


@pytest.fixture
def page(empty: Page) -> Page:
    empty.evaluate("""() => {
        document.querySelector(".of-curves").hidden = false;
        const place = document.getElementById("curves");
        place.replaceChildren();
        window.shown = tpufleetCurves(place, {main: "test_loss"});
    }""")
    return empty


def show(page: Page, call: str, *arguments: Any) -> None:
    page.evaluate(f"given => {{ shown.{call}(...given); return {FRAME}; }}", list(arguments))


RUNS = {
    "gpt-lr0.1": {"job": "gpt", "state": "running", "params": {"lr": "0.1"}},
    "gpt-lr0.2": {"job": "gpt", "state": "done", "params": {"lr": "0.2"}, "person": "ada"},
}
CURVES = {
    "gpt-lr0.1": {"train_loss": [[1, 2], [3, 2]], "test_loss": [[1, 2, 3], [3.5, 2.5, 1.5]]},
    "gpt-lr0.2": {"test_loss": [[1, 2, 3], [3.25, 2.25, 2.0]]},
}


def test_the_main_metric_is_shown_and_the_best_run_named(page: Page) -> None:
    show(page, "set", RUNS, CURVES)
    assert page.get_by_label("Metric").input_value() == "test_loss"
    expect(page.locator(".tc-said")).to_have_text("Best test_loss: 1.500, gpt-lr0.1.")
    expect(page.locator(".tc-plot")).to_have_attribute("aria-label", re.compile("test_loss over steps, 2 curves"))
    page.get_by_label("Metric").select_option("train_loss")
    expect(page.locator(".tc-plot")).to_have_attribute("aria-label", re.compile("train_loss over steps, 1 curve"))


def test_points_are_appended_and_a_run_that_begins_anew_forgets_the_old_ones(page: Page) -> None:
    show(page, "set", RUNS, CURVES)
    show(page, "add", {}, {"gpt-lr0.2": {"test_loss": [[4], [1.25]]}}, [])
    expect(page.locator(".tc-said")).to_contain_text("1.250, gpt-lr0.2")
    show(page, "add", {}, {"gpt-lr0.2": {"test_loss": [[1], [3.0]]}}, ["gpt-lr0.2"])
    expect(page.locator(".tc-said")).to_contain_text("1.500, gpt-lr0.1")
    assert page.evaluate("shown._curves.get('gpt-lr0.2').get('test_loss').x") == [1]


def test_what_an_untrained_model_loses_doesnt_press_the_rest_flat(page: Page) -> None:
    steps = [0, 100, 200, 300, 400, 500]
    show(page, "set", RUNS, {"gpt-lr0.1": {"test_loss": [steps, [5.7, 2.5, 2.3, 2.1, 2.0, 1.9]]}})
    assert page.evaluate("shown._picture._plot.scales.y.max") < 3
    show(page, "set", RUNS, {"gpt-lr0.1": {"test_loss": [steps, [5.7, 5.0, 4.1, 3.0, 2.0, 1.9]]}})
    assert page.evaluate("shown._picture._plot.scales.y.max") > 5.7


def test_a_run_that_left_is_forgotten_and_the_next_one_has_its_mark(page: Page) -> None:
    show(page, "set", RUNS, CURVES)
    show(page, "add", {}, {}, [], ["gpt-lr0.1", "never seen"])
    expect(page.locator(".tc-said")).to_have_text("Best test_loss: 2.000, gpt-lr0.2.")
    expect(page.locator(".tc-runs li")).to_have_count(1)
    expect(page.locator(".tc-side summary")).to_have_text("Runs (1)")
    show(page, "add", {"gpt-lr0.3": {"job": "gpt"}}, {"gpt-lr0.3": {"test_loss": [[1], [2.5]]}})
    assert page.evaluate("[...shown._runs].map(([run, known]) => [run, known.mark])") == [
        ["gpt-lr0.2", 1],
        ["gpt-lr0.3", 2],
    ]
    show(page, "set", {f"run-{number}": {} for number in range(16)}, {})
    show(page, "add", {}, {}, [], ["run-3"])
    show(page, "add", {"run-16": {}, "run-17": {}}, {})
    assert page.evaluate("['run-16', 'run-17'].map(run => shown._runs.get(run).mark)") == [3, None]


def test_curves_stay_small_and_keep_their_spikes(page: Page) -> None:
    steps = list(range(5000))
    values = [2.0] * 5000
    values[3333] = 50.0
    show(page, "set", {}, {"a": {"loss": [steps, values]}})
    show(page, "add", {}, {"a": {"loss": [[5000], [1.0]]}}, [])
    points, highest, last = page.evaluate(
        "(({x, y}) => [x.length, Math.max(...y), x.at(-1)])(shown._curves.get('a').get('loss'))"
    )
    assert points <= 2000
    assert (highest, last) == (50.0, 5000)


@pytest.mark.parametrize(("typed", "left"), [("lr=0.2", 1), ("ADA", 1), ("gpt done", 1), ("gpt", 2), ("nothing", 0)])
def test_runs_are_filtered_by_name_parameter_and_person(page: Page, typed: str, left: int) -> None:
    show(page, "set", RUNS, CURVES)
    page.locator(".tc-filter").fill(typed)
    expect(page.locator(".tc-runs li:not([hidden])")).to_have_count(left)
    if left:
        expect(page.locator(".tc-plot")).to_have_attribute("aria-label", re.compile(f"{left} curves"))
    else:
        expect(page.locator(".tc-none")).to_be_visible()


def test_who_was_hidden_stays_so_when_all_is_told_again(page: Page) -> None:
    show(page, "set", RUNS, CURVES)
    page.get_by_role("checkbox", name="gpt-lr0.1").uncheck()
    show(page, "set", RUNS, CURVES)
    expect(page.get_by_role("checkbox", name="gpt-lr0.1")).not_to_be_checked()
    expect(page.locator(".tc-plot")).to_have_attribute("aria-label", re.compile("1 curves"))
    page.get_by_role("checkbox", name="all").check()
    expect(page.get_by_role("checkbox", name="gpt-lr0.1")).to_be_checked()


def test_a_part_is_drawn_out_and_a_double_click_shows_all_again(page: Page) -> None:
    show(page, "set", RUNS, CURVES)
    box = page.locator(".u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + 100, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 150, steps=3)
    page.mouse.up()
    expect(page.locator(".tc-said")).to_contain_text("A part is shown.")
    page.mouse.dblclick(box["x"] + 100, box["y"] + 50)
    expect(page.locator(".tc-said")).not_to_contain_text("A part is shown.")


def test_the_nearest_run_is_named_and_picked(page: Page) -> None:
    page.evaluate("shown.onpick = run => { window.picked = run; }")
    show(page, "set", RUNS, CURVES)
    box = page.locator(".u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] - 2)
    expect(page.locator(".tc-hint")).to_be_hidden()
    step = page.evaluate(
        "(({x, y}) => [x, y])({x: shown._picture._plot.valToPos(3, 'x'), y: shown._picture._plot.valToPos(2, 'y')})"
    )
    page.mouse.move(box["x"] + step[0] - 3, box["y"] + step[1] + 2)
    expect(page.locator(".tc-hint")).to_have_text("gpt-lr0.2step 3 · 2.000")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => window.picked === 'gpt-lr0.2'")


@pytest.mark.parametrize(
    "values", [[5.0], [2.0, 2.0], [0.0, 0.0], [-1.0, 3.0], [1e-9, 1e9], [1e300, 1e-300], [0.0, 100.0]]
)
def test_any_values_are_drawn_on_either_axis(page: Page, values: list[float]) -> None:
    show(page, "set", {}, {"a": {"loss": [list(range(len(values))), values]}})
    for log in (True, False):
        page.get_by_label("log axis").set_checked(log)
        page.evaluate(FRAME)
        low, high = page.evaluate("(({min, max}) => [min, max])(shown._picture._plot.scales.y)")
        assert low < high
        assert not log or low > 0


def test_smoothing_is_the_mean_that_forgets_and_keeps_the_raw_curve(page: Page) -> None:
    smoothed = page.evaluate("tpufleetPlot.smooth({x: [0, 1, 2, 3], y: [1, 0, 0, 0]}, 0.5)")
    assert smoothed == pytest.approx([1, 1 / 3, 1 / 7, 1 / 15])
    assert page.evaluate("tpufleetPlot.smooth({x: [7], y: [3]}, 0.9)") == [3]


def test_the_marks_are_those_of_the_report() -> None:
    text, _ = file("/curves_numbers.js")
    found = re.findall(r'^ +"(M[^"]+z)",$', text, re.MULTILINE)
    assert found == list(marks._SHAPES)
    assert re.search(r"COLOURS = (\d+)", text)[1] == str(marks.COLOURS)  # type: ignore[index] - or the test fails


def test_a_thousand_runs_are_drawn_quickly(page: Page) -> None:
    """Twenty times what it takes, since a test's machine may have much else to do; the figures are in the report."""
    spent = page.evaluate(
        """async () => {
        const curves = {}, runs = {}, steps = Array.from({length: 60}, (_, i) => i);
        for (let run = 0; run < 1000; run++) {
            runs[`run${run}`] = {job: "gpt", state: "running", params: {}};
            curves[`run${run}`] = {test_loss: [steps, steps.map(i => 4 - i / 30 + run / 1000)]};
        }
        const timed = async act => {
            const began = performance.now();
            act();
            await FRAME;
            return performance.now() - began;
        };
        const set = await timed(() => shown.set(runs, curves)), news = {};
        for (const run in curves) news[run] = {test_loss: [[60], [2]]};
        return [set, await timed(() => shown.add({}, news, []))];
    }""".replace("FRAME", FRAME)
    )
    assert spent[0] < 6000
    assert spent[1] < 3000
