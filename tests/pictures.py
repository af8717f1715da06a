"""Pictures of an open board, or of a report, for README and docs: `python -m tests.pictures OUT [URL]`.

URL is the link that `tpufleet board` prints, or a file of a report (file://…); without one the pictures are of an
evening that is made up.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Literal
from urllib.parse import urljoin

from playwright.sync_api import Page

from tests.board.evening import evening_desk
from tests.board.rig import board
from tests.browser import browsing

SCREENS = {"phone": (390, 844), "laptop": (1280, 800), "projector": (1920, 1080)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main(out: Path, url: str | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with _address(url) as address, browsing() as browser:
        for name, (width, height) in SCREENS.items():
            for scheme in SCHEMES:
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                _take(context.new_page(), address, out, f"{name}-{scheme}")
                context.close()


@contextlib.contextmanager
def _address(url: str | None) -> Generator[str]:
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory() as directory, board(Path(directory), evening_desk()) as opened:
        yield f"http://127.0.0.1:{opened.site.port}/"


def _take(page: Page, url: str, out: Path, name: str) -> None:
    page.goto(url)
    if url.startswith("file:"):
        page.screenshot(path=out / f"report-{name}.png")
        _take_whole(page, out / f"report-{name}-whole.png")
    else:
        _take_board(page, out, name)


def _take_whole(page: Page, path: Path) -> None:
    """The page from top to bottom, in a window that is as tall: what lies outside of it wouldn't be drawn."""
    size = page.viewport_size
    assert size
    page.set_viewport_size({**size, "height": page.evaluate("document.documentElement.scrollHeight")})
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(path=path, full_page=True)
    page.set_viewport_size(size)


def _take_board(page: Page, out: Path, name: str) -> None:
    page.locator("#line.on").wait_for()
    page.locator(".tc-plot canvas").first.wait_for()
    page.screenshot(path=out / f"board-{name}.png")
    _take_whole(page, out / f"board-{name}-whole.png")
    page.locator("#runs th a").first.click()
    page.locator("#drawer .log:not(:empty)").wait_for()
    page.screenshot(path=out / f"drawer-{name}.png")
    page.keyboard.press("Escape")
    page.goto(urljoin(page.url, "/wall"))
    page.locator("#stage blockquote").wait_for()
    page.evaluate(
        "Promise.all(document.getAnimations().filter(a => a.animationName === 'arrive').map(a => a.finished))"
    )
    page.screenshot(path=out / f"wall-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
