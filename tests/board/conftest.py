"""A browser for those tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser import browsing


@pytest.fixture
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser
