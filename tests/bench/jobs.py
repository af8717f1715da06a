"""`python -m tests.bench.jobs`: the training of jobs/gpt against the workshop's own repository, on this machine's CPU.

Both train with the same settings on the same text, in turn, so that a slow moment falls on both; then both train on,
and what they learned is compared, too. BITESIZEDGPT names a clone of the repository, else one is made. Ends with 1 if a
cycle isn't LEAST times as fast as the workshop's, or the losses are more than APART from each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.measure import Row, ratios, table

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/matomatical/bitesizedGPT"
TEXT = "data/sherlock-ascii.txt"
NAMES = ("jobs/gpt", "the workshop's")
STEPS = 10  # in a round
PROFILED = 10  # steps, in side.py
CYCLE = 100  # steps between two evaluations
LEAST = 1.4
APART = 0.01  # nats a byte


class Side:
    """One of the two, in a process of its own; see side.py."""

    def __init__(self, name: str, directory: Path, text: Path, threads: int) -> None:
        python = os.environ.get("TPUFLEET_JOBS_PYTHON", str(ROOT / ".venv-jobs" / "bin" / "python"))
        program = Path(__file__).with_name("side.py")
        self.process = subprocess.Popen(
            [python, "-W", "ignore", program, name, directory, text, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, words: str) -> Any:
        """What side.py answers to `words`."""
        assert self.process.stdin
        assert self.process.stdout
        print(words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"jobs: {words} had no answer; what went wrong is above")
        return json.loads(line)

    def round(self) -> tuple[list[float], list[float]]:
        """([clock, CPU] seconds of a step, the same of a cycle): `CYCLE` steps, an evaluation and a completion."""
        steps, look = self.ask(f"steps {STEPS}"), self.ask("look")
        step = [seconds / STEPS for seconds in steps]
        return step, [CYCLE * one + other for one, other in zip(step, look, strict=True)]


@contextmanager
def both(workshop: Path, threads: int) -> Iterator[tuple[Side, Side]]:
    """(ours, the workshop's), ready to train."""
    text = workshop / TEXT
    sides = (Side("ours", ROOT / "jobs" / "gpt", text, threads), Side("workshop", workshop, text, threads))
    try:
        yield sides
    finally:
        for side in sides:
            side.process.kill()
            side.process.wait()


def measure(sides: tuple[Side, Side], rounds: int) -> list[Row]:
    """How many times as long the workshop's takes."""
    for side in sides:
        side.round()  # to be warm
    ours, theirs = zip(*([side.round() for side in sides] for _ in range(rounds)), strict=True)
    rows: list[Row] = []
    for number, what in enumerate(("a training step", f"a cycle of {CYCLE} steps")):
        clock = [[one[number][0] for one in side] for side in (theirs, ours)]
        cpu = [[one[number][1] for one in side] for side in (theirs, ours)]
        took = " and ".join(f"{1000 * statistics.median(seconds):.0f} ms" for seconds in clock)
        note = f"{took}; counted in CPU time {statistics.median(ratios(*cpu)):.2f} times"
        rows.append(Row(f"the workshop's repository: {what}", "jobs/gpt", ratios(*clock), note))
    return rows


@contextmanager
def repository() -> Iterator[Path]:
    """The workshop's repository: the clone that BITESIZEDGPT names, or one of its own."""
    if named := os.environ.get("BITESIZEDGPT"):
        yield Path(named)
        return
    with tempfile.TemporaryDirectory(prefix="tpufleet-bench-") as place:
        done = subprocess.run(["git", "clone", "--quiet", "--depth", "1", REPOSITORY, place], check=False)
        if done.returncode:
            sys.exit(f"jobs: {REPOSITORY} can't be had; BITESIZEDGPT=DIRECTORY names a clone")
        yield Path(place)


def where_time_goes(sides: tuple[Side, Side]) -> None:
    for side, name in zip(sides, NAMES, strict=True):
        told = ", ".join(f"{operation} {ms:.1f}" for operation, ms in side.ask("profile"))
        print(f"where a step of {name} goes, in ms: {told}", flush=True)


def losses(sides: tuple[Side, Side], trained: int, steps: int) -> float:
    """Trains both on to `steps`; how far their test losses are apart then, in nats a byte."""
    found: list[float] = []
    for side, name in zip(sides, NAMES, strict=True):
        side.ask(f"steps {max(steps - trained, 0)}")
        found.append(loss := side.ask("loss"))
        print(f"test loss of {name} after {max(steps, trained):,} steps: {loss:.4f}", flush=True)
    return abs(found[0] - found[1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--losses", type=int, default=2000, metavar="STEPS", help="where to compare losses; 0: nowhere")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, {options.threads} threads, load {os.getloadavg()[0]:.1f} before\n", flush=True)
    with repository() as workshop, both(workshop, options.threads) as sides:
        rows = measure(sides, options.rounds)
        print(table(rows), end="\n\n")
        for row in rows:
            print(f"{row.what} and {row.against} took {row.note}")
        where_time_goes(sides)
        trained = STEPS * (options.rounds + 1) + PROFILED
        apart = losses(sides, trained, options.losses) if options.losses else 0.0
    return 0 if rows[-1].median >= LEAST and apart <= APART else 1


if __name__ == "__main__":
    sys.exit(main())
