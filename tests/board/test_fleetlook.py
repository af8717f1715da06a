"""Looks at a fleet, one after the other: what is kept of hosts that don't answer, what is asked for, what happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tpufleet.board.feed import Feed
from tpufleet.board.fleetlook import Answer, FleetLook, Round
from tpufleet.board.look import Look, trusted
from tpufleet.board.scene import RunRow
from tpufleet.model import Host, HostView, Node, NodeState
from tpufleet.names import HostName
from tpufleet.people import Seating

BEGAN = "2026-11-21T18:00:00Z"
AT = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)


def attempt(n: int = 1, ended: str | None = None, **told: Any) -> dict[str, Any]:
    return {"n": n, "chips": ["tpu-0-w0:0"], "started": BEGAN, "ended": ended, **told}


def state(run: str = "gpt", word: str = "running", **told: Any) -> dict[str, Any]:
    return {"id": run, "job": "gpt", "state": word, "attempts": [attempt()], "submitted": BEGAN, **told}


def file(text: str, token: str, **told: Any) -> dict[str, Any]:
    return {"text": text, "token": token, "anew": False, "more": False, **told}


class Rounds:
    """A fleet of one-host nodes, looked at every five seconds. A node's id is its name and how often it was made."""

    def __init__(self) -> None:
        self.looking = FleetLook()
        self.n = 0
        self.asked: dict[str, Any] = {}

    def look(self, sharing: tuple[str, ...] = (), **hosts: Any) -> Look:
        """`hosts`: by node (tpu_0) an answer, or an error as text, or a pair of that and which life of it this is."""
        self.n += 1
        nodes: list[Node] = []
        answers: list[Answer] = []
        self.asked = {}
        for word, told in hosts.items():
            answer, life = told if isinstance(told, tuple) else (told, 1)
            name = word.replace("_", "-")
            nodes.append(Node(name, "z", "v2-8", NodeState.READY, "HEALTHY", f"{name}-{life}", (), {}))
            host = Host(HostName(f"{name}-w0"), name, "z", 0, "127.0.0.1", 22, f"{name}-{life}-w0", chips=4)
            asked = self.asked[name] = self.looking._reading.ask(host)  # as _ask does, which needs a fleet
            if isinstance(answer, str):
                answers.append(Answer.of(HostView(host, error=answer), asked, {}))
            else:
                answers.append(Answer.of(HostView(host, probe=trusted({"probe": answer})), asked, answer))
        at = AT + timedelta(seconds=5 * self.n)
        return self.looking.take(Round(nodes, answers, at, 5.0 * self.n), Seating(), sharing)


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


def row(look: Look) -> RunRow:
    (found,) = look.scene.runs
    return found


def kinds(look: Look) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in look.scene.happenings]


def test_a_host_is_asked_for_what_is_new_and_for_nothing_when_all_is_read(rounds: Rounds) -> None:
    first = {"metrics": file('{"step": 1, "loss": 3}\n', "1:23:4")}
    look = rounds.look(tpu_0={"runs": [state()], "results": {"gpt": first}})
    assert rounds.asked["tpu-0"] is None, "all, of a host that was never heard"
    assert list(look.points[0].points) == [(1, {"loss": 3})]
    rounds.look(tpu_0={"runs": [state(), state("new", "queued")]})
    assert rounds.asked["tpu-0"] == {"gpt": {"metrics": "1:23:4"}}
    last = {"metrics": file('{"step": 2, "loss": 2}\n', "1:46:4", more=True)}
    rounds.look(tpu_0={"runs": [state(word="done"), state("new")], "results": {"gpt": last}})
    assert rounds.asked["tpu-0"] == {"gpt": {"metrics": "1:23:4"}, "new": {}}
    rounds.look(tpu_0={"runs": [state(word="done"), state("new")]})
    assert rounds.asked["tpu-0"]["gpt"] == {"metrics": "1:46:4"}, "there was more than the answer had room for"
    rounds.look(tpu_0={"runs": [state(word="done"), state("new")]})
    assert rounds.asked["tpu-0"].keys() == {"new"}
    rounds.look(tpu_0={"runs": [state(word="running", began="again"), state("new")]})
    rounds.look(tpu_0={"runs": [state(word="running", began="again"), state("new")]})
    assert rounds.asked["tpu-0"].keys() == {"gpt", "new"}, "it is done once more"


