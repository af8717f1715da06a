"""The trainings that the preemption tests disturb: one that any Python runs, and `jobs/gpt` with PyTorch.

Both have a state that a wrong resume would show in every later loss: weights, an optimizer's memory, random numbers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.project import Project

ROOT = Path(__file__).resolve().parents[2]
SEEDS = tuple(range(8))  # eight runs on two nodes with four chips each
RUNS = tuple(f"train-seed{seed}" for seed in SEEDS)

# Noisy gradient descent with momentum. A step takes its time, as steps do; what is big in a checkpoint is made of its
# step, so that a mixture of two checkpoints can't pass.
NOISY = """\
import hashlib, json, os, pathlib, random, shutil, sys, time

seed, steps, every, pace, size = (float(word) if "." in word else int(word) for word in sys.argv[1:])
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
points = run / "checkpoints"
resume = os.environ.get("TPUFLEET_RESUME")
draw = random.Random(seed)
weights = [draw.gauss(0, 1) for _ in range(50)]
speed = [0.0] * 50
done = 0
if resume:
    state = json.loads((pathlib.Path(resume) / "state.json").read_text())
    done, weights, speed = state["step"], state["weights"], state["speed"]
    draw.setstate((state["random"][0], tuple(state["random"][1]), state["random"][2]))
print("from", done, flush=True)

for name in ("metrics.jsonl", "completions.jsonl"):  # what came after that step is done again
    file = run / name
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    kept = [line for line in lines if line.endswith("\\n") and json.loads(line)["step"] <= done]
    (run / f".{name}").write_text("".join(kept))
    (run / f".{name}").replace(file)
points.mkdir(exist_ok=True)
for left in points.glob(".step-*"):
    shutil.rmtree(left)


def write(file, data):
    with file.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return {"path": file.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def save():
    aside = points / f".step-{done:08d}"
    aside.mkdir()
    state = {"step": done, "weights": weights, "speed": speed, "random": draw.getstate()}
    files = [write(aside / "state.json", json.dumps(state).encode())]
    for part in range(4):
        files.append(write(aside / f"part-{part}.bin", random.Random(done * 10 + part).randbytes(size // 4)))
    write(aside / "manifest.json", json.dumps({"step": done, "files": files}).encode())
    aside.rename(points / f"step-{done:08d}")
    for old in sorted(points.glob("step-*"))[:-2]:
        old.rename(old.with_name(f".{old.name}"))
        shutil.rmtree(old.with_name(f".{old.name}"))


with (run / "metrics.jsonl").open("a") as metrics, (run / "completions.jsonl").open("a") as completions:
    while done < steps:
        done += 1
        for at in range(50):
            speed[at] = 0.9 * speed[at] - 0.01 * (weights[at] + draw.gauss(0, 1))
            weights[at] += speed[at]
        loss = sum(weight * weight for weight in weights)
        time.sleep(pace)
        print(json.dumps({"step": done, "train_loss": loss}), file=metrics, flush=True)
        if done % 5 == 0:
            said = {"step": done, "prompt": "", "text": f"{draw.random():.3f}"}
            print(json.dumps(said), file=completions, flush=True)
        print(f"step {done}/{steps} loss {loss:.6f}", flush=True)
        if done % every == 0 or done == steps:
            save()
print("done", flush=True)
"""


@dataclass(frozen=True)
class Training:
    """A job `train` with a seed: its `command`, what is committed beside it, and what its records look like."""

    command: tuple[str, ...]
    files: Mapping[str, str]
    steps: int
    every: int  # steps between checkpoints
    line: re.Pattern[str]  # of the log, for each step
    beside: re.Pattern[str]  # any other whole line of the log
    passing: frozenset[str] = frozenset()  # what a record says besides: times, and of what start it is the first
    path: str = ""  # a directory first on the hosts' PATH
    env: Mapping[str, str] = field(default_factory=dict)

    def project(self, directory: Path, *, mirror_s: int, queued: bool = False) -> Project:
        """A user's project with this job in it, and a fleet of two nodes."""
        words = ", ".join(f'"{word}"' for word in self.command)
        env = ", ".join(f'{name}: "{value}"' for name, value in self.env.items())
        job = f"  train: {{command: [{words}], grid: {{seed: {list(SEEDS)}}}, env: {{{env}}}, mirror: {mirror_s}s}}\n"
        project = Project.make(directory, count=2, jobs=job)
        for name, text in self.files.items():
            (project.directory / "code" / name).write_text(text)
        project.commit("The training")
        file = project.directory / "tpufleet.yaml"
        text = file.read_text().replace("create_seconds: 0", f"create_seconds: 0, path: [{self.path}]")
        file.write_text(text.replace("accelerator: v2-8", f"accelerator: v2-8, queued: {str(queued).lower()}"))
        return project


def noisy(*, steps: int, every: int, pace: float, size: int) -> Training:
    """A training of `steps` that take `pace` seconds each, with checkpoints of `size` bytes."""
    return Training(
        command=("python3", "noisy.py", "{seed}", *map(str, (steps, every, pace, size))),
        files={"noisy.py": NOISY},
        steps=steps,
        every=every,
        line=re.compile(r"step (\d+)/\d+ loss \d+\.\d{6}"),
        beside=re.compile(r"from \d+|done"),
    )


def undisturbed(training: Training, directory: Path) -> dict[str, Path]:
    """What the noisy training leaves of itself, with no fleet around it: run -> its directory."""
    script = directory / "noisy.py"
    script.write_text(training.files["noisy.py"])
    homes: dict[str, Path] = {}
    for seed, run in zip(SEEDS, RUNS, strict=True):
        homes[run] = directory / run
        homes[run].mkdir()
        words = [word.format(seed=seed) for word in training.command[2:]]
        words[3] = "0.0"  # it need not take its time
        env = {"PATH": os.environ["PATH"], "TPUFLEET_RUN_DIR": str(homes[run])}
        with (homes[run] / "log.txt").open("w") as log:
            subprocess.run([sys.executable, str(script), *words], env=env, stdout=log, check=True, timeout=60)
    return homes


def gpt(python: str) -> Training:
    """`jobs/gpt` as its users run it, small enough for eight at once on two cores; `python` has PyTorch."""
    sizes = ["--context", "16", "--width", "16", "--mlp", "32", "--heads", "2", "--layers", "2", "--batch", "4"]
    reports = ["--eval-every", "1", "--eval-batch", "4", "--length", "1", "--dropout", "0.1"]
    course = ["--steps", "200", "--checkpoint-every", "20", "--threads", "1", "--corpus", "text.txt"]
    text = "".join(f'"It is {n} steps from the hall," said Holmes.\n' for n in range(300))
    return Training(
        command=("python", "train.py", *sizes, *reports, *course, "--seed", "{seed}"),
        files={"text.txt": text, **{file.name: file.read_text() for file in (ROOT / "jobs/gpt").glob("*.py")}},
        steps=200,
        every=20,
        line=re.compile(r'step +(\d+)/200  train +[\d.]+  test +[\d.]+ +[\d.]+ steps/s  "Elementary, my dear.?'),
        beside=re.compile(
            r"(device|text|model|writing|done) .*|step +0/200 .*|"
            r'|"Elementary, my dear.?'  # what the model said last, after an empty line
        ),
        passing=frozenset({"setup", "steps_per_second"}),
        path=str(Path(python).parent),
        env={"OMP_NUM_THREADS": "1"},
    )
