"""The verb `shared`: what people who agreed have trained; nothing else on the host is to be had by it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.conftest import library, make_host
from tests.host.harness import Host
from tpufleet.host import shared as verb
from tpufleet.host.places import Places

__all__ = ["library", "make_host"]  # fixtures

RUN = "ada-20261121-180000"


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Iterator[Host]:
    """A host on which ada agreed and bob didn't."""
    host = make_host()
    people = [{"name": name, "uid": 20000 + n, "share": name == "ada"} for n, name in enumerate(("ada", "bob"))]
    host.base.mkdir(parents=True)
    (host.base / "people.json").write_text(json.dumps({"fleet": "sherlock", "host": "tpu-0-w0", "people": people}))
    train(host, "ada", RUN)
    train(host, "bob", "bob-20261121-180000")
    yield host


def train(host: Host, person: str, run: str, **told: Any) -> Path:
    """What a training of that person has left."""
    at = host.base / "people" / person / run
    at.mkdir(parents=True)
    (at / "run.json").write_text(json.dumps({"id": run, "chip": 2, "started": f"s-{run}", "ended": None, **told}))
    (at / "metrics.jsonl").write_text('{"step": 1, "test_loss": 3.0}\n{"step": 2, "test_loss": NaN}\n{"ste')
    records = [{"step": step, "prompt": "El", "text": f"ementary {step}"} for step in range(5)]
    (at / "completions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 5, "te')
    return at


def asked(host: Host) -> list[dict[str, Any]]:
    return host.call("shared", fleet="sherlock")["runs"]


def test_the_newest_of_those_who_agreed_is_told(host: Host) -> None:
    (run,) = asked(host)
    assert {key: run[key] for key in ("person", "run", "chip", "ended", "step", "metrics")} == {
        "person": "ada",
        "run": RUN,
        "chip": 2,
        "ended": None,
        "step": 2,
        "metrics": {"test_loss": None},
    }
    assert [item["step"] for item in run["completions"]] == [2, 3, 4], "the last three; a half line is passed over"
    assert run["completions"][-1]["text"] == "ementary 4"


def test_of_many_runs_the_newest_are_told_and_other_names_never(host: Host) -> None:
    names = [f"ada-2026112{day}-180000" for day in range(2, 9)]
    for run in [*names, "ada-20261128-180000-2", "ada-20261128-180000-10"]:
        train(host, "ada", run)
    for run in ("zzz", "bob-20991231-235959", ".ada-20991231-235959", "ada-20991231-235959.before"):
        train(host, "ada", run)
    told = [run["run"] for run in asked(host)]
    assert sorted(told) == sorted([f"{names[-1]}-10", f"{names[-1]}-2", *names[-3:]])


def test_links_and_what_is_no_plain_file_lead_nowhere(host: Host, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"step": 1, "prompt": "", "text": "SECRET"}\n')
    at = host.base / "people/ada" / RUN
    for name in ("completions.jsonl", "metrics.jsonl", "run.json"):
        (at / name).unlink()
    (at / "completions.jsonl").symlink_to(secret)
    os.mkfifo(at / "metrics.jsonl")  # reading it would hang for ever
    (at / "run.json").mkdir()
    elsewhere = train(host, "bob", "ada-20261121-190000")
    (host.base / "people/ada/ada-20261121-190000").symlink_to(elsewhere)
    (run,) = asked(host)
    assert (run["run"], run["completions"], run["metrics"], run["started"]) == (RUN, [], {}, None)


def test_a_home_that_is_a_link_is_not_followed(host: Host) -> None:
    home = host.base / "people/ada"
    home.rename(host.base / "people/elsewhere")
    home.symlink_to(host.base / "people/elsewhere")
    assert asked(host) == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to own files as somebody else")
def test_files_of_somebody_else_are_not_told(host: Host) -> None:
    at = host.base / "people/ada" / RUN
    os.chown(at / "completions.jsonl", 12345, 12345)
    (run,) = asked(host)
    assert run["completions"] == []
    os.chown(at, 12345, 12345)
    assert asked(host) == []


@pytest.mark.parametrize(
    "people",
    [
        "{",
        "[]",
        '{"fleet": "other", "people": [{"name": "ada", "uid": 0, "share": true}]}',
        '{"fleet": "sherlock", "people": {"ada": 1}}',
        '{"fleet": "sherlock", "people": [1, null, {"name": "../ada", "uid": 0, "share": true}]}',
        '{"fleet": "sherlock", "people": [{"name": "ada", "uid": "0", "share": true}]}',
        '{"fleet": "sherlock", "people": [{"name": "ada", "uid": 20000, "share": "yes"}]}',
    ],
)
def test_a_list_that_is_another_fleets_or_makes_no_sense_tells_nothing(host: Host, people: str) -> None:
    (host.base / "people.json").write_text(people)
    assert asked(host) == []


def test_a_host_without_people_tells_nothing_and_a_question_without_a_fleet_is_refused(
    make_host: Callable[..., Host],
) -> None:
    host = make_host()
    assert asked(host) == []
    assert host.error("shared")["kind"] == "bad-request"
    assert host.error("shared", fleet="../x")["kind"] == "bad-request"


def test_curves_are_thinned_to_what_a_picture_needs_and_end_with_the_newest_point(host: Host) -> None:
    at = train(host, "ada", "ada-20261121-200000")
    records = [{"step": step, "loss": 1 / (step + 1), "lr": 0.1, "note": "x", "ok": True} for step in range(5000)]
    odd = ['{"step": 6000, "loss": NaN}', '{"step": -1, "loss": 1}', '{"loss": 7}', '{"step": 1e400, "loss": 1}']
    lines = [*map(json.dumps, records), *odd, json.dumps({"step": 5000, **{f"m{n}": 1 for n in range(50)}})]
    (at / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    curves = asked(host)[0]["curves"]
    steps, values = curves["loss"]
    assert len(steps) == len(values) <= verb.MOST_POINTS
    assert steps == sorted(set(steps))
    assert (steps[-1], values[-1]) == (4999, 1 / 5000)
    assert {"loss", "lr"} < curves.keys()
    assert not {"note", "ok", "step"} & curves.keys()
    assert len(curves) == verb.MOST_METRICS


def test_what_is_told_has_an_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    at = host.base / "people/ada" / RUN
    line = json.dumps({"step": 1, "prompt": "p" * 9000, "text": "t" * 9000}) + "\n"
    (at / "completions.jsonl").write_text(line * 1000)
    (at / "run.json").write_text(json.dumps({"started": "s" * 1000, "chip": [1], "ended": {}}))
    (run,) = asked(host)
    assert all(len(item["text"]) == len(item["prompt"]) == verb.LONGEST for item in run["completions"])
    assert (len(run["started"]), run["chip"], run["ended"]) == (64, None, None)
    monkeypatch.setattr(verb, "MOST_CHARACTERS", 100)
    assert verb.shared(Places(host.root), {"fleet": "sherlock"}) == {"runs": []}