def test_a_run_that_moved_is_read_from_its_beginning(rounds: Rounds) -> None:
    rounds.look(tpu_0={"runs": [state()], "results": {"gpt": {"metrics": file('{"step": 5, "loss": 3}\n', "1:1:1")}}})
    moved = state(submitted="2026-11-21T19:00:00Z")
    look = rounds.look(
        tpu_0="no answer",
        tpu_1={"runs": [moved], "results": {"gpt": {"metrics": file('{"step": 1, "loss": 4}\n', "2:1:1", anew=True)}}},
    )
    assert [points.anew for points in look.points] == [True]
    assert row(look).why is None


def test_what_a_silent_host_told_stays_and_says_so(rounds: Rounds) -> None:
    people = {"runs": [{"person": "ada", "run": "ada-1", "chip": 1, "completions": [{"text": "hers", "step": 1}]}]}
    chips = [{"index": 1, "state": "person", "person": "ada"}]
    rounds.look(("ada",), tpu_0={"runs": [state()], "chips": chips, "people": people})
    look = rounds.look(("ada",), tpu_0="no answer")
    hers, ours = look.scene.runs
    assert (hers.person, hers.state) == ("ada", "running")
    assert (ours.state, ours.why) == ("running", "tpu-0-w0 doesn't answer")
    assert [piece.text for piece in look.scene.pieces] == ["hers"]
    assert look.scene.hosts[0].problem == "no answer"
    assert not rounds.look((), tpu_0="no answer").scene.pieces, "she agrees no more"


def test_a_run_whose_node_is_gone_is_to_be_recovered_and_one_that_was_done_stays_so(rounds: Rounds) -> None:
    rounds.look(tpu_0={"runs": [state(), state("past", "done")]})
    look = rounds.look()
    assert [(one.id, one.state, one.why) for one in look.scene.runs] == [
        ("gpt", "recovering", "tpu-0-w0 is gone"),
        ("past", "done", None),
    ]
    back = rounds.look(tpu_0=({"runs": [state(submitted="2026-11-21T19:00:00Z")]}, 2))
    assert back.scene.runs[0].state == "running"


def test_what_happens_to_nodes_and_hosts_is_told_once(rounds: Rounds) -> None:
    heard = {"runs": []}
    assert kinds(rounds.look(tpu_0=heard)) == [], "the first look tells of nothing"
    assert kinds(rounds.look(tpu_0="no answer")) == [("silent", "tpu-0-w0")]
    assert kinds(rounds.look(tpu_0=heard)) == [("heard", "tpu-0-w0"), ("silent", "tpu-0-w0")]
    assert kinds(rounds.look())[0] == ("gone", "tpu-0")
    assert kinds(rounds.look(tpu_0=(heard, 2)))[0] == ("anew", "tpu-0")
    look = rounds.look(tpu_0=(heard, 2), tpu_1=heard)
    assert kinds(look)[0] == ("added", "tpu-1")
    assert kinds(rounds.look(tpu_0=(heard, 2), tpu_1=heard)) == kinds(look)


