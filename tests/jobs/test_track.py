"""--track: the losses go to Weights & Biases or trackio as well, each step once, however often the run was started.

The libraries are no part of what is installed for tests: TPUFLEET_TEST_TRACKERS names a `site-packages` that has them
(made by the same Python as the jobs'), and without it the tests that need one are skipped.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from .trainings import Trainings, load_module, records

TRACKERS = os.environ.get("TPUFLEET_TEST_TRACKERS", "")
# An offline file is a log in LevelDB's format (blocks of 32 kB, pieces with 7 bytes of header) behind 7 bytes of W&B's.
READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
data, said, record = open(sys.argv[1], "rb").read(), [], b""
at = 7
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
    record += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (2, 3):
        continue
    message, record = wandb_internal_pb2.Record.FromString(record), b""
    items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in message.history.item}
    said += [items] if items else []
    if message.WhichOneof("record_type") == "run":
        about = {"id": message.run.run_id, "project": message.run.project}
print(json.dumps([about, said]))
"""


def need(job: Trainings, package: str) -> dict[str, str]:
    """The environment in which the job finds the tracker's package; skips the test where there is none."""
    env = {"PYTHONPATH": TRACKERS, "TPUFLEET_RUN_ID": "gpt-lr0.01"}
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    if subprocess.run([job.python, "-c", program], env=job.environment(env), check=False).returncode:
        pytest.skip(f"{package} is not installed; TPUFLEET_TEST_TRACKERS names a site-packages that has it")
    return env


def train_and_go_back(job: Trainings, out: Path, tracker: str, **env: str) -> None:
    """A training of 40 steps, then, as if its last checkpoint had been lost with a machine, on to 60 from step 30."""
    words = [*job.small, "--track", tracker]
    for steps in ("40", "60"):
        done = job.run(*words, "--steps", steps, TPUFLEET_RUN_DIR=str(out), **env)
        assert done.returncode == 0, done.stdout + done.stderr
        if steps == "40":
            shutil.rmtree(out / "checkpoints/step-00000040")
    assert [record["step"] for record in records(out)] == [0, 10, 20, 30, 40, 50, 60]


def test_trackio_is_told_each_step_once(job: Trainings, tmp_path: Path) -> None:
    env = need(job, "trackio")
    out = tmp_path / "out"
    train_and_go_back(job, out, "trackio", **env)
    with sqlite3.connect(out / "trackio/tpufleet.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
    assert [(run, step) for run, step, _ in rows] == [("gpt-lr0.01", step) for step in range(0, 61, 10)]
    assert json.loads(rows[-1][2])["test_loss"] == pytest.approx(records(out)[-1]["test_loss"])


def test_wandb_is_told_each_step_once_of_one_run(job: Trainings, tmp_path: Path) -> None:
    env = {**need(job, "wandb"), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    out = tmp_path / "out"
    train_and_go_back(job, out, "wandb", **env)
    told: list[dict[str, float]] = []
    for file in sorted(out.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        words = [job.python, "-c", READ_WANDB, str(file)]
        read = subprocess.run(words, env=job.environment(env), capture_output=True, text=True, check=True).stdout
        about, said = json.loads(read)
        assert about == {"id": "gpt-lr0.01", "project": "tpufleet"}
        told += said
    assert [record["_step"] for record in told] == list(range(0, 61, 10))
    assert [r["test_loss"] for r in told] == pytest.approx([r["test_loss"] for r in records(out)])


def test_a_tracker_that_is_not_installed_is_one_sentence(job: Trainings, tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text("raise ImportError('as if it were not installed')\n")
    said = job.refusal(2, "--out", tmp_path / "out", "--track", "wandb", PYTHONPATH=str(tmp_path))
    assert said == "train.py: --track wandb needs the package wandb: pip install wandb\n"


def test_without_a_tracker_nothing_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    track = load_module("track")
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
        with pytest.raises(track.TrackError, match=f"--track {name} needs the package {name}: pip install {name}"):
            track.start(name, {}, tmp_path, None, print)
    assert track.start("none", {}, tmp_path, None, print) is None


class Notebook:
    """A run of a tracker's, as far as it is used."""

    def __init__(self) -> None:
        self.told: list[tuple[int, dict[str, object]]] = []

    def log(self, metrics: dict[str, object], step: int) -> None:
        self.told.append((step, metrics))


def test_what_was_told_is_not_told_again_and_only_numbers_are() -> None:
    notebook = Notebook()
    tracker = load_module("track").Tracker(notebook, first=21)
    for step in (10, 20, 30):
        tracker.log(step, {"test_loss": 2.5, "setup": {"device": "cpu"}})
    assert notebook.told == [(30, {"test_loss": 2.5})]


def test_the_last_recorded_step_is_found_behind_a_torn_line(tmp_path: Path) -> None:
    module = load_module("records")
    path = tmp_path / "metrics.jsonl"
    assert module.last_step(path) is None
    path.write_text('{"step": 10}\n{"step": 30}\n{"step": 20}\nnonsense\n{"step": 40')
    assert module.last_step(path) == 30
