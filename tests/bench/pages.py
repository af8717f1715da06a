"""`python -m tests.bench.pages [RUNS]`: what the board costs a browser that shows 1,000 runs.

Told in processor time of the page's main thread (the browser's own count, `threadTicks`), of which scripts, layout and
style, which other work on the machine doesn't change much; beside it the pauses between frames as they were here, and
how busy the machine was.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page

from tests.bench.board import told as told_by_host
from tests.board.rig import Desk, Open, board
from tests.browser import browsing
from tpufleet.board.look import told
from tpufleet.board.records import Points
from tpufleet.board.scene import RunRow, Scene

ACTIVE, POINTS = 80, 60
SCROLL = """async () => {
  const table = document.getElementById("runs"), gaps = [];
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  let before = await frame();
  for (let y = 0; y < 30 * table.clientHeight; y += table.clientHeight / 2) {
    table.scrollTop = y;
    const now = await frame();
    gaps.push(now - before);
    before = now;
  }
  gaps.sort((a, b) => a - b);
  return [gaps.length, gaps[gaps.length >> 1], gaps[Math.floor(gaps.length * .95)]];
}"""
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(null))))"


def rows(runs: int, step: int, changed: int) -> tuple[RunRow, ...]:
    """That many runs, of which the first `changed` have come to `step`, the others to the first one."""
    found = (told(told_by_host(n, step if n < changed else 1, "running")) for n in range(runs))
    return tuple(run.row for run in found if run)


class Viewer:
    """A browser at an open board."""

    def __init__(self, open_: Open, tab: Page) -> None:
        self.open, self.tab = open_, tab
        self.tools: CDPSession = tab.context.new_cdp_session(tab)
        self.tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def enter(self) -> None:
        self.tab.goto(f"http://127.0.0.1:{self.open.site.port}/")
        self.tab.wait_for_function("document.querySelector('#curves canvas') !== null")
        self.tab.evaluate(SETTLED)

    def news(self, runs: int, step: int, changed: int) -> None:
        """The first `changed` runs have come to `step`; back once the page shows it."""
        scene = replace(self.open.desk.seen, runs=rows(runs, step, changed))
        self.open.desk.seen = scene
        said = f"[...document.querySelectorAll('#runs [data-label=Step]')].some((c) => c.dataset.value === '{step}')"
        self.tab.wait_for_function(said, polling=100)
        self.tab.evaluate(SETTLED)

    def cost(self, work: Callable[[], Any]) -> tuple[str, Any]:
        before = self._counts()
        result = work()
        after = self._counts()
        names = ("Task", "Script", "Layout", "RecalcStyle")
        spent = [1000 * (after[f"{name}Duration"] - before[f"{name}Duration"]) for name in names]
        return "CPU {:.0f} ms (scripts {:.0f}, layout {:.0f}, style {:.0f})".format(*spent), result

    def _counts(self) -> dict[str, float]:
        return {metric["name"]: metric["value"] for metric in self.tools.send("Performance.getMetrics")["metrics"]}


def main(runs: int = 1_000) -> None:
    desk = Desk(seen=Scene(at=datetime.now(UTC), runs=rows(runs, 1, 0)))
    curve = [(step, {"test_loss": 3 / step, "train_loss": 3.1 / step}) for step in range(1, POINTS + 1)]
    desk.points = [Points(row.id, curve) for row in desk.seen.runs]
    with tempfile.TemporaryDirectory() as place, board(Path(place), desk) as open_, browsing() as browser:
        tab = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)  # by which it is waited for
        tab.goto(f"http://127.0.0.1:{open_.site.port}{open_.host}")
        viewer = Viewer(open_, tab)
        print(f"{runs:,} runs, load {os.getloadavg()[0]:.0f}")
        print(f"  open: {viewer.cost(viewer.enter)[0]}")
        spent, (steps, median, most) = viewer.cost(lambda: tab.evaluate(SCROLL))
        print(f"  scroll, {steps} steps: {spent}; frames median {median:.0f} ms, 95 % {most:.0f} ms")
        for changed in (ACTIVE, runs):
            costs = [viewer.cost(partial(viewer.news, runs, changed + at, changed))[0] for at in (2, 3, 4)]
            print(f"  news of {changed:,}:", *costs, sep="\n    ")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
