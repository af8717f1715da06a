"""One person's evening, from the sign-up page to the door: a browser, OpenSSH's own client, and what the pages say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser import browsing, needs_browser
from tests.evening import KINDS, Evening
from tests.project import until

PHONE = {"width": 390, "height": 844}
pytestmark = needs_browser


@pytest.fixture(params=KINDS)
def evening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Evening]:
    evening = Evening.make(tmp_path / "project", request.param)
    yield evening
    evening.project.stop()


@pytest.fixture
def page() -> Iterator[Page]:
    with browsing() as browser:
        yield browser.new_page(viewport=PHONE)


class Laptop:
    """A person's own computer: a home of its own, and the commands that a page told them to type."""

    def __init__(self, home: Path, evening: Evening) -> None:
        self.home = home
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        self.known = home / ".ssh/known_hosts"
        self.evening = evening

    def type(self, line: str, *answers: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A line in this computer's shell; what ssh asks is answered with `answers` in turn. Only the settings that
        ssh looks for in the machine's account, not in HOME, are pointed here."""
        ask = self.home / "ask"
        (self.home / "answers").write_text("\n".join([*answers, "no"]) + "\n")
        ask.write_text('#!/bin/sh\ncd "$HOME" && head -n 1 answers && sed -i 1d answers\n')
        ask.chmod(0o755)
        line = re.sub(r"^ssh ", f"ssh -F /dev/null -o UserKnownHostsFile={self.known} ", line)
        env = {**self.env, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        return subprocess.run(
            ["bash", "-c", line], env=env, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )


def commands(page: Page) -> list[str]:
    """All that the page gives to copy."""
    return [text.strip() for text in page.locator("pre").all_inner_texts()]


def test_from_the_sign_up_page_to_the_door(evening: Evening, page: Page, tmp_path: Path) -> None:
    project = evening.project
    laptop = Laptop(tmp_path / "laptop", evening)
    with project.popen("--json", "board", "--sign-up", "--listen", "127.0.0.1:0") as board:
        try:
            assert board.stdout
            links = json.loads(board.stdout.readline())

            # the page says how to make a key, and takes it
            page.goto(links["sign_up"])
            make, show = next(text for text in commands(page) if "~/.ssh/" in text).splitlines()
            assert laptop.type(f"{make} -q -N ''").returncode == 0
            page.fill("[name=name]", "ada")
            page.fill("[name=key]", laptop.type(show).stdout)
            page.check("[name=share]")
            page.click("button[type=submit]")
            page.wait_for_selector("text=ada@", timeout=60_000)

            # the card's own line leads in, and the card's fingerprint is what ssh wants to hear
            given = commands(page)
            login = next(text for text in given if text.startswith("ssh ") and "~/.ssh/" in text)
            fingerprint = next(text for text in given if text.startswith("SHA256:"))
            refused = laptop.type(f"{login} true", "SHA256:another")
            assert (refused.returncode, refused.stdout) == (255, ""), refused
            assert laptop.type(f"{login} id -un", fingerprint).stdout == "ada\n"

            # and its next command trains on the chip
            train = next(text for text in given if "on-chip -- " in text)
            trained = laptop.type(login, stdin=f"{train}\nexit\n")
            assert "chip 0 TPU" in trained.stdout, trained
            page.goto(links["board"])
            page.wait_for_selector("text=my dear <b>Watson</b>", timeout=60_000)
            assert "ada" in page.inner_text("main")

            assert project.run("people", "revoke", "ada").exit_code == 0
            assert laptop.type(f"{login} true").returncode == 255
        finally:
            board.send_signal(signal.SIGINT)
            board.communicate(timeout=30)
    assert until(lambda: board.returncode is not None, "the board to close")
