"""The page as a reader, a screen reader and an attacker meet it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.unit.report_data import PAYLOADS, PROMPT, run_record, write_home, write_hostile_home, write_listing
from tpufleet import report
from tpufleet.errors import StateError
from tpufleet.report.html import DOWNLOADS
from tpufleet.report.page import _FIRST, _SCRIPTS  # pyright: ignore[reportPrivateUsage] - what may run, and nothing else
from tpufleet.report.text import clean

OWN = resources.files("tpufleet.report")
VOID = {"meta", "br", "hr", "col"}
HARMLESS = set(
    re.findall(
        r"\w+",
        """html head meta title style body header main section footer aside article nav figure figcaption div p a span
        h1 h2 h3 h4 ul li table thead tbody tr th td details summary dl dt dd b strong small code pre blockquote
        svg g path line text tspan rect circle noscript script""",
    )
)


class Page(HTMLParser):
    """A parsed page: elements in order as (tag, attributes), the texts, and whether every tag was closed."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.declarations: list[str] = []
        self.open: list[str] = []
        self.raw: list[tuple[dict[str, str], str]] = []  # scripts and styles with what is in them
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw.append((self.elements[-1][1] | {"tag": self.open[-1]}, data))
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.declarations.append(data)

    def unknown_decl(self, data: str) -> None:
        self.declarations.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str, class_: str | None = None) -> list[dict[str, str]]:
        return [a for t, a in self.elements if t == tag and (class_ is None or class_ in a.get("class", "").split())]


def written(home: Path) -> Page:
    return Page(report.write(home).read_text(encoding="utf-8"))


def table_rows(markup: str) -> list[str]:
    table = re.search(r'<table class="runs sortable">.*?</table>', markup, re.DOTALL)
    assert table
    return re.findall(r"<tr.*?</tr>", table[0].split("</thead>")[1], re.DOTALL)


def test_eight_runs_are_eight_rows_eight_curves_and_eight_completions(tmp_path: Path) -> None:
    path = report.write(write_home(tmp_path / "sherlock"))
    markup = path.read_text(encoding="utf-8")
    page = Page(markup)
    large = re.search(r'<div class="chart labelled">.*?</svg></div>', markup, re.DOTALL)
    assert path == tmp_path / "sherlock/report/index.html"
    assert large and large[0].count('class="curve"') == 8
    assert len(table_rows(markup)) == 8
    assert len(page.all("article", "card")) == 8
    assert len(page.all("details", "run")) == 8
    assert page.open == []


def test_the_head_says_in_words_what_came_of_it(tmp_path: Path) -> None:
    page = written(write_home(tmp_path / "home"))
    assert "sherlock" in page.text
    assert "8 runs on 8 chips of 2 nodes: 8 done." in page.text
    assert re.search(r"Best test_loss 1\.\d{3} at step\s2,000: gpt-lr0\.003-seed0\.", page.text)
    assert "2026-11-21 04:08 to 04:12 UTC" in page.text
    assert "Worth knowing" not in page.text


def test_the_best_run_comes_first_and_is_marked(tmp_path: Path) -> None:
    markup = report.write(write_home(tmp_path / "home")).read_text(encoding="utf-8")
    rows = table_rows(markup)
    assert "gpt-lr0.003-seed0" in rows[0] and 'class="best"' in rows[0]
    assert all('class="best"' not in row for row in rows[1:])


def test_the_prompt_stands_apart_from_what_the_model_wrote(tmp_path: Path) -> None:
    markup = report.write(write_home(tmp_path / "home")).read_text(encoding="utf-8")
    prompt = PROMPT.replace('"', "&quot;") if "&quot;Elementary" in markup else PROMPT
    assert f'<blockquote><span class="prompt">{prompt}</span> through me is made which into\n     devening' in markup


def test_the_same_input_gives_the_same_page(tmp_path: Path) -> None:
    first = report.write(write_home(tmp_path / "one")).read_bytes()
    assert report.write(tmp_path / "one").read_bytes() == first
    assert report.write(write_home(tmp_path / "two")).read_bytes() == first


