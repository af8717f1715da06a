"""What came home from a hostile host: links, impossible times and steps, far too much of everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tpufleet
from tests.unit.report_data import write_home
from tpufleet import report
from tpufleet.ops.tensorboard import write_tensorboard
from tpufleet.pace import LONGEST_S, left_s
from tpufleet.report.load import load
from tpufleet.report.records import as_text, as_time
from tpufleet.ssh.agent import DEEPEST, _object
from tpufleet.text import natural


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_home(tmp_path / "sherlock", points=3)


def first(home: Path) -> Path:
    return min((home / "runs").iterdir())


def change(home: Path, **fields: Any) -> None:
    """Let the first run's record say something else."""
    listing = json.loads((home / "runs.json").read_text())
    listing["runs"][0].update(fields)
    (home / "runs.json").write_text(json.dumps(listing))


def test_a_link_in_place_of_a_run_is_not_read(home: Path) -> None:
    run = first(home)
    elsewhere = run.rename(home.parent / "elsewhere")
    (elsewhere / "log.txt").write_text("precious\n")
    run.symlink_to(elsewhere)
    (home / "runs/more").symlink_to(elsewhere)
    page = report.write(home)
    assert all("precious" not in file.read_text() for file in page.parent.iterdir())
    assert {"more", run.name}.isdisjoint(run.id for run in load(home).runs)
    assert "2 runs left out: a link in place of a run" in page.read_text()


@pytest.mark.parametrize("step", ["1e999", "-1e300", "NaN", "1" + "0" * 400, str(2**60)])
def test_a_completion_at_no_step_is_everywhere_without_one(home: Path, step: str) -> None:
    line = f'{{"step": {step}, "prompt": "p", "text": "pt"}}\n'
    (first(home) / "completions.jsonl").write_text(line)
    assert load(home).runs[0].completions[0].step is None
    write_tensorboard(home, home / "tensorboard")
    assert tpufleet.load(home).completions["step"].isna().sum() == 1
    report.write(home)


@pytest.mark.parametrize("years", [("0001", "9999"), ("9999", "9999"), ("1969", "2600")])
def test_times_at_the_end_of_the_calendar_are_none(home: Path, years: tuple[str, str]) -> None:
    started, ended = (f"{year}-12-30T23:59:59Z" for year in years)
    attempt = {"n": 1, "started": started, "ended": ended, "exit_code": 0, "chips": ["tpu-0-w0:0"], "host": "tpu-0-w0"}
    change(home, attempts=[attempt])
    node = {"name": "tpu-0", "created": started, "seen": ended, "hosts": ["tpu-0-w0"], "chips_per_host": 4}
    (home / "nodes.json").write_text(json.dumps({"nodes": [node]}))
    report.write(home)
    assert as_time(started) is as_time(ended) is None


def test_far_too_many_attempts_and_chips_are_cut(home: Path) -> None:
    began = "2026-11-21T04:00:00Z"
    attempt = {"n": 1, "started": began}
    change(home, attempts=[{**attempt, "chips": ["tpu-0-w0:0"] * 2_000}, *[attempt] * 2_000])
    run = load(home).runs[0]
    assert len(run.attempts) == len(run.attempts[0].chips) == 1_000
    nodes = [
        {"name": f"n{i}", "created": began, "hosts": [f"n{i}-w{j}" for j in range(64)], "chips_per_host": 64}
        for i in range(2_000)
    ]
    (home / "nodes.json").write_text(json.dumps({"nodes": nodes}))
    found = load(home).nodes
    assert len(found) == 2_000
    assert sum(len(node.chips) for node in found) <= 40_000


WRITES = """
import sys
from pathlib import Path
from tpufleet import report
from tpufleet.ops.exports import write_parquet
from tpufleet.ops.tensorboard import write_tensorboard
home = Path(sys.argv[1])
sys.stdin.read()
report.write(home), write_parquet(home), write_tensorboard(home, home / "tensorboard")
"""


def test_whoever_writes_at_the_same_time_finds_all_whole(home: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(home)]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for writer in writers:
        assert writer.stdin
        writer.stdin.close()  # now, all of them
    said = [writer.stderr.read() for writer in writers if writer.stderr]
    assert [(writer.wait(60), words) for writer, words in zip(writers, said, strict=True)] == [(0, "")] * 2
    assert not list(home.rglob(".*"))
    assert len(list(home.glob("tensorboard/*/*"))) == 8


def test_what_is_nested_beyond_reason_is_no_answer_of_a_host() -> None:
    for left, right in (("[", "]"), ('{"a":', "}")):
        inner = left * (DEEPEST - 1) + "1" + right * (DEEPEST - 1)
        assert _object(f'{{"a":{inner}}}'.encode()) is not None
        assert _object(f'{{"a":{left}{inner}{right}}}'.encode()) is None


def test_what_can_be_read_but_not_written_is_no_text() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert as_text(value) == "…"
    while value:  # taken apart by hand: freeing it all at once would go as deep
        value = value.pop()


@pytest.mark.parametrize("rate", [1e-300, 1e-12, float("nan"), float("inf"), -1.0, 0.0])
def test_how_long_it_takes_is_not_said_where_it_is_beyond_all_measure(rate: float) -> None:
    assert left_s(1, 10**15, rate) is None
    assert left_s(0, 100, 100 / LONGEST_S * 1.01) is not None


def test_what_only_looks_like_a_number_is_sorted_as_text() -> None:
    assert sorted(["x²", "x10", "x2", "²", "٣"], key=natural) == ["x2", "x10", "x²", "²", "٣"]
    natural("9" * 10_000)
