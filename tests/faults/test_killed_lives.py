"""Whole lives of a fleet whose commands are killed at random moments; in the end it is as if nobody had disturbed them.

A life is made by dice: commands in any order and two at a time, most of them killed after a random while, machines
that are taken away in between. At its end every run is done, each attempt was started once, all is home and whole, and
nothing is billed.
"""

from __future__ import annotations

import random
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.judge import NODES, Stage, short, stage

LONGEST_S = 1.5  # on a machine with nothing else to do most commands end within this time
SIGNALS = (signal.SIGKILL,) * 4 + (signal.SIGINT, signal.SIGTERM)
# Interrupted, a command says so; what comes before it can is Python's own end.
ENDS = {
    signal.SIGKILL: (-signal.SIGKILL,),
    signal.SIGINT: (130, -signal.SIGINT),
    signal.SIGTERM: (143, -signal.SIGTERM),
}
REFUSALS = (0, 2, 4, 5, 6, 8)  # there may be no fleet, no report, no host that answers, another command at work


@dataclass
class Life:
    """One life on a stage; `story` is what was done, for the message of a failure."""

    on: Stage
    dice: random.Random
    kills: int
    story: list[str] = field(default_factory=list[str])
    sweeps: int = 1

    def sweep(self, number: int) -> list[str]:
        return ["run", "work", "--grid", f"seed={2 * number},{2 * number + 1}"]

    @property
    def runs(self) -> list[str]:
        return [f"work-seed{seed}" for seed in range(2 * self.sweeps)]

    def live(self) -> None:
        """Until so many kills have hit; then everything that was asked for is asked for once more."""
        while self.kills:
            match self.dice.choices(("anything", "delete", "another sweep", "vanish"), (7, 1, 1, 1))[0]:
                case "delete":
                    self.disturb("delete", "--yes")
                case "another sweep" if self.sweeps < 3:
                    self.sweeps += 1
                    self.disturb(*self.sweep(self.sweeps - 1))
                case "vanish":
                    self.take_away(self.dice.choice(NODES))
                case _:
                    again = self.sweep(self.dice.randrange(self.sweeps))
                    self.disturb(*self.dice.choice((["create"], again, again, ["sync"], WATCH, WATCH, ["collect"])))
        for words in (["create"], *map(self.sweep, range(self.sweeps))):
            self.story.append(f"at last {' '.join(words)}")
            self.on.settle(*words)

    def take_away(self, node: str) -> None:
        if node in map(short, self.on.alive()):
            self.story.append(f"{node} vanishes")
            self.on.cloud.faults.vanish(node)

    def disturb(self, *words: str) -> None:
        """Type the command and end it after a random while, unless it was over before; now and then beside a watch."""
        number, moment = self.dice.choice(SIGNALS), self.dice.uniform(0.0, LONGEST_S)
        beside = self.on.project.popen(*WATCH) if self.dice.random() < 0.2 else None
        self.story.append(
            f"{' '.join(words)}, {number.name} after {moment:.3f} s{', beside a watch' if beside else ''}"
        )
        with self.on.project.popen(*words) as process:
            try:
                process.wait(timeout=moment)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            self.judge(process, *REFUSALS, *ENDS[number])
        self.kills -= process.returncode in ENDS[number]
        if beside:
            with beside:
                self.judge(beside, *REFUSALS)

    def judge(self, process: subprocess.Popen[str], *ends: int) -> None:
        out, err = process.communicate(timeout=300)
        self.story.append(f"  ended with {process.returncode}")
        assert process.returncode in ends, (out, err)
        assert "Traceback" not in err or process.returncode == -signal.SIGINT, err


WATCH = ["watch", "--once"]
IN_EVERY_RUN = pytest.param(0, 4)
IN_FAULTS = [pytest.param(seed, 10, marks=pytest.mark.faults) for seed in range(1, 21)]


@pytest.mark.parametrize(("seed", "kills"), [IN_EVERY_RUN, *IN_FAULTS])
def test_a_life_with_kills_at_random_moments_ends_as_if_nothing_had_happened(
    seed: int, kills: int, tmp_path: Path
) -> None:
    with stage(tmp_path) as on:
        life = Life(on, random.Random(seed), kills)  # noqa: S311 - repeatable dice, no secret
        try:
            life.live()
            judge(life)
        except AssertionError as error:
            raise AssertionError("\n".join([f"life {seed}: {error}", *life.story])) from error


def judge(life: Life) -> None:
    on = life.on
    on.judge_one_at_a_time()
    assert sorted(map(short, on.alive())) == sorted(NODES)
    on.let_go(*life.runs)
    on.settle("collect")
    on.judge_home(*life.runs)
    on.judge_starts()
    on.settle("delete", "--yes")
    on.judge_gone()
    on.judge_leftovers()
