"""The tests' own way to start programs quickly gives what starting them gives (tests/warm.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import Warm

PROGRAM = """\
import atexit, os, signal, sys, threading
import beside
atexit.register(print, "at exit")
print(__name__, sys.argv, os.getcwd(), sys.stdin.read(), sorted(os.environ), beside.NAME, flush=True)
print([signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE)])
print("a line\\r\\nand a half", file=sys.stderr)
exec(sys.argv[1])
"""
ENDS = [
    *("", "sys.exit(3)", "sys.exit('no luck')", "1 / 0", "os.kill(os.getpid(), 9)", "os._exit(4)"),
    "os.write(1, b'x' * 1_000_000)",
    "threading.Timer(0.05, print, ['in a thread']).start()",
    "os.fork() or (sys.stdin.close(), print('left behind'))",
]


@pytest.fixture(scope="module")
def warm() -> Warm:
    return Warm(sys.executable, "json", "fractions")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in `code`, and none of our own PYTHONPATH, with which it would be started anew."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "beside.py").write_text("NAME = __name__\n")
    (tmp_path / "code" / "program.py").write_text(PROGRAM)
    return tmp_path / "code" / "program.py"


@pytest.mark.parametrize("as_module", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_program_says_and_ends_as_one_that_is_started(warm: Warm, program: Path, end: str, as_module: bool) -> None:
    words = ["-m", "program", end] if as_module else [str(program), end]
    cwd = program.parent if as_module else program.parents[1]
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MINE": "yes"}
    done = warm.run(words, cwd=cwd, env=env, timeout=60)
    plain = [sys.executable, *words]
    started = subprocess.run(
        plain, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (
        started.returncode,
        sorted(started.stdout.split("\n")),
    )
    shown, expected = done.stderr.splitlines(), started.stderr.splitlines()
    assert shown[:2] + shown[-1:] == expected[:2] + expected[-1:]  # between them, where a traceback comes from


def test_what_is_imported_before_is_there_and_nothing_that_a_program_changes_is_seen_by_the_next(
    warm: Warm, program: Path
) -> None:
    program.write_text(
        "import sys, json; print('fractions' in sys.modules, vars(json).setdefault('seen', sys.argv[1]))\n"
    )
    said = [warm.run([str(program), n], cwd=program.parent, env={}, timeout=60).stdout for n in "12"]
    assert said == ["True 1\n", "True 2\n"]


def test_programs_run_side_by_side_and_one_that_hangs_is_given_up(warm: Warm, program: Path, tmp_path: Path) -> None:
    program.write_text("open(__import__('sys').argv[1]).read()\n")  # until the other end of the FIFO is opened
    os.mkfifo(tmp_path / "gate")
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run([str(program), str(tmp_path / "gate")], cwd=tmp_path, env={}, timeout=0.2)
    assert warm.run([str(program), "/dev/null"], cwd=tmp_path, env={}, timeout=60).returncode == 0
    (tmp_path / "gate").write_text("")  # lets it end


def test_a_python_path_of_its_own_is_heeded(warm: Warm, program: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("NAME = 'mine'\n")
    program.write_text("import json; print(json.NAME)\n")
    assert warm.run([str(program)], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, timeout=60).stdout == "mine\n"
