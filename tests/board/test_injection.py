"""Whatever people, hosts and models write is text in the browser: no script of theirs runs, nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.board.rig import Desk, Open, board
from tests.board.visitor import DESK, Visitor
from tests.browser import needs_browser
from tpufleet.board.records import Points
from tpufleet.board.scene import Chip, Happening, HostChips, Piece, RunRow, Scene

pytestmark = needs_browser
PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><img src=//evil.example/x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "javascript:alert(1)",
    '" onfocus=alert(1) autofocus tabindex=0 x="',
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<template><script>alert(1)</script></template>",
    "</title></textarea></style><script>alert(1)</script>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<object data=//evil.example/x></object>",
    "<embed src=//evil.example/x>",
    "<form action=//evil.example><button autofocus>x</button></form>",
    "<style>@import '//evil.example/x.css';*{background:url(//evil.example/y)}</style>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u2028alert(1)\u2029//${alert(1)}`{{alert(1)}}",
    "<a href='data:text/html,<script>alert(1)</script>' ping=//evil.example>x</a>",
    '\ndata: {"parts":{"head":"<img src=x onerror=alert(1)>"}}\n\nevent: all\nid: 1\n',
    "__proto__",
)
SOON: Any = {"timeout": 15_000}


def hostile(payload: str, n: int) -> tuple[RunRow, Piece, Happening, Chip]:
    """The payload wherever somebody could put one."""
    now = datetime.now(UTC)
    metrics = (("test_loss", 2.0), (payload, 1.0))
    run = RunRow(
        payload, payload, payload, payload, payload, (payload,), 5, 9, 1.0, 2.0, metrics, ((payload, payload),)
    )
    chip = Chip(f"{payload}:{n}", "run", payload, payload, payload, now, 1, 2, 3.0)
    return run, Piece(payload, payload, n, payload, payload, payload), Happening(now, payload, payload, payload), chip


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    found = [hostile(payload, n) for n, payload in enumerate(PAYLOADS)]
    guests, pieces, happenings, chips = zip(*found, strict=True)
    own = [replace(run, id=f"own {run.id}", person=None, state="running") for run in guests]
    hosts = (HostChips(PAYLOADS[0], tuple(chips)), *(HostChips(text, problem=text) for text in PAYLOADS[1:]))
    scene = Scene(
        datetime.now(UTC),
        hosts,
        PAYLOADS,
        (*guests, *own, RunRow("plain", "gpt", "running")),
        pieces,
        happenings,
        " ".join(PAYLOADS),
    )
    points = [Points(run.id, [(1, {"test_loss": 2.0, run.id: 1.0})]) for run in (*guests, *own)]
    logs = {"plain": "\n".join(PAYLOADS).encode()}
    with board(tmp_path, Desk(seen=scene, points=points, logs=logs)) as opened:
        yield opened


def test_thirty_payloads_everywhere_are_text(visitor: Visitor) -> None:
    """The visitor complains of dialogs, errors and requests to anybody else, whenever there are any."""
    assert len(PAYLOADS) >= 30
    page = visitor.page("/", viewport=DESK)
    expect(page.locator("#line")).to_have_text("live", **SOON)
    expect(page.locator("#runs tr")).to_have_count(2 * len(PAYLOADS) + 1, **SOON)
    expect(page.locator(".tc-plot canvas").first).to_be_visible(**SOON)
    page.get_by_label("Steps", exact=True).select_option("All steps")
    texts = page.locator(".piece blockquote").all_text_contents()
    for payload in PAYLOADS:
        assert any(payload in text for text in texts), payload
    listed = page.locator(".tc-name").all_text_contents()
    assert set(PAYLOADS) <= set(listed), "__proto__ as well"
    page.get_by_label("Metric").select_option(PAYLOADS[2])
    plot = page.locator(".tc-plot .u-over")
    plot.hover()
    plot.click()
    page.get_by_role("link", name="plain", exact=True).click()
    expect(page.locator("#drawer .log")).to_contain_text("<script>alert(1)</script>", **SOON)
    page.keyboard.press("Escape")
    page.evaluate("""() => {
        for (const link of [...document.querySelectorAll("#runs tr th a[href^='#']")]) {
            link.click();
            document.getElementById("drawer").close();
        }
    }""")
    foreign = "main :is(script, iframe, object, embed, img, video, base, link, meta, form, style, template, math)"
    assert page.locator(foreign).count() == 0
    page.goto(page.url.partition("#")[0] + "wall")
    expect(page.locator("#stage blockquote")).to_be_visible(**SOON)
    shown = page.evaluate(
        """n => Array.from({length: n}, () => {
        document.getElementById("wall-next").click();
        return document.querySelectorAll("#stage :not(blockquote, .prompt)").length;
    })""",
        len(PAYLOADS),
    )
    assert shown == [0] * len(PAYLOADS)
