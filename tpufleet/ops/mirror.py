"""What runs leave, brought home while they run, so that a machine that vanishes takes little with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpufleet.model import JobSpec, Snapshot
from tpufleet.ops.choose import Choice
from tpufleet.ops.collect import Collected, collect, write_runs
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import RunHome, before_all_is_home, last_mirrored, mirrored_step, read_runs
from tpufleet.ops.runs import Located
from tpufleet.restart import FINAL_STATES
from tpufleet.state.lock import locked

Run = Mapping[str, Any]
TELLING = ("state", "reason", "host", "chips", "attempts")  # a change of these is kept at once
SHOWN_ONLY = ("waits", "mirrored_step")  # said of a run by whoever looks at it


def until_due(fleet: Fleet, runs: Mapping[str, Located], now: float) -> dict[str, float]:
    """The runs under way, each with the seconds until its files are to come home (again), by their job's `mirror`;
    0 and below: now."""
    return {
        run: last_mirrored(fleet.paths.runs / run) + _interval_s(fleet, item.state) - now
        for run, item in runs.items()
        if item.state.get("attempts") and item.state["state"] not in FINAL_STATES
    }


def mirror(fleet: Fleet, there: Snapshot, runs: Iterable[str]) -> Collected:
    """Bring these runs home as they stand. Raises StateError when another command does so just now."""
    return collect(fleet, [view for view in there.hosts if view.probe], Choice(runs=frozenset(runs)), wait_s=0)


def keep(fleet: Fleet, states: Mapping[str, Run]) -> None:
    """Write down at home what became of runs, so that it is known when their host is gone.

    Raises StateError when another command writes there just now.
    """
    with locked(fleet.paths.home_lock, fleet.command, wait_s=0, waiting=lambda _: None):
        known = home_states(fleet)
        news = {
            run: before_all_is_home(_plain(state))
            for run, state in states.items()
            if _telling(state) != _telling(known.get(run, {}))
        }
        for state in news.values():
            if state.get("attempts"):
                RunHome.open(fleet.paths.runs, state).write_state(state)
        if news:
            write_runs(fleet, list({**known, **news}.values()))


def home_states(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """Every run as it was last written down here, by id."""
    return {str(run["id"]): run for run in read_runs(fleet.paths.artifacts / "runs.json")}


def with_mirrored(fleet: Fleet, states: Iterable[Run]) -> list[Run]:
    """The runs with `mirrored_step`: what would be left of each if its host vanished now."""
    return [{**state, "mirrored_step": mirrored_step(fleet.paths.runs / str(state["id"]))} for state in states]


def _interval_s(fleet: Fleet, state: Run) -> float:
    job = next((job for name, job in fleet.spec.jobs.items() if name == state.get("job")), None)
    return (job.mirror if job else JobSpec.mirror).seconds


def _telling(state: Run) -> list[Any]:
    return [state.get(name) for name in TELLING]


def _plain(state: Run) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in SHOWN_ONLY}
