"""`python -m tests.bench.board`: what one look of the board costs in processor time, from hosts' answers to what
viewers are sent, for 1,000 runs with 1,000 points each on 20 hosts. The hosts and the network aren't in it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.measure import Row, Skipped
from tpufleet.board.feed import Feed
from tpufleet.board.fleetlook import Answer, FleetLook, Round
from tpufleet.board.look import trusted
from tpufleet.model import Host, HostView, Node, NodeState
from tpufleet.names import HostName
from tpufleet.people import Seating

HOSTS, RUNS, POINTS = 20, 1000, 1000
ACTIVE = 80  # runs that go on at once: 20 hosts have that many chips
LOOKS = 20


def host(n: int) -> Host:
    return Host(HostName(f"tpu-{n}-w0"), f"tpu-{n}", "z", 0, "127.0.0.1", 22, f"id-{n}-w0", chips=4)


def told(n: int, step: int, state: str) -> dict[str, Any]:
    """A run as its host tells it."""
    name = f"tpu-{n % HOSTS}-w0"
    start = {"n": 1, "host": name, "chips": [f"{name}:{n % 4}"], "started": "2026-11-21T18:00:00Z", "ended": None}
    return {
        "id": f"gpt-lr{n / 1000:.3f}-seed{n % 10}",
        "job": "gpt",
        "params": {"lr": n / 1000, "seed": n % 10},
        "host": name,
        "command": ["python", "train.py", "--lr", str(n / 1000)],
        "submitted": "2026-11-21T17:59:00.000000Z",
        "state": state,
        "chips": [f"{name}:{n % 4}"],
        "commit": "0123456789" * 4,
        "attempts": [start],
        "step": step,
        "metrics": {"train_loss": 3 / step, "test_loss": 3.1 / step, "steps": 2 * POINTS},
        "fleet": "bench",
        "heard": f"2026-11-21T18:{step // 60 % 60:02}:{step % 60:02}Z",
    }


def lines(first: int, last: int) -> str:
    """A run's metrics from one step to another."""
    records = ({"step": n, "train_loss": 3.14159 / n, "test_loss": 3.27182 / n} for n in range(first, last))
    return "".join(f"{json.dumps(record)}\n" for record in records)


def answers(step: int, since: int, active: int) -> list[bytes]:
    """What the hosts send when the first `active` runs have come to `step`, and the board has read to `since`."""
    file = json.dumps({"text": lines(since, step), "token": f"1:{step}:2", "anew": since == 1, "more": False})
    found: list[bytes] = []
    for at in range(HOSTS):
        here = range(at, RUNS, HOSTS)
        runs = [told(n, step if n < active else POINTS, "running" if n < active else "done") for n in here]
        chips = [{"index": chip, "state": "run", "run": runs[chip]["id"]} for chip in range(4)]
        news = json.loads(file)
        results = {state["id"]: {"metrics": news} for n, state in zip(here, runs, strict=True) if n < active}
        found.append(json.dumps({"probe": {"runs": runs, "chips": chips}, "results": results}).encode())
    return found


class Bench:
    """A board's look and feed, given what hosts would have sent."""

    def __init__(self) -> None:
        self.looking = FleetLook()
        self.feed = Feed()
        self.nodes = [
            Node(f"tpu-{n}", "z", "v2-8", NodeState.READY, "HEALTHY", f"id-{n}", (), {}) for n in range(HOSTS)
        ]
        self.ticks = 0.0

    def look(self, sent: Sequence[bytes]) -> None:
        self.ticks += 5
        heard = [self._answer(n, json.loads(data)) for n, data in enumerate(sent)]
        look = self.looking.take(Round(self.nodes, heard, datetime.now(UTC), self.ticks), Seating(), ())
        self.feed.take(look)

    def _answer(self, n: int, said: dict[str, Any]) -> Answer:
        return Answer.of(HostView(host(n), probe=trusted(said)), None, said)


def cpu_ms(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return 1000 * (time.thread_time() - begin)


def looks(bench: Bench, active: int) -> list[float]:
    """Milliseconds of processor time that looks take, each with a new point in each of the `active` runs."""
    bench.look(answers(POINTS + 1, POINTS, active))
    times: list[float] = []
    for step in range(POINTS + 2, POINTS + 2 + LOOKS):
        sent = answers(step, step - 1, active)
        times.append(cpu_ms(partial(bench.look, sent)))
    return times


def measured(active: int) -> dict[str, float]:
    """The first look, with all points; looks with news; one without; what a first viewer, and one more, take."""
    bench = Bench()
    everything = answers(POINTS, 1, RUNS)
    first = cpu_ms(partial(bench.look, everything))
    times = looks(bench, active)
    same = answers(POINTS + 1 + LOOKS, POINTS + 1 + LOOKS, active)
    return {
        "first look": first,
        "look (median)": statistics.median(times),
        "look (worst)": max(times),
        "look without news": cpu_ms(partial(bench.look, same)),
        "first viewer": cpu_ms(bench.feed.whole),
        "one more viewer": cpu_ms(bench.feed.whole),
        "bytes for a viewer": len(bench.feed.whole()[1]),
    }


def run(_place: Path) -> Sequence[Row | Skipped]:
    """For `python -m tests.bench`: looks with news of as many runs as the hosts have chips, against 100 ms."""
    bench = Bench()
    bench.look(answers(POINTS, 1, RUNS))
    note = f"{RUNS:,} runs with {POINTS:,} points, {ACTIVE} of them with a new one; hosts and network not counted"
    return [Row("the board's look, CPU", "100 ms", [ms / 100 for ms in looks(bench, ACTIVE)], note)]


def main() -> None:
    for active in (ACTIVE, RUNS):
        print(f"{RUNS:,} runs × {POINTS:,} points, of which {active:,} go on (ms of processor time):")
        for what, ms in measured(active).items():
            print(f"  {what:<20} {ms:10,.1f}")


if __name__ == "__main__":
    main()