def test_the_page_needs_no_network_and_runs_only_what_its_policy_names(tmp_path: Path) -> None:
    page = written(write_home(tmp_path / "home"))
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    hashes = {
        tag: set(re.findall(rf"{tag}-src ((?:'sha256-[^']+' ?)+)", policy)[0].split()) for tag in ("script", "style")
    }
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "http" not in policy
    for tag in ("script", "style"):
        texts = [text for attributes, text in page.raw if attributes["tag"] == tag and "type" not in attributes]
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        assert {f"'sha256-{digest}'" for digest in digests} == hashes[tag]
    assert not any("url(" in text for attributes, text in page.raw if attributes["tag"] == "style")
    assert_inert(page)


def test_headings_are_in_order_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    page = written(write_home(tmp_path / "home"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    hrefs = {a["href"] for a in page.all("a")}
    assert {href.removeprefix("#") for href in hrefs if href.startswith("#")} <= set(ids)
    beside = {href for href in hrefs if not href.startswith("#")}
    assert beside == set(DOWNLOADS)
    assert beside <= set(os.listdir(tmp_path / "home/report"))  # noqa: PTH208 - names are all that is asked


def assert_inert(page: Page) -> None:
    """Nothing in the page can run, load or lead anywhere."""
    assert {tag for tag, _ in page.elements} <= HARMLESS
    assert page.declarations == []
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("style", "src", "xlink:href"), (tag, name)
            if name == "href":
                assert re.fullmatch(r"#[a-z0-9._=+-]+", value) or value in DOWNLOADS
    own = [Path(str(OWN / name)).read_text(encoding="utf-8") for name in _SCRIPTS]
    assert [text for attributes, text in page.raw if attributes["tag"] == "script" and "type" not in attributes] == [
        _FIRST,
        *own,
    ]
    (told,) = [text for attributes, text in page.raw if attributes.get("type") == "application/json"]
    assert not set("<>&") & set(told)
    json.loads(told)
    assert {a["http-equiv"] for a in page.all("meta") if "http-equiv" in a} == {"Content-Security-Policy"}


def test_thirty_injections_in_every_field_are_shown_as_text(tmp_path: Path) -> None:
    home = write_hostile_home(tmp_path / "home")
    page = written(home)
    assert len(PAYLOADS) == 30
    assert_inert(page)
    assert page.open == []
    for payload in PAYLOADS:
        assert page.text.count(clean(payload)) >= 5, payload
    for code in (0x1B, 0x00, 0x9B, 0x202E, 0x2066, 0x07):
        assert chr(code) not in page.text


def test_a_run_whose_name_is_not_safe_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", runs=2)
    names = ["../../etc/passwd", "-rf", "A", "a/b", "x" * 129, "", "a\n", ".hidden", None, 7]
    good: list[dict[str, Any]] = [run_record(0, {"lr": "0.001", "seed": "0"})]
    write_listing(home, good + [{**good[0], "id": name} for name in names])
    page = written(home)
    assert f"{len(names)} runs left out: a run's name must be a safe file name." in page.text
    assert len(page.all("details", "run")) == 2
    assert "passwd" not in page.text


def test_a_fleet_without_runs_has_a_page_too(tmp_path: Path) -> None:
    write_listing(tmp_path, [])
    assert "No runs came home." in written(tmp_path).text


def test_more_runs_than_there_are_marks_leave_the_rest_grey(tmp_path: Path) -> None:
    page = written(write_home(tmp_path / "home", runs=20, points=3))
    assert "The best 16 are marked, the other 4 are grey." in page.text
    labelled = re.search(
        r'<div class="chart labelled">.*?</svg></div>', (tmp_path / "home/report/index.html").read_text()
    )
    assert labelled and labelled[0].count('class="run grey"') == 4


def test_an_old_page_is_replaced_and_nothing_else_is_left_beside_it(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", runs=1)
    (home / "report").mkdir()
    (home / "report/index.html").write_text("old")
    path = report.write(home)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(os.listdir(path.parent)) == sorted(["index.html", *DOWNLOADS])  # noqa: PTH208 - hidden files count


def test_a_home_that_is_not_there_is_an_error_with_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        report.write(tmp_path / "nowhere")
    assert caught.value.hint and "tpufleet collect" in caught.value.hint


def test_a_page_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", runs=1)
    (home / "report").write_text("a file is in the way")
    with pytest.raises(StateError):
        report.write(home)
    assert (home / "report").read_text() == "a file is in the way"
