"""The turn at giving runs to hosts: one command at a time, and none that died keeps it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .harness import PYTHON, Host, kill, wait_until

HOLMES = {"fleet": "sherlock", "who": "tpufleet run (pid 1 on baker-street)"}
MORIARTY = {"fleet": "sherlock", "who": "tpufleet watch (pid 2 on reichenbach)"}


@pytest.fixture
def host(make_host: Any) -> Host:
    return make_host()


def ask(process: subprocess.Popen[bytes], request: dict[str, str]) -> dict[str, Any]:
    """The answer to a request, while stdin stays open."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def gets_it(host: Host, request: dict[str, str]) -> bool:
    with host.start("turn") as process:
        return "chips" in ask(process, request)


def test_whoever_has_the_turn_is_told_what_there_is_and_keeps_it_until_stdin_ends(host: Host) -> None:
    with host.start("turn") as first:
        assert len(ask(first, HOLMES)["chips"]) == 4
        assert host.call("turn", **MORIARTY) == {"held_by": HOLMES["who"]}
        assert gets_it(host, {**MORIARTY, "fleet": "another"}), "each fleet has turns of its own"
    assert gets_it(host, MORIARTY)


def test_a_command_that_is_killed_gives_its_turn_back(host: Host) -> None:
    with host.start("turn") as first:
        ask(first, HOLMES)
        kill(first.pid)
    assert gets_it(host, MORIARTY)


def test_one_of_whom_nothing_is_heard_loses_its_turn_and_one_that_is_heard_keeps_it(host: Host) -> None:
    brief = "from tpufleet.host import agent, turn; turn.SILENT_S = 2.0; raise SystemExit(agent.main())"
    env = {**host.env, "PYTHONPATH": str(host.library)}
    words = [PYTHON, "-c", brief, "turn"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        ask(first, HOLMES)
        begun = time.monotonic()
        with signs_of_life(first):
            while time.monotonic() < begun + 3.0:  # longer than one who is silent is waited for
                assert host.call("turn", **MORIARTY) == {"held_by": HOLMES["who"]}
        wait_until(lambda: gets_it(host, MORIARTY), "the turn of one who is silent")


@contextlib.contextmanager
def signs_of_life(process: subprocess.Popen[bytes]) -> Iterator[None]:
    over = threading.Event()

    def write() -> None:
        assert process.stdin
        while not over.wait(0.1):
            process.stdin.write(b"\n")
            process.stdin.flush()

    thread = threading.Thread(target=write)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.parametrize("request_", [{}, {"fleet": "../x", "who": "me"}, {"fleet": "sherlock", "who": 7}])
def test_an_unsound_request_is_refused(host: Host, request_: dict[str, Any]) -> None:
    assert host.error("turn", **request_)["kind"] == "bad-request"
