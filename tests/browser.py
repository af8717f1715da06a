"""A browser for those tests that need one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.project import missing

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason=str(missing("chromium")))


@contextlib.contextmanager
def browsing() -> Generator[Browser]:
    """Headless Chromium as this machine has it, for one test: while it is open, its event loop runs in this thread,
    and whatever else wants one there fails."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
