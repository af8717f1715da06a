"""An open board, and a browser for those tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.board.rig import Open, board
from tests.browser import browsing


@pytest.fixture
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def open_board(tmp_path: Path) -> Iterator[Open]:
    with board(tmp_path) as opened:
        yield opened
