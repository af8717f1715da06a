"""The board in a real browser: on a phone, without scripts, by the host's own clicks, and from another site's page."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.board.rig import CODE, Desk, Open, board
from tests.board.visitor import DESK, PHONE, Visitor
from tests.browser import needs_browser
from tests.unit.hostile_people import OPENSSH_PRIVATE, ed25519
from tpufleet.board.scene import Chip, HostChips, Piece, Scene
from tpufleet.board.signup import State

pytestmark = needs_browser


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    chips = (Chip("tpu-0-w0:0", "in use", "ada"), Chip("tpu-0-w0:1", "free"))
    pieces = (Piece("ada", "ada-20261121-180000", 300, '"Elementary, my dear', " <b>Watson</b>\n   said he"),)
    desk = Desk(seen=Scene(datetime.now(UTC), (HostChips("tpu-0-w0", chips),), pieces=pieces))
    with board(tmp_path, desk, approve=True) as opened:
        yield opened


@pytest.mark.parametrize("scripts", [True, False])
def test_a_phone_signs_up_the_host_lets_in_and_the_card_comes(visitor: Visitor, opened: Open, scripts: bool) -> None:
    phone = visitor.page(f"/join?code={CODE}", java_script_enabled=scripts)
    phone.get_by_label("Name").fill("Ada")
    phone.get_by_label("Public key").fill(ed25519())
    phone.get_by_label(re.compile("My completions")).check()
    phone.get_by_role("button", name="Sign up").click()
    expect(phone.locator("#name-error")).to_contain_text("must be")
    assert phone.get_by_label("Public key").input_value() == ed25519()
    assert phone.get_by_label(re.compile("My completions")).is_checked()
    phone.get_by_label("Name").fill("ada")
    phone.get_by_role("button", name="Sign up").click()
    expect(phone.get_by_role("status")).to_contain_text("has seen you")
    assert "/card/" in phone.url

    host = visitor.page(opened.host, viewport=DESK, java_script_enabled=scripts)
    expect(host.get_by_role("button", name="Let in")).to_be_visible(timeout=10_000)
    assert host.url.endswith("/host"), "the secret doesn't stay in the address"
    host.get_by_role("button", name="Let in").click()
    expect(host.get_by_text("seat tpu-0-w0:0")).to_be_visible(timeout=10_000)
    expect(phone.get_by_role("heading", name="Log in")).to_be_visible(timeout=10_000)
    assert opened.desk.persons[0].share
    phone.reload()
    assert opened.desk.rounds == [["ada"]], "who looks again doesn't sign up again"


def test_a_private_key_is_answered_loudly_and_is_gone_from_the_page(visitor: Visitor) -> None:
    phone = visitor.page(f"/join?code={CODE}")
    phone.get_by_label("Name").fill("ada")
    phone.get_by_label("Public key").fill(OPENSSH_PRIVATE)
    phone.get_by_role("button", name="Sign up").click()
    expect(phone.locator("#key-error")).to_contain_text("THIS IS A PRIVATE KEY")
    assert phone.get_by_label("Public key").input_value() == ""
    assert "b3BlbnNz" not in phone.content()


@pytest.mark.parametrize("size", [PHONE, DESK, {"width": 320, "height": 600}], ids=["phone", "laptop", "small"])
def test_no_page_is_wider_than_the_screen(visitor: Visitor, opened: Open, size: dict[str, int]) -> None:
    token = opened.site.join("a" * 32, ed25519()).token
    opened.site.join("b" * 32, ed25519(2))
    host = visitor.page(opened.host, viewport=size)
    expect(host.get_by_text("waiting for your word")).to_be_visible(timeout=10_000)
    opened.as_host().post("/host", [("name", "a" * 32), ("word", "welcome")])
    card = visitor.page(f"/card/{token}", viewport=size)
    expect(card.get_by_role("heading", name="Log in")).to_be_visible(timeout=10_000)
    look = visitor.page("/", viewport=size)
    expect(look.get_by_text("person", exact=True)).to_be_visible(timeout=10_000)
    for page in (host, card, look, visitor.page("/join", viewport=size)):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.url


def test_the_board_changes_by_itself_and_completions_are_text(visitor: Visitor, opened: Open) -> None:
    look = visitor.page("/", viewport=DESK)
    expect(look.locator("blockquote")).to_contain_text("<b>Watson</b>", timeout=10_000)
    assert look.locator("blockquote b").count() == 0
    opened.desk.seen = Scene(datetime.now(UTC), (HostChips("tpu-7-w0", (Chip("tpu-7-w0:0", "free", "grace"),)),))
    expect(look.get_by_text("grace")).to_be_visible(timeout=10_000)
    expect(look.locator("blockquote")).to_have_count(0)


def test_chips_look_alike_whether_they_are_free_or_not(visitor: Visitor) -> None:
    look = visitor.page("/", viewport=PHONE)
    expect(look.locator("#line")).to_have_text("live", timeout=10_000)
    expect(look.locator(".chip")).to_have_count(2)
    taken, free = look.locator(".chip").all()
    offsets = [
        chip.evaluate("c => c.firstChild.getBoundingClientRect().x - c.getBoundingClientRect().x")
        for chip in (taken, free)
    ]
    assert offsets[0] == offsets[1]


class Evil(http.server.BaseHTTPRequestHandler):
    """Another site, whose page sends the host's form as soon as it is opened."""

    target = ""

    def do_GET(self) -> None:
        fields = "<input name=name value=ada><input name=word value=welcome>"
        script = "<script>document.forms[0].submit()</script>"
        body = f'<form method=post action="{self.target}/host">{fields}</form>{script}'.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
        pass


def test_another_sites_page_cant_use_the_hosts_cookie(browser: Browser, opened: Open) -> None:
    opened.site.join("ada", ed25519())
    Evil.target = f"http://127.0.0.1:{opened.site.port}"
    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Evil) as evil:
        thread = threading.Thread(target=evil.serve_forever)
        thread.start()
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"{Evil.target}{opened.host}")
            page.wait_for_url("**/host")
            page.goto(f"http://127.0.0.2:{evil.server_address[1]}/")
            page.wait_for_url(f"{Evil.target}/host")
            assert "another site" in page.content()
            assert opened.book.sign_ups()[0].state is State.WAITING
        finally:
            context.close()
            evil.shutdown()
            thread.join()
