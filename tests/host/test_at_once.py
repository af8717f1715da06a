"""Many people who start the same run at the same moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .harness import Host, wait_until
from .waiting import WAITS, let_go, starts, wait_for_start


def sleeps(pid: int) -> bool:
    """Whether it has nothing to do but wait; one that is still starting wants the processor."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("count", [15, pytest.param(50, marks=pytest.mark.faults)])
def test_many_launches_of_one_run_at_once_start_it_once(host: Host, count: int) -> None:
    request = json.dumps({"runs": [host.spec("gpt", WAITS)]}).encode()
    launches = [host.start("enqueue") for _ in range(count)]
    wait_until(lambda: all(sleeps(launch.pid) for launch in launches), "all of them to wait for their request")
    for launch in launches:
        assert launch.stdin
        launch.stdin.write(request)
        launch.stdin.close()
        launch.stdin = None
    answers = [launch.communicate(timeout=120) for launch in launches]
    assert [launch.returncode for launch in launches] == [0] * count
    assert {err for _, err in answers} == {b""}
    states = [json.loads(out)["runs"][0] for out, _ in answers]
    assert {state["id"] for state in states} == {"gpt"}
    assert {state["state"] for state in states} <= {"queued", "running"}
    wait_for_start(host, "gpt")
    let_go(host, "gpt")
    assert len(host.wait_for("gpt", "done")["attempts"]) == 1
    wait_until(lambda: not host.processes(), "the host to be at rest")
    assert starts(host, "gpt") == ["1 0"]
