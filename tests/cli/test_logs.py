"""`tpufleet logs` of several runs, and what hostile logs and metrics can do to a terminal: nothing."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from tests.project import Project, until
from tests.terminal import on_terminal

TALKS = """\
import os, pathlib, sys, time
def wait(name):
    deadline = time.monotonic() + 120
    while not pathlib.Path(os.environ["GATES"], name).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
print("first", sys.argv[1], "attempt", os.environ["TPUFLEET_ATTEMPT"], flush=True)
wait("go")
for number in range(200):
    print(f"line {number} of {sys.argv[1]} " + "x" * 3000, flush=True)
print("no end", end="", flush=True)
"""
HOSTILE = """\
import json, os, pathlib
payloads = json.loads(pathlib.Path("payloads.json").read_text())
for number, payload in enumerate(payloads):
    print(f"payload {number}:", payload)
with (pathlib.Path(os.environ["TPUFLEET_RUN_DIR"]) / "metrics.jsonl").open("a") as file:
    for payload in payloads:
        print(json.dumps({"step": 3, "test_loss" + payload: 2.5}), file=file)
"""
JOBS = """\
  talks: {{command: [python3, talks.py, "{{seed}}"], grid: {{seed: [0, 1, 2]}}, env: {{GATES: "{gates}"}}, retries: 2}}
  endless: {{command: [python3, talks.py, "3"], env: {{GATES: "{gates}/never"}}}}
  hostile: {{command: [python3, hostile.py]}}
"""

PAYLOADS = [
    "\x1b[2J",  # erase the screen
    "\x1b[H",
    "\x1b[31mred",
    "\x1b[?1049h",  # the other screen
    "\x1b[?25l",
    "\x1b[6n",  # answers as if it was typed
    "\x1b[5i",  # print
    "\x1b[21t",  # report the title as if it was typed
    "\x1b]0;title\x07",
    "\x1b]2;title\x1b\\",
    "\x1b]8;;http://example.org\x07link\x1b]8;;\x07",
    "\x1b]52;c;cm0gLXJmIH4=\x07",  # the clipboard
    "\x1b]4;1;?\x07",
    "\x1b]1337;File=inline=1:AAAA\x07",
    "\x1bP$qm\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bXsos\x1b\\",
    "\x1bc",  # reset
    "\x1b(0",
    "\x1b#8",
    "\x9b2J",  # C1
    "\x9d52;c;aGk=\x9c",
    "\x90q\x9c",
    "\x85next",
    "\x07\x08\x08\x08",
    "\x0e\x0f",
    "\x7f\x7f",
    "\u202egnp.exe",  # bidi
    "\u2066x\u2069\u200f",
    "\u2028line\u2029",
    "over\rwritten",
]
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Three runs on two hosts that wait for `gates/go`, and one hostile run that has ended."""
    path = tmp_path_factory.mktemp("logs")
    (path / "gates").mkdir()
    project = Project.make(path / "project", count=2, jobs=JOBS.format(gates=path / "gates"))
    try:
        code = project.directory / "code"
        (code / "talks.py").write_text(TALKS)
        (code / "hostile.py").write_text(HOSTILE)
        (code / "payloads.json").write_text(json.dumps(PAYLOADS))
        project.commit("Talks")
        project.run("create")
        project.run("run", "hostile", "--follow")
        project.run("run", "talks")
        yield project
    finally:
        (path / "gates" / "go").touch()
        project.stop()


def test_all_that_run_are_followed_side_by_side_in_whole_lines_until_they_have_ended(talking: Project) -> None:
    with talking.popen("logs", "-f") as reading:
        assert reading.stdout
        first = sorted(reading.stdout.readline() for _ in range(3))
        assert first == [f"talks-seed{seed} │ first {seed} attempt 1\n" for seed in range(3)]

        (pid,) = (run["pid"] for run in talking.json("runs", "talks")["runs"] if run["id"] == "talks-seed1")
        talking.run("exec", "--", f"kill -9 {pid} 2>/dev/null || true")  # a new attempt begins by itself
        assert reading.stdout.readline() == "talks-seed1 │ first 1 attempt 2\n"

        (talking.directory.parent / "gates" / "go").touch()
        lines = reading.stdout.read().splitlines()
        assert reading.wait(60) == 0, reading.stderr and reading.stderr.read()
    for seed in range(3):
        name = f"talks-seed{seed} │ "
        mine = [line.removeprefix(name) for line in lines if line.startswith(name)]
        assert mine == [f"line {number} of {seed} " + "x" * 3000 for number in range(200)] + ["no end"]
    order = [line.partition(" ")[0] for line in lines]
    assert order != sorted(order), "side by side, not one after the other"

    again = talking.run("logs", "talks", "--all").stdout.splitlines()
    assert [line.partition(" ")[0] for line in again] == sorted(
        order + ["talks-seed1"] + [f"talks-seed{i}" for i in range(3)]
    )
    assert talking.run("logs", "-f", "talks").exit_code == 0, "those that have ended end at once"
    assert "nothing runs or waits" in talking.run("logs", "-f").stderr
    assert talking.run("logs", ok=False).exit_code == 2


def test_ctrl_c_leaves_the_runs_alone(talking: Project) -> None:
    talking.run("run", "endless")
    with on_terminal(talking, "logs", "-f") as terminal:
        terminal.until("first 3 attempt")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    assert re.search(rb"\x1b\[\d\dmendless +\xe2\x94\x82\x1b\[0m ", terminal.seen), "its name is coloured"
    assert "Traceback" not in terminal.text
    state = until(lambda: talking.json("runs", "endless")["runs"][0]["state"], "the state")
    assert state == "running"
    talking.run("stop", "endless")


@pytest.mark.parametrize(
    "words",
    [
        ["logs", "hostile"],
        ["logs", "hostile", "talks-seed2"],
        ["exec", "--", 'cat "$TPUFLEET_HOST_ROOT"/var/lib/tpufleet/runs/hostile/log.txt; true'],
        ["status"],
        ["runs"],
        ["top", "--once"],
        ["watch", "--once"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_nothing_that_a_run_writes_acts_on_a_terminal(talking: Project, words: list[str]) -> None:
    done = talking.run(*words)
    assert not (found := ACTING.findall(done.stdout + done.stderr)), found
    if words[0] in ("logs", "exec"):
        numbers = re.findall(r"payload (\d+):", done.stdout)
        written_over = {len(PAYLOADS) - 1} if len(words) == 3 and words[0] == "logs" else set[int]()
        assert set(map(int, numbers)) == set(range(len(PAYLOADS))) - written_over, "all are shown"
        assert "\\x1b]52;c;cm0gLXJmIH4=\\x07" in done.stdout
        assert "\\u202egnp.exe" in done.stdout


@pytest.mark.parametrize("words", [["runs"], ["logs", "hostile", "talks-seed2"], ["status"]], ids=" ".join)
def test_on_a_real_terminal_only_our_own_colours_are_left(talking: Project, words: list[str]) -> None:
    with on_terminal(talking, *words, width=200) as terminal:
        assert terminal.end() == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen.decode()).replace("\r\n", "\n")
    assert not (found := ACTING.findall(plain)), found
