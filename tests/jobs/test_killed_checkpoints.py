"""SIGKILL in the middle of a checkpoint's write: what is loaded after it is whole, and the last that was finished."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.host.conftest import host, library, make_host
from tests.host.harness import Host
from tpufleet.host import checkpoints

from .trainings import GPT, Trainings, wait_until

__all__ = ["host", "library", "make_host"]  # fixtures

KILLS = 50
LONGEST_WRITE_S = 0.02


def newest(folder: Path) -> int:
    """The newest step that bears its final name; 0 for none."""
    return int((checkpoints.names(folder) or ["step-0"])[0].removeprefix("step-"))


class Writer:
    """The process that writes; see writes.py."""

    def __init__(self, job: Trainings, folder: Path) -> None:
        self.folder = folder
        self.finished = folder.parent / "finished"
        program = Path(__file__).with_name("writes.py")
        self.process = subprocess.Popen(
            [job.python, program, GPT, folder, self.finished],
            env=job.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, word: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        print(word, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def last_finished(self) -> int:
        return int(self.finished.read_text().split()[-1]) if self.finished.exists() else 0

    def kill_while_it_writes(self, dice: random.Random) -> bool:
        """SIGKILL at a moment after a write has begun; whether it was still at it."""
        goal = newest(self.folder) + dice.randint(1, 3)
        pid = int(self.ask("write"))
        aside = self.folder / f".step-{goal:08d}"
        try:
            # a quick machine may be through with it between two looks
            wait_until(lambda: aside.exists() or newest(self.folder) >= goal, f"{aside.name} to be begun")
            threading.Event().wait(dice.uniform(0, LONGEST_WRITE_S))
        finally:
            os.kill(pid, signal.SIGKILL)
        assert self.process.stdout
        assert self.process.stdout.readline() == "gone\n"
        return (self.folder / f".step-{newest(self.folder) + 1:08d}").exists()


def kill_and_look(host: Host, job: Trainings, kills: int, seed: int) -> None:
    """So many kills that hit a write; after each, everybody who may load or take a checkpoint is asked."""
    host.enqueue(host.spec("gpt"))
    host.wait_for("gpt", "done")
    dice = random.Random(seed)  # noqa: S311 - repeatable moments, no secret
    folder = host.run_dir("gpt") / "checkpoints"
    writer = Writer(job, folder)
    with writer.process:
        hits = tries = last = 0
        while hits < kills:
            tries += 1
            assert tries < 5 * kills, f"only {hits} of {tries} kills came while it wrote"
            hit = writer.kill_while_it_writes(dice)
            hits += hit
            about = f"seed {seed}, kill {tries}"
            loaded = json.loads(writer.ask("look"))
            assert loaded["whole"], about
            last = max(last, writer.last_finished())  # who is killed after a write, before its note, finished it, too
            assert loaded["step"] in ((last,) if hit else (last, last + 1)), about
            last = loaded["step"]
            assert checkpoints.newest_verified(folder) == folder / f"step-{last:08d}" or not last, about
            offered = host.call("manifest", runs=["gpt"])["runs"][0]["checkpoints"]
            assert [point["step"] for point in offered if not point["verified"]] == [], about
            assert [point["step"] for point in offered][-1:] == [last][: len(offered)], about
        writer.process.stdin.close()


def test_a_checkpoint_whose_writer_is_killed_is_never_loaded_torn(host: Host, job: Trainings) -> None:
    kill_and_look(host, job, kills=6, seed=0)


@pytest.mark.faults
def test_fifty_kills_during_a_checkpoint_s_write_never_make_a_torn_load(host: Host, job: Trainings) -> None:
    kill_and_look(host, job, kills=KILLS, seed=1)
