"""What `run` starts, and what it leaves alone."""

from __future__ import annotations

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


def test_of_two_hosts_that_know_a_run_the_later_word_counts() -> None:
    views = [view(0, state("running", "2026-11-21T06:00:00Z")), view(1, state("failed"))]
    assert located(views)["gpt"].host.name == "tpu-0-w0"
