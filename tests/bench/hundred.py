"""A hundred nodes made side by side: is the fleet usable no later than 3 s after its slowest node?

On Google Cloud nodes come one by one over minutes. So here: each is READY at a moment of its own, evenly spread; and
the worst case beside it, all at the same moment, where two cores have to carry a hundred hosts at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.measure import Row, in_turn, ratios, timed
from tests.bench.rig import rehearsal
from tests.project import Project
from tpufleet.emulator.launch import running
from tpufleet.emulator.remote import Remote

NODES = 100
FIRST_S, LAST_S = 5.0, 50.0  # after the wish, by the clock of the rehearsal cloud's keeper
GOAL_S = 3.0


def run(place: Path) -> Sequence[Row]:
    with rehearsal(place / "hundred", count=NODES) as project:
        goals: dict[str, list[float]] = {"one by one": [], "at once": []}
        works = {"one by one": (FIRST_S, LAST_S), "at once": (LAST_S, LAST_S)}

        def create(how: str) -> float:
            seconds, slowest = _create(project, *works[how])
            goals[how].append(slowest + GOAL_S)
            return seconds

        seconds = in_turn(2, {how: (lambda how=how: create(how)) for how in works})
    return [
        Row(f"create, {NODES} nodes, READY {how}", "its slowest node + 3 s", ratios(seconds[how], goals[how]))
        for how in works
    ]


def _create(project: Project, first_s: float, last_s: float) -> tuple[float, float]:
    """Seconds of a whole `create`, and from its start until the cloud had its last node READY."""
    project.run("delete", "--yes")
    cloud = running(project.directory / ".tpufleet" / "emulator")
    assert cloud
    remote = Remote(cloud.url)
    remote.configure(manual=True)
    ready: list[float] = []
    began = time.monotonic()
    keeper = threading.Thread(target=lambda: ready.append(_step_all(remote, first_s, last_s)))
    keeper.start()
    seconds = timed(lambda: project.run("create", timeout=300))
    keeper.join()
    remote.configure(manual=False)
    return seconds, ready[0] - began


def _step_all(remote: Remote, first_s: float, last_s: float) -> float:
    """Let each node become READY at its moment; returns when the last one was."""
    while sum(node["deleted"] is None for node in remote.book()["nodes"]) < NODES:
        time.sleep(0.05)
    began = time.monotonic()
    for number in range(NODES):
        moment = began + first_s + (last_s - first_s) * number / (NODES - 1)
        time.sleep(max(0.0, moment - time.monotonic()))
        remote.step(f"tpu-{number}")
    return time.monotonic()