def test_what_a_run_went_through_is_told_by_its_attempts(rounds: Rounds) -> None:
    attempts = [
        attempt(1, "2026-11-21T18:10:00Z", reason="preempted"),
        attempt(2, "2026-11-21T18:20:00Z", reason="exit nonzero", exit_code=3, started="2026-11-21T18:11:00Z"),
        attempt(3, "2026-11-21T18:25:00Z", exit_code=0, started="2026-11-21T18:21:00Z"),
    ]
    told = state(word="done", attempts=attempts, resumed_from="step-00001000")
    happenings = rounds.look(tpu_0={"runs": [told]}).scene.happenings
    assert [(one.kind, one.text) for one in reversed(happenings)] == [
        ("preempted", "preempted"),
        ("again", "started again on tpu-0-w0:0"),
        ("failed", "exit nonzero (exit code 3)"),
        ("resumed", "resumed from step 1,000 on tpu-0-w0:0"),
        ("done", "done"),
    ]


def test_how_far_and_how_fast_a_run_is(rounds: Rounds) -> None:
    said = {"gpt": {"metrics": file('{"step": 10, "steps": 1010, "loss": 3}\n', "1:1:1")}}
    rounds.look(tpu_0={"runs": [state(step=10)], "results": said})
    measured = row(rounds.look(tpu_0={"runs": [state(step=60)]}))
    assert (measured.of, measured.rate, measured.left_s) == (1010, 10.0, 95.0)
    told = row(rounds.look(tpu_0={"runs": [state(step=110, metrics={"steps_per_second": 2.0})]}))
    assert (told.rate, told.left_s) == (2.0, 450.0)
    done = row(rounds.look(tpu_0={"runs": [state(word="done", step=1010)]}))
    assert (done.of, done.rate, done.left_s) == (1010, None, None)


def test_a_persons_curve_grows_by_what_is_new(rounds: Rounds) -> None:
    def look(*steps: int) -> list[tuple[int, ...]]:
        run = {"person": "ada", "run": "ada-1", "curves": {"loss": [list(steps), [1.0] * len(steps)]}}
        told = rounds.look(("ada",), tpu_0={"runs": [], "people": {"runs": [run]}})
        return [tuple(step for step, _ in points.points) for points in told.points]

    assert look(1, 2) == [(1, 2)]
    assert look(1, 2) == []
    assert look(2, 3, 4) == [(3, 4)]
    assert look(1) == [(1,)]


@pytest.mark.parametrize(
    "made_up",
    [
        {"runs": None},
        {"runs": [1, None, [], {}, {"id": []}, {"id": "x", "state": []}]},
        {"runs": [state(attempts=[1, None, {"started": 5, "chips": 7, "ended": []}])], "results": [1]},
        {"runs": [state()], "results": {"gpt": {"metrics": 7, "completions": {"text": 5, "token": []}}}},
        {"runs": [state()], "results": {"gpt": {"metrics": file("\0\n{}\n[[[[", "x" * 10_000)}}},
        {"runs": [state(submitted=5)], "people": [1]},
        {"runs": [], "people": {"runs": [{"person": "ada", "run": "ada-1", "curves": {"loss": [[1, 2], 5, 6]}}]}},
        {"runs": [], "chips": [1, {"index": []}, {"index": 0, "state": [], "person": {}, "run": 7}]},
        {"runs": [state(step=1, metrics={"steps": 10**15, "steps_per_second": 1e-300})]},
        {"runs": [state(step=1, metrics={"steps": 10**15, "steps_per_second": float("nan")})]},
        {"runs": [state("constructor", metrics={"__proto__": 1.0}), state("head"), state("all")]},
    ],
)
def test_nothing_that_a_host_makes_up_ends_the_board(rounds: Rounds, made_up: dict[str, Any]) -> None:
    feed = Feed()
    for _ in range(2):
        feed.take(rounds.look(("ada",), tpu_0=made_up, tpu_1={"runs": [state("other")]}))
    assert b'"other"' in feed.whole()[1]
    look = rounds.look(("ada",), tpu_1={"runs": [state("other")]})
    assert any(one.id == "other" for one in look.scene.runs)


def test_a_host_has_no_more_chips_than_there_can_be(rounds: Rounds) -> None:
    (host,) = rounds.look(tpu_0={"runs": [], "chips": [{"index": n} for n in range(10_000)]}).scene.hosts
    assert len(host.chips) == 64
