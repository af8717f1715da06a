"""on-chip: what its command finds, how it is signalled and ends, and what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tpufleet.host.tools import on_chip

from .harness import PYTHON, wait_until
from .tools import SLEEP, Desk, desk, ended, read

__all__ = ["desk"]  # a fixture


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_on_chip_reaches_the_command_once(desk: Desk, number: signal.Signals) -> None:
    script = (
        "import signal, sys, pathlib\n"
        f"signal.signal({number:d}, lambda *_: print('heard', flush=True))\n"
        "pathlib.Path('ready').touch()\nsignal.pause()\nsys.exit(9)"
    )
    process = desk.start("on-chip", "1", "--", PYTHON, "-c", script)
    wait_until((desk.home / "ready").exists, "the command is ready")
    process.send_signal(number)
    assert process.communicate(timeout=30) == ("heard\n", "")
    assert process.returncode == 9
    assert desk.run(desk.runs()[0])["exit_code"] == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_that_a_signal_ended_is_told_as_shells_do(desk: Desk, number: signal.Signals) -> None:
    assert desk.on_chip("1", "--", "sh", "-c", f"kill -{number:d} $$").returncode == 128 + number
    assert desk.run(desk.runs()[0])["exit_code"] == 128 + number
    assert desk.states() == ["free"] * 4


def test_a_command_has_the_signals_a_shell_would_give_it(desk: Desk) -> None:
    look = ("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
    plain = subprocess.run(look, capture_output=True, text=True, check=True).stdout  # whoever runs us may ignore some
    assert desk.on_chip("cpu", "--", *look).stdout == plain
    assert "SigBlk:\t0000000000000000\n" in plain


def test_ctrl_c_at_any_moment_is_quiet_and_leaves_the_chip_free(desk: Desk) -> None:
    for n in range(12):
        process = desk.start("on-chip", "1", "--", *SLEEP, start_new_session=True)
        wait_until(lambda pid=process.pid: catches_nothing_of_python(pid), "it has begun", 10)
        time.sleep(n * 0.003)  # somewhere between its beginning and its command's
        os.killpg(process.pid, signal.SIGINT)
        code, said = ended(process)
        assert (code in (-signal.SIGINT, 128 + signal.SIGINT), said) == (True, "")
    assert desk.states() == ["free"] * 4


def catches_nothing_of_python(pid: int) -> bool:
    """Whether a process has put SIGINT back to what it does by itself; until then Python would write a traceback."""
    status = Path(f"/proc/{pid}/status").read_text()
    words = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    return bool(int(words["SigIgn"], 16) & 1 << (signal.SIGPIPE - 1)) and not int(words["SigCgt"], 16) & 1 << 1


@pytest.mark.parametrize(("name", "code"), [("no-such-thing", 127), ("./no/such", 127), ("./plain", 126)])
def test_a_command_that_cannot_begin_leaves_nothing_behind(desk: Desk, name: str, code: int) -> None:
    (desk.home / "plain").touch()
    refused = desk.on_chip("1", "--", name)
    assert refused.returncode == code
    assert refused.stderr.startswith(f"on-chip: {name}: ")
    assert list((desk.home / "runs").iterdir()) == []
    assert desk.states() == ["free"] * 4


def test_on_the_cpu_no_chip_is_taken(desk: Desk) -> None:
    desk.sit({"ada": [0]})
    with desk.busy("cpu", "--", "sh", "-c", "env > told; exec sleep 600") as process:
        told = wait_until(lambda: read(desk.home / "told"), "the environment").splitlines()
        assert {"PJRT_DEVICE=CPU", "JAX_PLATFORMS=cpu"} <= set(told)
        assert not [line for line in told if line.startswith("TPU_")]
        assert desk.states() == ["seat", "free", "free", "free"]
        process.terminate()
    assert desk.run(desk.runs()[0])["chip"] == "cpu"
    for chip in range(4):
        desk.device(chip).unlink()
    assert desk.on_chip("cpu", "--", "true").returncode == 0
    assert "on-chip cpu -- COMMAND" in desk.on_chip("--", "true").stderr


def test_runs_of_one_second_have_names_of_their_own(desk: Desk) -> None:
    crowd = [desk.start("on-chip", "cpu", "--", "true") for _ in range(5)]
    assert {ended(one) for one in crowd} == {(0, "")}
    assert len(desk.runs()) == 5


@pytest.mark.parametrize("where", [".", "deep/er"])
def test_the_python_of_the_clone_s_venv_comes_first(desk: Desk, where: str) -> None:
    clone = desk.home / "clone"
    for folder in (".git", ".venv/bin", "deep/er"):
        (clone / folder).mkdir(parents=True)
    python = clone / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho mine "$VIRTUAL_ENV"\n')
    python.chmod(0o755)
    told = desk.on_chip("cpu", "--", "python", cwd=clone / where)
    assert told.stdout == f"mine {clone}/.venv\n"
    if os.getuid() == 0:
        os.chown(clone / ".venv", 61001, 61001)
        assert "mine" not in desk.on_chip("cpu", "--", "python", "--version", cwd=clone / where).stdout


def test_what_a_person_shares_can_be_read_by_the_operator_and_by_nobody_else(desk: Desk) -> None:
    shared = desk.base / "people/ada"
    shared.mkdir(parents=True)
    shared.chmod(0o2750)
    (desk.home / "runs").symlink_to(shared)
    script = (
        "umask 077; exec on-chip cpu -- sh -c 'echo 1 > $TPUFLEET_RUN_DIR/metrics.jsonl; mkdir $TPUFLEET_RUN_DIR/c'"
    )
    subprocess.run(["sh", "-c", script], env=desk.env("ada"), check=True)
    (run,) = (path for path in shared.iterdir())
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (run, *run.iterdir())}
    assert modes == {run.name: 0o2750, "run.json": 0o640, "metrics.jsonl": 0o640, "c": 0o2750}


def test_without_a_place_for_its_run_a_command_does_not_begin(desk: Desk) -> None:
    (desk.home / "runs").write_text("")
    refused = desk.on_chip("cpu", "--", "touch", "begun")
    assert (refused.returncode, "runs" in refused.stderr) == (1, True)
    assert not (desk.home / "begun").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py"],
        ["--"],
        ["1"],
        ["1", "2", "--", "x"],
        ["-1", "--", "x"],
        ["99", "--", "x"],
        ["gpu", "--", "x"],
    ],
)
def test_a_wrong_call_is_told_how_to_be_right(desk: Desk, words: list[str]) -> None:
    refused = desk.on_chip(*words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"on-chip: .*(on-chip|chips).*\n", refused.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0"], "as in: on-chip 0 -- COMMAND"),
        (["cpu"], "as in: on-chip cpu -- COMMAND"),
        (["0", "python", "x.py"], "as in: on-chip 0 -- python x.py"),
        (["python", "x.py"], "as in: on-chip -- python x.py"),
        (["--wait", "x"], "as in: on-chip -- python train.py"),
        (["9", "--", "x"], "there is no chip 9 here, there is chip 0 to 3; see chips"),
    ],
)
def test_a_wrong_call_is_told_what_was_meant(desk: Desk, words: list[str], said: str) -> None:
    assert desk.on_chip(*words).stderr.endswith(f"{said}\n")


def test_who_calls_python_where_only_python3_is_is_told(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    env = {"PATH": str(tmp_path / "bin")}
    assert desk.on_chip("cpu", "--", "python", env=env).stderr.endswith("no such command here\n")
    (tmp_path / "bin" / "python3").symlink_to(PYTHON)
    done = desk.on_chip("cpu", "--", "python", env=env)
    assert (done.returncode, done.stderr) == (127, "on-chip: python: there is no such command here; python3 is here\n")
    assert "python3 is here" not in desk.on_chip("cpu", "--", "other", env=env).stderr


def test_both_tools_run_as_they_are_installed_and_say_how_they_are_used(desk: Desk) -> None:
    for tool in ("chips", "on-chip"):
        shown = subprocess.run([tool, "--help"], env=desk.env("ada"), capture_output=True, text=True, check=True).stdout
        assert max(map(len, shown.splitlines())) <= 80
        assert "on-chip -- python train.py" in shown
    inside = subprocess.run(
        ["on-chip", "cpu", "--", "sh", "-c", "echo $0", "--help"],
        env=desk.env("ada"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert inside.stdout == "--help\n"


def test_they_load_only_what_they_need_at_once() -> None:
    heavy = {"argparse", "asyncio", "datetime", "subprocess", "threading", "tempfile", "logging", "socket"}
    for tool in ("chips", "on_chip"):
        code = f"import sys, json; sys.path.insert(0, {str(Path(on_chip.__file__).parent)!r}); import {tool}; "
        told = subprocess.run(
            [PYTHON, "-IS", "-c", code + "print(json.dumps(list(sys.modules)))"], capture_output=True, check=True
        )
        assert not heavy & set(json.loads(told.stdout))
