"""`--json` is a contract: docs/json.md names every field of every verb, and nothing else comes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project

DOC = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
RUN = {
    *("id", "job", "params", "state", "reason", "host", "chips", "commit", "dirty", "command", "attempts"),
    *("step", "metrics", "resumed_from", "submitted", "pid", "fleet"),
    *("slot", "priority", "group_limit", "began", "why"),
}


def documented(verb: str) -> set[str]:
    """The fields that docs/json.md names for `verb`: those outside brackets are the object's own."""
    row = next(line for line in DOC.splitlines() if line.startswith("|") and f"`{verb}" in line.split("|")[1])
    own = re.sub(r"\([^()]*(?:\([^()]*\)[^()]*)*\)", "", row.split("|", 2)[2])
    return set(re.findall(r"`(\w+)`", own)) - {"create"} | {"schema"}


CASES: list[tuple[str, list[str]]] = [
    ("init", ["--config", "other.yaml", "init"]),
    ("create", ["create"]),
    ("status", ["status"]),
    ("exec", ["exec", "--", "true"]),
    ("sync", ["sync"]),
    ("run", ["run", "job", "--follow"]),
    ("runs", ["runs"]),
    ("logs", ["logs", "job-seed0"]),
    ("stop", ["stop", "job"]),
    ("collect", ["collect"]),
    ("doctor", ["doctor"]),
    ("ssh-config", ["ssh-config"]),
    ("emulator start", ["emulator", "start"]),
]


def test_each_verb_answers_with_the_fields_that_are_documented(fleet: Project) -> None:
    for verb, words in CASES:
        answer = fleet.json(*words)
        assert answer["schema"] == 1
        assert set(answer) == documented(verb), verb


def test_a_run_looks_the_same_wherever_it_is_shown(fleet: Project) -> None:
    started: dict[str, Any] = fleet.json("run", "one", "--follow")
    assert set(started["runs"][0]) == RUN
    assert {frozenset(run) for run in fleet.json("runs")["runs"]} == {frozenset(RUN)}
    attempt = fleet.json("runs", "one")["runs"][0]["attempts"][0]
    assert set(attempt) == {"n", "host", "chips", "started", "ended", "exit_code", "reason"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", attempt["started"])


@pytest.mark.parametrize("words", [["create", "--dry-run"], ["delete", "--dry-run"]])
def test_a_plan_is_an_object_too(fleet: Project, words: list[str]) -> None:
    assert set(fleet.json(*words)) == {"schema", "fleet", "dry_run", "changed", "actions", "conflicts"}


def test_a_dry_run_touches_nothing(fleet: Project) -> None:
    fleet.run("run", "job", "--follow")
    before = fleet.json("status")["nodes"], fleet.json("runs")
    for words in (["run", "fails"], ["sync"], ["stop", "job"], ["delete"], ["create"]):
        fleet.json(*words, "--dry-run")
    after = fleet.json("status")["nodes"], fleet.json("runs")
    assert [strip(nodes) for nodes in before[0]] == [strip(nodes) for nodes in after[0]]
    assert before[1] == after[1]


def strip(node: dict[str, Any]) -> dict[str, Any]:
    """A node without what changes by itself."""
    hosts = [{key: host[key] for key in ("name", "state", "chips", "code")} for host in node["hosts"]]
    return {**node, "hosts": hosts}
