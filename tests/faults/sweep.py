"""A sweep that is disturbed at a moment of the test's choice, and the judge of how it ended.

The trainings of the machine that is to go are frozen (SIGSTOP) a moment before: then what they had done by the fault
is known exactly, and a fault that is meant for the middle of a write happens in the middle of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.faults.trainings import RUNS, Training
from tests.project import Project
from tpufleet.testing import TpuCloud

HOSTS = ("tpu-0-w0", "tpu-1-w0")
PATIENCE_S = 120.0
SLACK = 5.0  # times what `tpufleet run` took in this test: how late a busy machine may be with a mirror


@dataclass(frozen=True)
class Loss:
    """A run on the machine that goes: what it had done on its host, and what of that was home."""

    step: int  # of the last record on the host
    done: bool  # all its steps, and they were not home
    aside: tuple[str, ...]  # checkpoints that were being written there
    home_step: int  # of the last record that is home: where the run was when it was last mirrored
    home_age: float  # how many seconds ago that was (or, before the first time, the run's start)
    known: bool  # at home, as one that began


class Sweep:
    """Eight runs of a training on two nodes."""

    def __init__(self, project: Project, training: Training) -> None:
        self.project, self.training = project, training
        self.losses: dict[str, Loss] = {}
        self.watching: subprocess.Popen[str] | None = None
        self.slack_s = 0.0
        project.run("create")

    @cached_property
    def cloud(self) -> TpuCloud:
        """The rehearsal cloud, asked without a command in between: a fault happens in milliseconds."""
        running = self.project.json("emulator", "status")
        return TpuCloud(self.project.directory / ".tpufleet/emulator", running["url"], running["ssh_port"])

    def run(self) -> None:
        begun = time.monotonic()
        assert len(self.project.json("run", "train")["placed"]) == len(RUNS)
        self.slack_s = SLACK * (time.monotonic() - begun)

    def watch(self, interval: str = "1s") -> subprocess.Popen[str]:
        self.watching = self.project.popen("watch", "--until-done", "--interval", interval)
        return self.watching

    def end_watch(self) -> None:
        """After a test that failed: a watch that nobody waits for any more."""
        if self.watching and self.watching.poll() is None:
            self.watching.kill()
            self.watching.communicate()

    # ----------------------------------------------------------------------------------------- what is where

    def home(self, run: str) -> Path:
        return self.project.directory / "artifacts/sherlock/runs" / run

    def on(self, host: str) -> dict[str, Path]:
        """The directories of the runs that a host has."""
        base = self.project.directory / ".tpufleet/emulator/hosts" / host / "root/var/lib/tpufleet/runs"
        return {path.name: path for path in base.glob("train-*")}

    def progress(self) -> float:
        """How much of the sweep is done, by all hosts' records: 0 to 1."""
        steps = sum(last_step(path) for host in HOSTS for path in self.on(host).values())
        return steps / (self.training.steps * len(RUNS))

    def state(self, run: str) -> dict[str, Any]:
        """A run as its host has it written down."""
        there = [path for host in HOSTS for name, path in self.on(host).items() if name == run]
        return read(there[0].parents[1] / "control" / run / "state.json") if there else {}

    # ----------------------------------------------------------------------------------------- the moment

    def freeze(self, host: str) -> None:
        """Stop every training of a host where it stands, and write down what its end will cost."""
        self._signal(host, signal.SIGSTOP)
        for run, directory in self.on(host).items():
            state, home = self.state(run), read(self.home(run) / "run.json")
            is_home = home.get("state") == "done" and not home.get("incomplete")
            if state["attempts"] and not is_home:
                self.losses[run] = self._loss(run, directory, state)

    def _loss(self, run: str, directory: Path, state: Mapping[str, Any]) -> Loss:
        home = self.home(run)
        started = datetime.fromisoformat(state["attempts"][-1]["started"]).timestamp()
        return Loss(
            step=last_step(directory),
            done=last_step(directory) == self.training.steps,
            aside=tuple(path.name for path in (directory / "checkpoints").glob(".step-*")),
            home_step=last_step(home),
            home_age=time.time() - (read(home / ".collected.json").get("mirrored") or started),
            known=bool(read(home / "run.json").get("attempts")),
        )

    def _signal(self, host: str, number: signal.Signals) -> None:
        for run in self.on(host):
            state = self.state(run)
            if state.get("state") == "running":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(state["pid"]), number)

    def freeze_when(self, host: str, condition: Callable[[], Any], what: str) -> None:
        """Freeze the host's trainings while `condition` holds: it is true before and still true when they stand."""

        def caught() -> bool:
            if not condition():
                return False
            self.freeze(host)
            if condition():
                return True
            self.losses.clear()
            self._signal(host, signal.SIGCONT)
            return False

        spin(caught, what)

    def saving(self, host: str) -> list[Path]:
        """The checkpoints that are being written on a host, begun and not finished."""
        return [aside for path in self.on(host).values() for aside in (path / "checkpoints").glob(".step-*")]

    def mirroring(self, host: str) -> list[Path]:
        """The files of the host's checkpoints that are half home."""
        parts = [file for run in self.on(host) for file in (self.home(run) / ".parts/checkpoints").glob("*/*")]
        return [file for file in parts if 0 < size_of(file) < self._whole(host, file)]

    def _whole(self, host: str, part: Path) -> int:
        run, checkpoint = part.parents[3].name, part.parent.name.partition(".")[0]
        return size_of(self.on(host)[run] / "checkpoints" / checkpoint / part.name)

    # ----------------------------------------------------------------------------------------- the judge

    def judge(self, reference: Mapping[str, Path], reason: str, *, mirror_s: float | None) -> None:
        """All runs are done, with the records of an undisturbed sweep. Those that the fault hit (`reason`) went on from
        a checkpoint at most one interval older than the step they had when they were last mirrored, at most `mirror_s`
        before the fault; None: than the step they had when they were hit, by a fault that leaves the host its disk.
        """
        states = {state["id"]: state for state in self.project.json("runs", "train")["runs"]}
        assert sorted(states) == sorted(RUNS)
        for run, state in states.items():
            assert state["state"] == "done", (run, state["state"], state["reason"])
            assert state["step"] == self.training.steps
            self._judge_attempts(run, state, reason, has_disk=mirror_s is None)
            if len(state["attempts"]) > 1:
                self._judge_loss(run, state, mirror_s)
            self._judge_files(run, reference[run])

    def _judge_attempts(self, run: str, state: Mapping[str, Any], reason: str, *, has_disk: bool) -> None:
        reasons = [attempt["reason"] for attempt in state["attempts"]]
        loss = self.losses.get(run)
        if loss is None:
            assert reasons == [None], run
        elif loss.done or not (loss.known or has_disk):  # it may have ended, come home, or become known just then
            assert reasons in ([reason, None], [None]), run
        else:
            assert reasons == [reason, None], run

    def _judge_loss(self, run: str, state: Mapping[str, Any], mirror_s: float | None) -> None:
        loss = self.losses[run]
        resumed = int((state["resumed_from"] or "step-0").removeprefix("step-"))
        sure = loss.step if mirror_s is None else loss.home_step
        # one step more: the record of a checkpoint's step is written before it, and listed after it
        assert sure - resumed <= self.training.every + 1, f"{run} went on from {resumed}: {loss}"
        if mirror_s is not None:
            assert loss.home_age <= mirror_s + self.slack_s, f"{run} was not mirrored in time: {loss}"

    def _judge_files(self, run: str, reference: Path) -> None:
        home = self.home(run)
        for name in ("metrics.jsonl", "completions.jsonl"):
            assert self._records(home / name) == self._records(reference / name), f"{name} of {run}"
        self._judge_log(run, (home / "log.txt").read_text())
        last = f"step-{self.training.steps:08d}"
        assert (home / "checkpoints" / last / "manifest.json").exists()
        assert not (home / ".parts").exists()

    def _records(self, file: Path) -> list[dict[str, Any]]:
        """JSON's numbers are read back to the last bit."""
        records = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
        return [{name: value for name, value in one.items() if name not in self.training.passing} for one in records]

    def _judge_log(self, run: str, log: str) -> None:
        """Every line is whole, and every step has one; a step stands there again only where the run began again."""
        assert log.endswith("\n")
        steps: list[int] = []
        begun = True
        for line in log.splitlines():
            if found := self.training.line.fullmatch(line):
                step = int(found.group(1))
                assert not steps or step == steps[-1] + 1 or (begun and step <= steps[-1]), f"{run}: {step}\n{log}"
                steps.append(step)
                begun = False
            else:
                assert self.training.beside.fullmatch(line), f"{run}: a torn line: {line!r}\n{log}"
                begun = True
        assert sorted(set(steps)) == list(range(1, self.training.steps + 1)), run


def spin(condition: Callable[[], Any], what: str) -> None:
    """`until`, for moments that last milliseconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.001)


def last_step(directory: Path) -> int:
    """The step of the last whole record of a run's metrics; 0 before the first."""
    try:
        with (directory / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return 0
    with contextlib.suppress(IndexError, ValueError):
        return int(json.loads(lines[-1])["step"])
    return 0


def read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(file.read_text())
    return {}


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
