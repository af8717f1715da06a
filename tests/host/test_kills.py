"""SIGKILL at any moment: no run is ever in two processes, no chip under two runs, and all of them get done."""

from __future__ import annotations

import random
import time

import pytest

from .harness import DEADLINE_S, Host, kill, words_of

# Holds a lock named after its run and one named after its chip; writes down whenever another has one of them.
GUARDED = """
import fcntl, os, pathlib, sys, time
top = pathlib.Path(os.environ["TPUFLEET_HOST_ROOT"])
held = []
for name in ("run-" + os.environ["TPUFLEET_RUN_ID"], "chip-" + os.environ["TPU_VISIBLE_CHIPS"]):
    held.append((top / name).open("a"))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (top / "violations").open("a").write(name + "\\n")
end = time.monotonic() + 0.1
while time.monotonic() < end:
    pass
"""


def daemons(host: Host) -> list[int]:
    """Workers and supervisors, the newest first: those that are about to do something."""
    return [pid for pid in sorted(host.processes(), reverse=True) if set(words_of(pid)[3:4]) & {b"work", b"supervise"}]


@pytest.mark.parametrize("seed", range(3))
def test_killing_workers_and_supervisors_at_random_doubles_nothing_and_loses_nothing(
    make_host: object, seed: int
) -> None:
    assert callable(make_host)
    host: Host = make_host(chips=2)
    dice = random.Random(seed)  # noqa: S311 - a repeatable choice of victims, no secret
    specs = [host.spec(f"gpt-seed{n}", GUARDED) for n in range(5)]
    host.enqueue(*specs)
    deadline = time.monotonic() + DEADLINE_S
    kills_left = 15
    while time.monotonic() < deadline:
        victims = daemons(host)
        if victims and kills_left:
            kill(victims[0] if dice.random() < 0.5 else dice.choice(victims))
            kills_left -= 1
        runs = host.enqueue(*specs) if dice.random() < 0.3 else host.call("probe")["runs"]
        if all(run["state"] == "done" for run in runs):
            break
    assert {host.state(spec["id"])["state"] for spec in specs} == {"done"}
    assert not (host.root / "violations").exists()
