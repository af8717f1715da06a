"""What the report of a big sweep costs: `python -m tests.bench.report [RUNS] [POINTS]`.

Writes made-up artifacts, the report on them, and opens that in headless Chromium: when it is painted and at rest, how
many elements it has, and what scrolling from top to bottom in steps of half a screen costs the page's main thread. That
is told in CPU time (of the browser's own count, `threadTicks`), which other work on the machine doesn't change much; a
step that takes less than 16 ms of it misses no frame where a processor is free. Beside it stand the pauses between
frames as they were here.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.browser import browsing
from tests.unit.report_data import write_home
from tpufleet import report

STEP = """async (y) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const before = await frame();
  scrollTo(0, y);
  return await frame() - before;
}"""
LOADED = """() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return [paint ? paint.startTime : NaN, document.querySelectorAll("*").length];
}"""
READY = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"


def main(runs: int = 1_000, points: int = 1_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = write_home(Path(folder) / "sherlock", runs, points)
        before, cpu = time.monotonic(), time.process_time()
        page = report.write(home)
        print(f"{runs:,} runs x {points:,} points: written in {time.monotonic() - before:.1f} s", end=" ")
        print(f"({time.process_time() - cpu:.1f} s of CPU)")
        for file in sorted(page.parent.iterdir()):
            print(f"  {file.name}: {file.stat().st_size / 1e6:.2f} MB")
        for name, size in {"laptop": (1280, 800), "phone": (390, 844)}.items():
            print(f"  {name}: {measured(page, *size)}")


def measured(page: Path, width: int, height: int) -> str:
    with browsing() as browser:
        tab = browser.new_page(viewport={"width": width, "height": height})
        tools = tab.context.new_cdp_session(tab)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def cpu_ms() -> float:
            metrics = tools.send("Performance.getMetrics")["metrics"]
            return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

        tab.goto(page.as_uri())
        drawn = tab.evaluate(READY)
        painted, elements = tab.evaluate(LOADED)
        opening = cpu_ms()
        frames, costs = list[float](), list[float]()
        for y in range(0, tab.evaluate("document.documentElement.scrollHeight"), height // 2):
            before = cpu_ms()
            frames.append(tab.evaluate(STEP, y))
            costs.append(cpu_ms() - before)
        return (
            f"painted after {painted:.0f} ms, at rest after {drawn:.0f} ms ({opening:.0f} ms of CPU), {elements:,} "
            f"elements; {len(costs)} steps of scrolling: CPU {_worst(costs)}; frames {_worst(frames)}"
        )


def _worst(values: Sequence[float]) -> str:
    ordered = sorted(values)
    median, most = ordered[len(ordered) // 2], ordered[-1]
    return f"median {median:.0f} ms, 95 % {ordered[int(0.95 * len(ordered))]:.0f} ms, most {most:.0f} ms"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
