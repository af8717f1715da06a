"""Limits that a job sets itself: time, silence, a loss that is no number; its log's size; how many of it at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tpufleet.host.limits import lost_losses

from .harness import Host, kill, wait_until
from .waiting import WAITS, let_go, wait_for_start

TALKS = "import itertools, time\nfor n in itertools.count(): print(n, flush=True); time.sleep(0.05)\n"
RECORD = "import os, time\nopen(os.environ['TPUFLEET_RUN_DIR'] + '/metrics.jsonl', 'a').write({!r})\ntime.sleep(600)\n"


def test_a_run_that_takes_too_long_is_ended_for_good_with_all_its_processes(host: Host) -> None:
    host.enqueue(host.spec("gpt", TALKS, time_limit_s=0.3, retries=5))
    ended = host.wait_for("gpt", "failed")
    assert (ended["reason"], len(ended["attempts"])) == ("time limit", 1)
    assert host.log("gpt").endswith("tpufleet: ended by its limits (time limit)\n")
    wait_until(lambda: not host.processes())


def test_a_silent_run_is_ended_and_tried_again(host: Host) -> None:
    host.enqueue(host.spec("gpt", "import time\nprint('up', flush=True)\ntime.sleep(600)", stalled_s=0.5, retries=1))
    ended = host.wait_for("gpt", "failed")
    assert [attempt["reason"] for attempt in ended["attempts"]] == ["stalled", "stalled"]


def test_a_run_that_only_writes_records_is_not_silent(host: Host) -> None:
    script = (
        "import os, time\nrun = os.environ['TPUFLEET_RUN_DIR']\nfor _ in range(40):\n"
        "    open(run + '/metrics.jsonl', 'a').write('{\"step\": 1}\\n'); time.sleep(0.05)\n"
    )
    host.enqueue(host.spec("gpt", script, stalled_s=1.5))
    assert host.wait_for("gpt", "failed", "done")["state"] == "done"


def test_a_run_whose_loss_is_no_number_is_ended_and_not_tried_again(host: Host) -> None:
    host.enqueue(host.spec("gpt", RECORD.format('{"step": 3, "test_loss": NaN}\n'), stop_on_nan=True, retries=5))
    ended = host.wait_for("gpt", "failed")
    assert (ended["reason"], len(ended["attempts"])) == ("loss is not a number", 1)
    assert (ended["step"], ended["metrics"]) == (3, {"test_loss": None})


def test_the_nan_of_an_earlier_attempt_does_not_end_the_next(host: Host) -> None:
    host.enqueue(host.spec("gpt", RECORD.format('{"step": 3, "test_loss": NaN}\n'), stop_on_nan=True))
    host.wait_for("gpt", "failed")
    host.enqueue(host.spec("gpt", "import time\nfor _ in range(15): time.sleep(0.1)", stop_on_nan=True))
    assert host.wait_for("gpt", "failed", "done")["state"] == "done"


@pytest.mark.parametrize(
    ("record", "patterns", "lost"),
    [
        ({"step": 1, "loss": float("nan"), "lr": float("nan")}, (), ["loss"]),
        ({"Train/Loss": float("-inf")}, (), ["Train/Loss"]),
        ({"test_loss": None}, (), []),  # a step without a test
        ({"test_loss": None}, ("test_loss",), ["test_loss"]),  # what a pattern found, and JSON can't say
        ({"loss": 1e30}, (), []),
    ],
)
def test_which_values_are_no_loss(record: dict[str, object], patterns: tuple[str, ...], lost: list[str]) -> None:
    assert lost_losses(record, patterns) == lost


def test_limits_hold_for_a_training_whose_supervisor_is_gone(host: Host) -> None:
    host.enqueue(host.spec("gpt", WAITS, time_limit_s=4))
    wait_for_start(host, "gpt")
    kill(host.handle("gpt")["supervisor"])
    ended = host.wait_for("gpt", "failed")
    assert (ended["reason"], len(ended["attempts"])) == ("time limit", 1)


def test_of_a_group_only_so_many_run_at_once_and_others_are_not_held_up(host: Host) -> None:
    group = {"group": "gpt", "group_limit": 2}
    states = host.enqueue(*(host.spec(f"a{n}", WAITS, **group) for n in range(3)), host.spec("b", WAITS))
    by_id = {state["id"]: (state["state"], state["reason"]) for state in states}
    assert by_id.pop("b") == ("running", None)
    assert sorted(by_id.values(), key=str) == [
        ("queued", "max_parallel reached"), ("running", None), ("running", None),
    ]  # fmt: skip
    waiting = next(run for run, (state, _) in by_id.items() if state == "queued")
    let_go(host, next(run for run, (state, _) in by_id.items() if state == "running"))
    wait_for_start(host, waiting)


@pytest.mark.parametrize("limit", ["1", 0, -1, True, float("inf")])
def test_a_limit_that_makes_no_sense_is_refused(host: Host, limit: object) -> None:
    said = host.error("enqueue", runs=[host.spec("gpt", "pass", time_limit_s=limit)])
    assert said["kind"] == "bad-request"
    assert "time_limit_s" in said["message"]


SAYS = "import os, sys\nn = int(os.environ['TPUFLEET_ATTEMPT'])\nsys.exit({!r} if n < 3 else 0)\n"


def test_a_busy_tpu_costs_no_retry(host: Host) -> None:
    host.enqueue(host.spec("gpt", SAYS.format("TPU initialization failed: open(/dev/vfio/0): Device or resource busy")))
    ended = host.wait_for("gpt", "failed", "done")
    assert [attempt["reason"] for attempt in ended["attempts"]] == ["TPU busy", "TPU busy", None]
    assert host.call("probe")["suspect"] is None


def test_a_chip_that_fails_two_runs_in_a_row_is_suspect_until_one_succeeds(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=1)
    for run in ("a", "b"):
        assert host.call("probe")["suspect"] is None
        host.enqueue(host.spec(run, "import sys; sys.exit('TPU initialization failed: no luck')"))
        assert host.wait_for(run, "failed")["reason"] == "TPU initialisation failed"
    found = host.call("probe")
    assert found["suspect"] == "TPU initialisation failed 2 times in a row on tpu-0-w0:0"
    assert found["chips"][0]["suspect"] is True
    host.enqueue(host.spec("c", "pass"))
    host.wait_for("c", "done")
    assert host.call("probe")["suspect"] is None


def test_what_an_earlier_attempt_said_is_not_held_against_the_next(host: Host) -> None:
    script = "import os, sys\nsys.exit('TPU initialization failed' if os.environ['TPUFLEET_ATTEMPT'] == '1' else 3)"
    host.enqueue(host.spec("gpt", script))
    host.wait_for("gpt", "failed")
    host.enqueue(host.spec("gpt", script))
    wait_until(lambda: len(host.wait_for("gpt", "failed")["attempts"]) == 2)
    assert host.state("gpt")["reason"] == "exit nonzero"


def test_a_cpu_run_says_nothing_of_the_tpu(host: Host) -> None:
    host.enqueue(host.spec("gpt", "import sys; sys.exit('TPU initialization failed')", device="cpu", chips=0))
    assert host.wait_for("gpt", "failed")["reason"] == "exit nonzero"
