"""Somebody who opens the board's pages in a real browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page

from tests.board.rig import Open

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 800}
PROJECTOR = {"width": 1920, "height": 1080}


class Visitor:
    """Opens pages, and keeps what the browser complains about."""

    def __init__(self, browser: Browser, opened: Open) -> None:
        self._browser = browser
        self._base = f"http://127.0.0.1:{opened.site.port}"
        self._contexts: list[Any] = []
        self.complaints: list[str] = []

    def page(self, path: str, **options: Any) -> Page:
        context = self._browser.new_context(**{"viewport": PHONE, **options})
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self._asked(request.url))
        page.on("dialog", lambda dialog: self._heard(f"a dialog: {dialog.message}"))
        page.on("console", lambda message: self._heard(message.text))
        page.on("pageerror", lambda error: self._heard(str(error)))
        page.goto(self._base + path)
        return page

    def _asked(self, url: str) -> None:
        if not url.startswith(self._base + "/"):
            self._heard(f"asked for {url}")

    def _heard(self, text: str) -> None:
        if "responded with a status of 422" not in text:
            self.complaints.append(text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()
