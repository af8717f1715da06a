"""What `run` starts, and what it leaves alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tpufleet.model import Host, HostView, JobSpec, RunSpec
from tpufleet.names import HostName
from tpufleet.ops.runs import located, plan_launch
from tpufleet.state.store import Placement

JOB = JobSpec(command=("true",))
RUN = RunSpec("gpt", "gpt", {}, ("true",), {}, JOB)


def host(number: int) -> Host:
    return Host(HostName(f"tpu-{number}-w0"), f"tpu-{number}", "z", 0, "127.77.0.1", 22, f"id{number}-w0")


def view(number: int, *states: dict[str, Any]) -> HostView:
    chips = [{"index": index, "state": "free"} for index in range(4)]
    return HostView(host(number), probe={"chips": chips, "runs": list(states)})


def state(word: str, submitted: str = "2026-11-21T05:00:00Z") -> dict[str, Any]:
    return {"id": "gpt", "state": word, "submitted": submitted}


def test_a_new_run_is_placed() -> None:
    assert plan_launch([RUN], [view(0)], home={}, sent={}).placed == {"gpt": "tpu-0-w0"}


def test_what_runs_waits_or_recovers_is_left_alone_even_with_restart() -> None:
    for word in ("running", "queued", "recovering"):
        plan = plan_launch([RUN], [view(0, state(word))], home={}, sent={}, restart=True)
        assert (plan.placed, plan.active) == ({}, ("gpt",))


def test_what_failed_or_was_stopped_goes_on_where_its_checkpoints_are() -> None:
    for word in ("failed", "stopped"):
        plan = plan_launch([RUN], [view(0), view(1, state(word))], home={}, sent={})
        assert plan.placed == {"gpt": "tpu-1-w0"}


def test_what_is_done_is_done_on_a_host_or_at_home_unless_asked_for_again() -> None:
    for views, home in (([view(0, state("done"))], {}), ([view(0)], {"gpt": state("done")})):
        assert plan_launch([RUN], views, home=home, sent={}).done == ("gpt",)
        assert plan_launch([RUN], views, home=home, sent={}, restart=True).placed == {"gpt": "tpu-0-w0"}


def test_a_run_on_a_host_that_is_not_heard_is_not_started_a_second_time() -> None:
    silent = HostView(host(1), error="nothing listens")
    sent = {"gpt": Placement("gpt", "tpu-1-w0", "id1-w0")}
    plan = plan_launch([RUN], [view(0), silent], home={}, sent=sent)
    assert (plan.placed, plan.unknown) == ({}, ("gpt",))


def test_a_run_whose_machine_was_made_anew_is_started_again() -> None:
    sent = {"gpt": Placement("gpt", "tpu-0-w0", "an-older-id-w0")}
    assert plan_launch([RUN], [view(0)], home={}, sent=sent).placed == {"gpt": "tpu-0-w0"}


def test_a_run_known_with_another_command_is_named() -> None:
    for word in ("running", "done", "failed"):
        known = {**state(word), "command": ["false"]}
        assert plan_launch([RUN], [view(0, known)], home={}, sent={}).changed == ("gpt",)
        assert plan_launch([RUN], [view(0, {**known, "command": ["true"]})], home={}, sent={}).changed == ()
    assert plan_launch([RUN], [view(0)], home={"gpt": {**state("done"), "command": ["false"]}}, sent={}).changed


# ------------------------------------------------------------------------------------------------- room and queues


def seeds(count: int, **keys: Any) -> list[RunSpec]:
    job = JobSpec(command=("true",), **keys)
    return [RunSpec(f"j-seed{number}", "j", {"seed": number}, ("true",), {}, job) for number in range(count)]


def of_job(number: int, word: str, **more: Any) -> dict[str, Any]:
    return {"id": f"j-seed{number}", "job": "j", "state": word, "submitted": f"2026-11-21T05:00:0{number}Z", **more}


def test_a_run_of_a_whole_host_gets_as_many_chips_as_its_host_has() -> None:
    plan = plan_launch(seeds(2, whole_host=True), [view(0), view(1)], home={}, sent={})
    assert (set(plan.placed.values()), plan.chips) == ({"tpu-0-w0", "tpu-1-w0"}, {"j-seed0": 4, "j-seed1": 4})


def test_max_parallel_is_divided_among_the_hosts() -> None:
    plan = plan_launch(seeds(8, max_parallel=3), [view(0), view(1)], home={}, sent={})
    assert plan.shares == {"tpu-0-w0": 2, "tpu-1-w0": 1}
    assert Counter(plan.placed.values()) == {"tpu-0-w0": 5, "tpu-1-w0": 3}
    assert plan_launch(seeds(8), [view(0), view(1)], home={}, sent={}).shares == {}


def test_more_runs_of_a_job_leave_the_shares_of_its_hosts_as_they_are() -> None:
    on = [of_job(number, "running", group_limit=2) for number in (0, 1)]
    plan = plan_launch(seeds(6, max_parallel=3), [view(0), view(1, *on)], home={}, sent={})
    assert plan.shares == {"tpu-0-w0": 1, "tpu-1-w0": 2}
    assert Counter(plan.placed.values()) == {"tpu-0-w0": 2, "tpu-1-w0": 2}


def test_runs_on_hosts_that_are_not_heard_count_as_on() -> None:
    silent = HostView(host(1), error="nothing listens")
    sent = {f"j-seed{number}": Placement(f"j-seed{number}", "tpu-1-w0", "id1-w0") for number in (0, 1)}
    plan = plan_launch(seeds(6, max_parallel=3), [view(0), silent], home={}, sent=sent)
    assert (len(plan.unknown), plan.shares) == (2, {"tpu-0-w0": 1})


def test_runs_that_wait_for_others_of_their_job_want_no_free_chips() -> None:
    waiting = [of_job(number, "queued", reason="max_parallel reached") for number in range(4)]
    other = RunSpec("gpt", "gpt", {}, ("true",), {}, JOB)
    assert plan_launch([other], [view(0, *waiting)], home={}, sent={}).placed == {"gpt": "tpu-0-w0"}
    full = [of_job(number, "queued", reason="no free chip", slot=4) for number in range(4)]
    plan = plan_launch([other], [view(0, *full), view(1, *waiting)], home={}, sent={})
    assert plan.placed == {"gpt": "tpu-1-w0"}


def test_a_run_that_waits_says_what_is_on_the_chips_and_what_comes_before_it() -> None:
    states = [
        of_job(0, "running", chips=["tpu-0-w0:0", "tpu-0-w0:1"]),
        of_job(1, "queued", reason="no free chip"),
        of_job(2, "queued", reason="no free chip"),
        of_job(3, "queued", reason="no free chip", priority=9),
        of_job(4, "queued", reason=None),
    ]
    kinds = [("run", None), ("run", None), ("person", "ann"), ("busy", None)]
    chips = [{"index": index, "state": word, "person": who, "pid": 77} for index, (word, who) in enumerate(kinds)]
    found = located([HostView(host(0), probe={"chips": chips, "runs": states})])
    said = {run: item.state.get("waits") for run, item in found.items()}
    held = "tpu-0-w0: 4 of 4 chips in use, 2 by ann and pid 77"
    assert said == {
        "j-seed0": None,
        "j-seed1": f"{held}; 1 before it",
        "j-seed2": f"{held}; 2 before it",
        "j-seed3": held,
        "j-seed4": None,
    }


def test_of_two_hosts_that_know_a_run_the_later_word_counts() -> None:
    views = [view(0, state("running", "2026-11-21T06:00:00Z")), view(1, state("failed"))]
    assert located(views)["gpt"].host.name == "tpu-0-w0"
