"""`tpufleet top`: every chip of the fleet, and no host that is silent keeps the others waiting."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.project import Project, until
from tests.terminal import on_terminal
from tpufleet.cli.top import _keys

TRAINS = """\
import json, os, pathlib, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
with (run / "metrics.jsonl").open("a") as file:
    print(json.dumps({"step": 500, "steps": 2000, "steps_per_second": 25, "test_loss": 2.5}), file=file, flush=True)
deadline = time.monotonic() + 600
while not pathlib.Path(os.environ["GATE"]).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
"""
JOBS = '  trains: {{command: [python3, trains.py], grid: {{seed: [0, 1]}}, env: {{GATE: "{gate}"}}}}\n'


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Two hosts, a run on each."""
    path = tmp_path_factory.mktemp("top")
    project = Project.make(path / "project", count=2, jobs=JOBS.format(gate=path / "gate"))
    try:
        (project.directory / "code" / "trains.py").write_text(TRAINS)
        project.commit("Trains")
        project.run("create")
        project.run("run", "trains")
        until(lambda: all(run["step"] == 500 for run in project.json("runs")["runs"]), "both to be at step 500")
        yield project
    finally:
        (path / "gate").touch()
        project.stop()


def test_once_it_shows_every_host_and_chip_and_how_far_the_runs_are(training: Project) -> None:
    shown = training.run("top").stdout
    assert shown.startswith("sherlock · 2 hosts · 8 chips: 6 free, 2 run\n")
    (row,) = (line.split() for line in shown.splitlines() if "trains-seed0" in line)
    assert row[0].startswith("tpu-")
    assert row[1:3] == ["run", "trains-seed0"]
    assert row[4:] == ["500/2000", "25", "1", "min", "2.5"]
    assert shown.count(" free") >= 6


def test_as_json_it_is_one_object_with_the_progress_of_each_chips_run(training: Project) -> None:
    answer = training.json("top", "--once")
    chips = {chip["run"]: chip for host in answer["hosts"] for chip in host["chips"]}
    told = {name: chips["trains-seed1"][name] for name in ("state", "step", "steps", "steps_per_second", "left_s")}
    assert told == {"state": "run", "step": 500, "steps": 2000, "steps_per_second": 25.0, "left_s": 60.0}
    assert all(host["load"] and host["memory"]["total"] for host in answer["hosts"])


@pytest.mark.parametrize("width", [80, 200])
def test_on_a_terminal_it_moves_until_q(training: Project, width: int) -> None:
    with on_terminal(training, "top", "--every", "0.5", width=width) as terminal:
        terminal.until("trains-seed1")
        terminal.until("q ends")
        terminal.type("q")
        assert terminal.end() == 0
    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= width
    assert "1 min" in terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize(
    ("typed", "ends"), [(b"xx\xff\xfe\x1b[200~q", True), (b"\xff\x1b[A junk", False), (b"\x04", True)]
)
def test_whatever_is_pasted_its_first_q_ends_and_the_terminal_is_as_before(
    monkeypatch: pytest.MonkeyPatch, typed: bytes, ends: bool
) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with os.fdopen(slave, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with _keys() as pressed:
            os.write(master, typed)
            assert pressed(10) is ends
            if not ends:
                os.close(master)
                assert pressed(10), "a terminal that is gone ends it"
                return
        assert termios.tcgetattr(slave) == before
    os.close(master)


def test_ctrl_c_is_a_good_end(training: Project) -> None:
    with on_terminal(training, "top") as terminal:
        terminal.until("trains-seed1")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    assert "interrupted" not in terminal.text


def test_a_silent_host_is_said_and_not_waited_for(training: Project) -> None:
    training.run("emulator", "fault", "partition", "tpu-1-w0")
    try:
        began = time.monotonic()
        answer = json.loads(training.run("top", "--json").stdout)
        assert time.monotonic() - began < 15, "a connection alone would be tried for longer"
        states = {host["name"]: (host["state"], len(host["chips"])) for host in answer["hosts"]}
        assert states == {"tpu-0-w0": ("ready", 4), "tpu-1-w0": ("unreachable", 0)}
        with on_terminal(training, "top", "--every", "0.5") as terminal:
            terminal.until("silent for")
            terminal.until("trains-seed")
            terminal.type("q")
            assert terminal.end() == 0
    finally:
        training.run("emulator", "fault", "clear")


def test_no_colour_and_a_dumb_terminal_are_respected(training: Project) -> None:
    with on_terminal(training, "top", "--once", NO_COLOR="1") as plain:
        assert plain.end() == 0
    assert b"\x1b[3" not in plain.seen, "no colours"
    with on_terminal(training, "top", TERM="dumb") as dumb:
        assert dumb.end() == 0, "one picture, as into a pipe"
    assert b"\x1b[3" not in dumb.seen


def test_status_stays_on_a_terminal_if_asked_to_until_ctrl_c(training: Project) -> None:
    with on_terminal(training, "status", "--follow", height=40) as terminal:
        terminal.until("Ctrl-C ends")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    assert "8 chips: 6 free, 2 run" in terminal.text


def test_status_into_a_pipe_is_one_look(training: Project) -> None:
    assert training.run("status", "--follow").stdout.count("trains-seed0") == 1
