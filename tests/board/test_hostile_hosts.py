"""From a hostile host's answer to what viewers are sent: whatever is in it is text there, or isn't there at all."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.board.test_fleetlook import Rounds, attempt, file, state
from tests.board.test_injection import PAYLOADS
from tpufleet.board.board_page import board_page
from tpufleet.board.feed import Feed

ACTING = (
    "\x1b[2J\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x9b31m\x90q\x9c",
    "abc\u202edlrow\u2066x\u200f",
    "\ud800\0\x7f\r\n\r\n",
)
BAD_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
TAGS = {"a", "article", "blockquote", "button", "code", "dd", "div", "dl", "dt", "h3", "li", "meter", "p", "progress"}
TAGS |= {"small", "span", "strong", "td", "th", "time", "tr", "ul"}


class Markup(HTMLParser):
    """What markup consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment


def answer(text: str) -> dict[str, Any]:
    """A host's, with `text` wherever there can be any."""
    completion = json.dumps({"step": 1, "prompt": f"prompt {text}", "text": f"text {text}"}) + "\n"
    metrics = json.dumps({"step": 1, text: 1.5, "loss": 2.5}) + "\n"
    ours = state(
        job=text,
        why=text,
        reason=text,
        host=text,
        chips=[text],
        params={text: text},
        metrics={text: 1.5, "loss": 2.5},
        attempts=[attempt(1, "2026-11-21T18:10:00Z", reason=text), attempt(2, chips=[text])],
        resumed_from=text,
    )
    theirs = {
        "person": "ada",
        "run": "ada-1",
        "started": text,
        "metrics": {text: 1.5},
        "curves": {text: [[1], [1.5]]},
        "completions": [{"step": 1, "prompt": text, "text": f"hers {text}"}],
    }
    return {
        "runs": [ours, state(text)],
        "chips": [{"index": n, "state": "run", word: text} for n, word in enumerate(("run", "person", "user"))],
        "results": {
            "gpt": {"metrics": file(metrics, text, anew=True), "completions": file(completion, text)},
            text: {"metrics": file(metrics, text)},
        },
        "people": {"runs": [theirs, theirs | {"person": text}, theirs | {"run": text}]},
    }


@pytest.mark.parametrize("text", [*PAYLOADS, *ACTING])
def test_what_a_host_says_is_text(text: str) -> None:
    rounds, feed = Rounds(), Feed()
    feed.take(rounds.look(("ada",), tpu_0=answer(text), tpu_1=f"no answer {text}"))
    sent = feed.whole()[1].decode()
    assert sent.count("\n\n") == 1, "one event, whatever is in it"
    content = json.loads(sent.partition("data: ")[2])
    drawn = [Markup(markup) for markup in content["parts"].values()]
    assert any("hers" in markup.text for markup in drawn)
    assert any("no answer" in markup.text for markup in drawn)
    plain = re.sub(r"\s+", " ", text.strip()) if text in PAYLOADS else ""
    assert any(plain in re.sub(r"\s+", " ", markup.text) for markup in drawn), "it is shown as it is"
    for markup in drawn:
        assert markup.tags <= TAGS, markup.tags - TAGS
        for name, value in markup.attributes:
            assert not name.startswith("on"), name
            assert name not in ("style", "src", "srcdoc", "action"), name
            assert name != "href" or value.startswith(("#", "/log/")), value
    assert not BAD_TEXT.search(json.dumps(content, ensure_ascii=False))
    assert content["curves"].keys() == {"gpt", "ada-1"} <= {*content["runs"]}
    page = Markup(board_page("sherlock", feed.scene).removeprefix("<!doctype html>"))
    assert not any(name.startswith("on") for name, _ in page.attributes)
