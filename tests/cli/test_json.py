"""`--json` is a contract: tpufleet/cli/answers has every field of every verb, and nothing else comes.

That holds for every answer that any test gets back (tests/project.py); here each verb is asked once.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.answers import check_answer, check_answers, verb_of
from tests.json_doc import DOC, written
from tests.project import Project
from tpufleet.cli.answers import ANSWERS
from tpufleet.cli.answers.runs import Run


def documented(verb: str) -> set[str]:
    """The fields that an answer of `verb` always has."""
    fields = ANSWERS[verb][0].model_fields
    return {field.alias or name for name, field in fields.items() if field.is_required()}


CASES: list[tuple[str, list[str]]] = [
    ("init", ["--config", "other.yaml", "init"]),
    ("create", ["create"]),
    ("status", ["status"]),
    ("top", ["top"]),
    ("exec", ["exec", "--", "true"]),
    ("sync", ["sync"]),
    ("run", ["run", "job", "--follow"]),
    ("runs", ["runs"]),
    ("logs", ["logs", "job-seed0"]),
    ("stop", ["stop", "job"]),
    ("collect", ["collect"]),
    ("doctor", ["doctor"]),
    ("ssh-config", ["ssh-config"]),
]


def test_the_document_says_what_the_types_say() -> None:
    assert DOC.read_text() == written(DOC.read_text()), "python -m tests.json_doc"


def test_each_verb_answers_with_the_fields_that_are_documented(fleet: Project) -> None:
    for verb, words in CASES:
        answer = fleet.json(*words)
        assert answer["schema"] == 1
        assert set(answer) == documented(verb), verb
    assert fleet.json("emulator", "start")["running"]
    logs = fleet.json("logs", "job")["logs"]
    assert [log["run"] for log in logs] == [f"job-seed{seed}" for seed in range(4)]
    assert all("done" in log["log"] for log in logs)


def test_a_run_looks_the_same_wherever_it_is_shown(fleet: Project) -> None:
    run = {name for name, field in Run.model_fields.items() if field.is_required()} | {"versions"}
    started: dict[str, Any] = fleet.json("run", "one", "--follow")
    assert set(started["runs"][0]) == run
    assert {frozenset(run) for run in fleet.json("runs")["runs"]} == {frozenset(run)}
    attempt = fleet.json("runs", "one")["runs"][0]["attempts"][0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", attempt["started"])


def test_an_answer_that_is_not_as_documented_is_found() -> None:
    good = {"schema": 1, "run": "gpt", "log": "x"}
    check_answers(["--json", "logs", "gpt"], json.dumps(good))
    less = {name: value for name, value in good.items() if name != "log"}
    for bad in (good | {"more": 1}, less, good | {"log": None}, good | {"schema": 2}):
        with pytest.raises(AssertionError, match="otherwise than documented"):
            check_answer(["--json", "logs", "gpt"], json.dumps(bad))
    with pytest.raises(AssertionError):  # an error comes last
        check_answers(["--json", "runs"], '{"schema": 1, "error": {}}\n{"schema": 1, "fleet": "x", "runs": []}')


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (["--json", "--config", "x.yaml", "emulator", "fault", "list"], "emulator fault list"),
        (["emulator", "fault", "preempt", "tpu-0", "--json"], "emulator fault"),
        (["people", "list", "--json"], "people list"),
        (["run", "--json", "gpt"], "run"),
    ],
)
def test_the_verb_of_a_command_line_is_found(words: list[str], verb: str) -> None:
    assert verb_of(words) == verb


@pytest.mark.parametrize("words", [["create", "--dry-run"], ["delete", "--dry-run"]])
def test_a_plan_is_an_object_too(fleet: Project, words: list[str]) -> None:
    assert set(fleet.json(*words)) == {"schema", "fleet", "dry_run", "changed", "actions", "conflicts"}


def test_a_dry_run_touches_nothing(fleet: Project) -> None:
    fleet.run("run", "job", "--follow")
    before = fleet.json("status")["nodes"], fleet.json("runs")
    for words in (["run", "fails"], ["sync"], ["stop", "job"], ["delete"], ["create"], ["collect"]):
        fleet.json(*words, "--dry-run")
    after = fleet.json("status")["nodes"], fleet.json("runs")
    assert [strip(nodes) for nodes in before[0]] == [strip(nodes) for nodes in after[0]]
    assert before[1] == after[1]


def strip(node: dict[str, Any]) -> dict[str, Any]:
    """A node without what changes by itself."""
    hosts = [{key: host[key] for key in ("name", "state", "chips", "code")} for host in node["hosts"]]
    return {**node, "hosts": hosts}
