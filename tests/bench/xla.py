"""`python -m tests.bench.xla`: what is promised of jobs/gpt on XLA, checked with torch_xla on this machine's CPU.

TPUFLEET_XLA_PYTHON names the Python that `jobs/xla_env.sh` made (default .venv-xla); BITESIZEDGPT a clone of the
workshop's repository, without which nothing is compared with it. A table says what was found; 1 if a promise is broken.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MOST_COMPILATIONS = 6
LEAST_TIMES_FASTER = 15
LARGEST_DIFFERENCE = 1e-3
# the workshop's model and batch, looked at more often
TRAINING = ("--eval-batch", "32", "--length", "12", "--checkpoint-every", "1000000")
# these change how a step runs, and not what it learns; the first is what the others are compared with
SAME = {
    "no option": (),
    "scan": ("--scan",),
    "compile": ("--compile",),
    "10 steps a launch": ("--steps-per-launch", "10"),
}
OTHER = {
    "AMP": ("--amp", "bf16"),
    "scan, dropout": ("--scan", "--dropout", "0.1"),
    "compile, cosine": ("--compile", "--schedule", "cosine", "--warmup", "5"),
    "cosine, tied, dropout": ("--schedule", "cosine", "--warmup", "5", "--tie-weights", "--dropout", "0.1"),
}
WAYS = ("growing", "fixed", "unrolled", "looped", "cpu")


class Finding(NamedTuple):
    what: str
    found: str
    holds: bool


class Trained(NamedTuple):
    """A training that ended: its records, what the model said meanwhile, and what it warned of."""

    records: list[dict[str, float]]
    said: list[str]
    warnings: list[str]


def train(place: Path, name: str, device: str, *options: str) -> Trained:
    """Runs train.py with the Python that has torch_xla; whatever it has to say goes to stderr when it fails."""
    out = place / name
    command = [python(), "-W", "ignore", str(ROOT / "jobs/gpt/train.py"), "--device", device, "--out", str(out)]
    done = subprocess.run(
        [*command, *TRAINING, *options],
        env={**os.environ, "PJRT_DEVICE": "CPU", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"xla: {name} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    records, completions = (
        [json.loads(line) for line in (out / file).read_text().splitlines()]
        for file in ("metrics.jsonl", "completions.jsonl")
    )
    warnings = [line for line in done.stdout.splitlines() if line.startswith("warning")]
    return Trained(records, [completion["text"] for completion in completions], warnings)


def python() -> str:
    return os.environ.get("TPUFLEET_XLA_PYTHON", str(ROOT / ".venv-xla" / "bin" / "python"))


def findings(place: Path) -> Iterator[Finding]:
    """Each promise, as soon as it is known whether it holds."""
    hundred = ("--steps", "100", "--eval-every", "25")
    xla, cpu = (train(place, device, device, *hundred) for device in ("xla", "cpu"))
    counts = [int(record["compilations"]) for record in xla.records]
    seconds = xla.records[-1]["compile_seconds"]
    yield Finding(
        "compilations in a run of 100 steps", f"{counts[-1]}, {seconds:.1f} s", counts[-1] <= MOST_COMPILATIONS
    )
    yield Finding("after the first evaluation of a step", str(counts[-1] - counts[1]), not xla.warnings)
    sent = (xla.records[-1]["transfers_to_device"] - xla.records[-2]["transfers_to_device"]) / 25
    yield Finding("transfers to the device for a step", f"{sent:.2f}", True)
    yield Finding("operations that fell back to the CPU", str(xla.records[-1].get("fallbacks", "none")), True)
    apart = max(abs(a["test_loss"] - b["test_loss"]) for a, b in zip(xla.records, cpu.records, strict=True))
    yield Finding("test losses of XLA and eager, most apart", f"{apart:.1e}", apart <= LARGEST_DIFFERENCE)
    same = sum(a == b for a, b in zip(xla.said, cpu.said, strict=True))
    yield Finding("completions that are eager's, byte for byte", f"{same} of {len(cpu.said)}", same > 0)
    losses: list[float] = []
    for name, options in (SAME | OTHER).items():
        run = train(place, name, "xla", "--steps", "20", "--eval-every", "10", *options)
        last = run.records[-1]
        losses.append(last["test_loss"])
        told = f"{last['compilations']:.0f} compilations, {last['compile_seconds']:.1f} s, loss {losses[-1]:.4f}"
        well = math.isfinite(losses[-1]) and last["compilations"] <= MOST_COMPILATIONS and not run.warnings
        as_without = name in OTHER or abs(losses[-1] - losses[0]) <= LARGEST_DIFFERENCE
        yield Finding(f"20 steps with {name}", told, well and as_without)
    yield from completions(place)
    if workshop := os.environ.get("BITESIZEDGPT"):
        yield first_text(workshop)


def completions(place: Path) -> Iterator[Finding]:
    """Exercise 6.2: each way to write a completion; what was compiled for the first one is there for the next."""
    for way in WAYS:
        out = place / way
        command = [python(), "-W", "ignore", str(ROOT / "jobs/gpt/exercise_6_2.py"), "--device", "xla", "--way", way]
        told = {**os.environ, "PJRT_DEVICE": "CPU", "PYTHONDONTWRITEBYTECODE": "1", "TPUFLEET_RUN_DIR": str(out)}
        subprocess.run([*command, "--times", "2"], env=told, stdout=subprocess.DEVNULL, check=True)
        first, later = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
        took = f"{first['compilations']} compiled, {first['ms_a_byte']:.0f} ms a byte; later {later['ms_a_byte']:.1f}"
        yield Finding(f"a completion of 32 bytes, {way}", took, later["compilations"] == 0)


def first_text(workshop: str) -> Finding:
    """How much sooner jobs/gpt has said its first 32 bytes than the workshop's way on XLA."""
    program = Path(__file__).with_name("first_text.py")
    found: list[list[dict[str, float]]] = []
    for name, directory in (("ours", str(ROOT / "jobs/gpt")), ("workshop", workshop)):
        command = [python(), "-W", "ignore", str(program), name, directory]
        found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    ours, theirs = found
    times = theirs[0]["seconds"] / ours[0]["seconds"]
    told = " against ".join(
        f"{side[0]['seconds']:.1f} s ({side[0]['compilations']:.0f} compilations; later {side[1]['seconds']:.2f} s)"
        for side in (theirs, ours)
    )
    return Finding("first text, the workshop's way and ours", f"{told}: {times:.0f} times", times >= LEAST_TIMES_FASTER)


def main() -> int:
    holds = True
    print("| on XLA:CPU | found | holds |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="tpufleet-xla-") as place:
        for finding in findings(Path(place)):
            print(f"| {finding.what} | {finding.found} | {'yes' if finding.holds else 'NO'} |", flush=True)
            holds &= finding.holds
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
