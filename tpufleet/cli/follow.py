"""Stay with runs until they have ended: a table that moves on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpufleet.cli.output import Output
from tpufleet.cli.pace import Pace
from tpufleet.cli.render import metric_words, state_words
from tpufleet.cli.run_table import run_table
from tpufleet.cli.session import Session
from tpufleet.cli.tables import Fitted
from tpufleet.errors import RunFailed
from tpufleet.restart import FINAL_STATES
from tpufleet.text import clean, counted, lasted

if TYPE_CHECKING:
    from tpufleet.ops.fleet import Fleet

LOOK_S = 1.0
LINE_S = 15.0
SILENT_LIMIT_S = 120.0

States = Mapping[str, Mapping[str, Any]]
Show = Callable[[States, Mapping[str, str]], None]  # the runs' states, and the silent hosts with why


def follow(this: Session, runs: Sequence[str], known: States) -> States:
    """Watch `runs`, of which `known` is known, until all have ended; returns how they ended.

    Ctrl-C ends the watching, not the runs.
    """
    from tpufleet.ops.failures import untold

    with this.fleet("follow") as fleet, _picture(this.out, runs) as show:
        ends = _watch(fleet, runs, known, show)
        untold(fleet.journal, ends)  # the caller tells all of them
        return ends


def raise_for_failed(states: States) -> None:
    """RunFailed if one of the runs failed, with the first few of them."""
    failed = [run for run, state in states.items() if state["state"] == "failed"]
    if failed:
        said = ", ".join(f"{run} ({state_words(states[run])})" for run in failed[:3])
        raise RunFailed(f"{len(failed)} of {len(states)} runs failed: {said}", hint=f"tpufleet logs {failed[0]}")


def _watch(fleet: Fleet, runs: Sequence[str], known: States, show: Show) -> States:
    """One probe per host and look; a host that is silent is told, and waited for a while."""
    from tpufleet.errors import Unreachable
    from tpufleet.ops.observe import find_nodes, hosts_of, probe
    from tpufleet.ops.runs import located

    hosts = hosts_of(fleet, find_nodes(fleet))
    states = dict(known)
    heard = time.monotonic()
    while True:
        views = probe(fleet, hosts)
        states |= {run: item.state for run, item in located(views).items() if run in runs}
        silent = {str(view.host.name): view.error or "nothing of tpufleet on it" for view in views if not view.probe}
        show(states, silent)
        if not silent:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENT_LIMIT_S:
            host, why = next(iter(silent.items()))
            raise Unreachable(
                f"silent for {SILENT_LIMIT_S:.0f} s: {why}",
                where=host,
                hint="tpufleet create brings it back, or makes it anew; then the same run again",
            )
        if len(states) == len(runs) and all(state["state"] in FINAL_STATES for state in states.values()):
            return states
        time.sleep(LOOK_S)


@contextlib.contextmanager
def _picture(out: Output, runs: Sequence[str]) -> Generator[Show]:
    if not out.live:
        yield _Lines(out, runs).show
        return
    from rich.console import Group
    from rich.text import Text

    from tpufleet.cli.live import moving

    pace, now = Pace(), Looked()

    def draw(whole: bool) -> Any:
        ordered = [now.states[run] for run in runs if run in now.states]
        notes = [Text(clean(f"{host} is silent, waiting for it: {why}"), "red") for host, why in now.silent.items()]
        table = Fitted(*run_table(ordered, pace), beside=None if whole else len(notes) + 2)
        return Group(table, Text(clean(summary(ordered, pace)), "dim"), *notes)

    with moving(out.console(), draw) as refresh:

        def show(states: States, silent: Mapping[str, str]) -> None:
            pace.look(states, time.monotonic())
            now.states, now.silent = states, silent
            refresh()

        yield show


@dataclass
class Looked:
    """What the last look found: the runs' states, and the silent hosts with why."""

    states: States = field(default_factory=dict[str, Mapping[str, Any]])
    silent: Mapping[str, str] = field(default_factory=dict[str, str])


class _Lines:
    """Plain lines: each change of a run's state, and a summary every few seconds."""

    def __init__(self, out: Output, runs: Sequence[str]) -> None:
        self._out = out
        self._runs = runs
        self._known: dict[str, str] = {}
        self._silent: set[str] = set()
        self._last = time.monotonic()

    def show(self, states: States, silent: Mapping[str, str]) -> None:
        for host in set(silent) - self._silent:
            self._out.note(f"{host}: silent, waiting for it: {silent[host]}")
        for host in self._silent - set(silent):
            self._out.note(f"{host}: heard again")
        self._silent = set(silent)
        for run in self._runs:
            state = states.get(run)
            if state and self._known.get(run) != state["state"]:
                self._known[run] = str(state["state"])
                where = ", ".join(state.get("chips") or ()) or state.get("host")
                self._out.note(
                    f"{run}: {state_words(state)} on {where}  {metric_words(state.get('metrics') or {})}".rstrip()
                )
        if time.monotonic() - self._last >= LINE_S:
            self._last = time.monotonic()
            self._out.note(summary([states[run] for run in self._runs if run in states]))


def summary(states: Sequence[Mapping[str, Any]], pace: Pace | None = None) -> str:
    """`8 runs: 8 running; step 300 to 420; test_loss 2.31 to 2.62`, and with a `pace` how long the slowest takes."""
    counts = Counter(str(state["state"]) for state in states)
    by_state = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    parts = [f"{counted(len(states), 'run')}: {by_state}"]
    steps = [int(state["step"]) for state in states if isinstance(state.get("step"), int)]
    if steps:
        parts.append(f"step {_span(min(steps), max(steps))}")
    losses = [float(state["metrics"]["test_loss"]) for state in states if "test_loss" in (state.get("metrics") or {})]
    if losses:
        parts.append(f"test_loss {_span(f'{min(losses):.3g}', f'{max(losses):.3g}')}")
    lefts = [left for state in states if pace and (left := pace.left_s(state)) is not None]
    if lefts:
        parts.append(f"{lasted(max(lefts))} left")
    return "; ".join(parts)


def _span(low: object, high: object) -> str:
    return str(low) if low == high else f"{low} to {high}"
