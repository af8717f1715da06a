"""An open board, and a browser for those tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.board.rig import Open, board
from tests.board.visitor import Visitor
from tests.browser import browsing


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def open_board(tmp_path: Path) -> Iterator[Open]:
    with board(tmp_path) as opened:
        yield opened


@pytest.fixture
def opened(open_board: Open) -> Open:
    """What the visitor visits; a module may have a board of its own."""
    return open_board


@pytest.fixture
def visitor(browser: Browser, opened: Open) -> Iterator[Visitor]:
    visitor = Visitor(browser, opened)
    yield visitor
    visitor.close()
    assert visitor.complaints == [], "the browser has nothing to complain of, the policy of the pages included"
