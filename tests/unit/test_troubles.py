"""The messages of TPU programs and their chapters in docs/troubleshooting.md are one list, told twice."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tpufleet.troubles import MOST_TEXT, TROUBLES, find

PAGE = Path(__file__).parents[2] / "docs/troubleshooting.md"
CHAPTERS = dict(re.findall(r"^### (.+?)\n\n((?:    .+\n)+)", PAGE.read_text(), re.MULTILINE))


def anchor(heading: str) -> str:
    """The anchor that Markdown's renderers give a heading."""
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


ANCHORS = {anchor(heading): message for heading, message in CHAPTERS.items()}


def test_every_trouble_has_its_chapter_and_every_chapter_its_trouble() -> None:
    assert sorted(ANCHORS) == sorted(trouble.anchor for trouble in TROUBLES)


@pytest.mark.parametrize("name", sorted(ANCHORS))
def test_the_message_that_a_chapter_shows_is_found_in_a_log_and_leads_there(name: str) -> None:
    log = f"step 100\n{ANCHORS[name]}Traceback (most recent call last):\n"
    assert find(log)[0].anchor == name
    for line in ANCHORS[name].splitlines():
        assert name in [trouble.anchor for trouble in find(line)]


def test_a_log_without_trouble_has_none() -> None:
    assert find('step 100/2000 train 2.9 test 2.7 "Elementary, my dear Watson, the TPU is a marvel') == ()


def test_the_particular_comes_before_the_general() -> None:
    told = find("TPU initialization failed: open(/dev/vfio/0): Device or resource busy")
    assert [trouble.anchor for trouble in told] == ["device-or-resource-busy", "backend-tpu"]


@pytest.mark.parametrize(
    "bait", ["_XLAC", "/dev/accel0 ", "Could not open ", "RESOURCE_EXHAUSTED: ", "/tpu_logs ", "libtpu "]
)
def test_a_log_that_is_made_to_be_slow_to_search_is_searched_at_once(bait: str) -> None:
    began = time.process_time()
    assert find(bait * (MOST_TEXT // len(bait))) == ()
    assert time.process_time() - began < 5  # without a bound on how far a pattern looks, minutes
