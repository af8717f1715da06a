"""docs/fleet-file.md is the fleet file: every key is in it, none that isn't one, and its examples load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpufleet.config.load import load
from tpufleet.config.words import SECTIONS, Section

PAGE = (Path(__file__).parents[2] / "docs" / "fleet-file.md").read_text()
HEADINGS = {
    (): "## The whole",
    ("cloud",): "## `cloud`\n",
    ("cloud", "emulator"): "### `cloud.emulator`",
    ("cloud", "hosts", "*"): "### `cloud.hosts`",
    ("nodes", "*"): "## `nodes`",
    ("ssh",): "## `ssh`",
    ("code",): "## `code`",
    ("jobs", "*"): "## `jobs`",
    ("people", "*"): "## `people`",
}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: ".".join(section.path) or "whole")
def test_every_key_has_its_row_and_every_row_is_a_key(section: Section) -> None:
    _, _, text = PAGE.partition(HEADINGS[section.path])
    text = re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, flags=re.MULTILINE)
    assert {row[0] for row in rows} == set(section.keys)
    assert len(rows) == len(section.keys)


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL))
def test_its_examples_load(tmp_path: Path, example: str) -> None:
    (tmp_path / "tpufleet.yaml").write_text(example)
    assert load(tmp_path / "tpufleet.yaml").fleet
