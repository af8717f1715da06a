"""The tools at a terminal: Ctrl-C, Ctrl-Z and fg, a hang-up, and lines that fit."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import PYTHON, wait_until
from .tools import Desk

# The wakeup descriptor gets a byte for each signal; Python's own handlers may be called once for two of them.
COUNTS_INTERRUPTS = """\
import os, signal, sys, time
told, wake = os.pipe()
os.set_blocking(told, False)
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
signal.signal(signal.SIGINT, lambda *_: print("heard", flush=True))
print("ready", *(os.isatty(fd) for fd in (0, 1, 2)), flush=True)
for line in sys.stdin:
    time.sleep(0.2)  # a second one would have come by then
    try:
        count = len(os.read(told, 100))
    except BlockingIOError:
        count = 0
    print("read", line.strip(), "after", count, flush=True)
"""


class Terminal:
    """An interactive bash of a person on a terminal of 80 columns; the tools are called by their names."""

    def __init__(self, desk: Desk) -> None:
        self.said = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(desk.home)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], desk.env("ada", PS1="$ ", TERM="dumb"))  # noqa: S606
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def expect(self, pattern: str) -> str:
        """What was said up to and with `pattern`; what comes later is left for the next question."""

        def found() -> re.Match[str] | None:
            while select.select([self.fd], [], [], 0)[0]:
                try:
                    self.said += os.read(self.fd, 65536).decode(errors="replace").replace("\r", "")
                except OSError:  # all who had the terminal are gone
                    break
            return re.search(pattern, self.said)

        try:
            match = wait_until(found, pattern)
        except AssertionError as error:
            raise AssertionError(f"{error}; said: {self.said!r}") from None
        before, self.said = self.said[: match.end()], self.said[match.end() :]
        return before

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):
            os.close(self.fd)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    (desk.home / "count.py").write_text(COUNTS_INTERRUPTS)
    yield desk
    desk.clear()


@pytest.fixture
def terminal(desk: Desk) -> Iterator[Terminal]:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    terminal = Terminal(desk)
    yield terminal
    terminal.close()


def test_ctrl_c_reaches_the_command_once_and_the_terminal_is_its_own(desk: Desk, terminal: Terminal) -> None:
    terminal.type(f"on-chip 1 -- {PYTHON} count.py\n")
    terminal.expect("ready True True True\n")
    for _ in range(20):  # a second signal right behind the first is sometimes one with it
        terminal.type("\x03")
        terminal.expect("heard\n")
    terminal.type("word\n")
    terminal.expect("read word after 20\n")
    terminal.type("\x04")
    terminal.type("echo code $?\n")
    terminal.expect("code 0\n")
    assert desk.states() == ["free"] * 4


def test_a_command_that_ctrl_c_ends_ends_on_chip_without_a_word(desk: Desk, terminal: Terminal) -> None:
    terminal.type("on-chip 1 -- sleep 600\n")
    wait_until(desk.runs, "the run has begun")
    wait_until(lambda: desk.states()[1] == "person", "it is on the chip")
    (run,) = desk.runs()
    wait_until(lambda: len(desk.of_run(run)) == 1, "the command has begun")
    terminal.type("\x03")
    terminal.type("echo code $?\n")
    said = terminal.expect("code 130\n")
    assert "Traceback" not in said
    assert "on-chip:" not in said
    assert (desk.run(run)["exit_code"], desk.states()[1]) == (130, "free")


def test_ctrl_z_stops_all_and_fg_goes_on_with_the_chip_held(desk: Desk, terminal: Terminal) -> None:
    terminal.type(f"on-chip 1 -- {PYTHON} count.py\n")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    assert desk.states()[1] == "person"
    assert desk.on_chip("1", "--", "true").returncode == 75
    terminal.type("fg\n")
    terminal.expect(r"\non-chip 1 -- ")
    terminal.type("again\n")
    terminal.expect("read again after 0\n")
    terminal.type("\x04")
    terminal.type("echo code $?\n")
    terminal.expect("code 0\n")


def test_in_the_background_it_goes_on_and_a_shell_in_it_has_job_control(desk: Desk, terminal: Terminal) -> None:
    terminal.type("on-chip 1 -- sleep 600 &\n")
    wait_until(lambda: desk.states()[1] == "person", "it is on the chip")
    terminal.type("on-chip 2 -- bash --norc --noprofile -i\n")
    wait_until(lambda: desk.states()[2] == "person", "the shell is on its chip")
    terminal.type("echo on $TPU_VISIBLE_CHIPS\n")
    terminal.expect("on 2\n")
    terminal.type("sleep 500\n")
    (shell,) = (run for run in desk.runs() if desk.run(run)["chip"] == 2)
    wait_until(lambda: len(desk.of_run(shell)) == 2, "the shell's command has begun")
    terminal.type("\x1a")
    terminal.expect(r"Stopped +sleep 500")
    terminal.type("fg\n")
    terminal.expect("sleep 500\n")
    terminal.type("\x03")
    wait_until(lambda: len(desk.of_run(shell)) == 1, "the shell's command has ended")
    terminal.type("exit 5\n")
    terminal.type("echo code $?\n")
    wait_until(lambda: desk.states()[2] == "free", "the shell has ended")
    assert (desk.states()[1], desk.run(shell)["exit_code"]) == ("person", 5)
    terminal.expect("code 5\n")


def test_a_terminal_that_hangs_up_ends_the_command_and_gives_the_chip_back(desk: Desk, terminal: Terminal) -> None:
    terminal.type("on-chip 1 -- sleep 600\n")
    wait_until(lambda: desk.states()[1] == "person", "it is on the chip")
    (run,) = desk.runs()
    wait_until(lambda: len(desk.of_run(run)) == 1, "the command has begun")
    os.close(terminal.fd)
    wait_until(lambda: desk.states()[1] == "free", "the chip is free")
    wait_until(lambda: desk.run(run)["exit_code"] == 128 + signal.SIGHUP, "it is written down")


def test_chips_fits_the_terminal_and_watching_is_left_quietly(desk: Desk, terminal: Terminal) -> None:
    desk.sit({"a-person-with-a-name-of-32-letter": [0]})
    terminal.type(f"on-chip 1 -- sh -c 'sleep 600' {'x' * 200} &\n")
    wait_until(lambda: desk.states()[1] == "person", "it is on the chip")
    terminal.type("clear; chips --here --watch\n")
    shown = terminal.expect("(?s)\033\\[H\033\\[J.*tpu-0-w0:3 +free\n").rpartition("\033[J")[2]
    lines = shown.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) == 80
    assert lines[2].endswith("…")
    terminal.type("\x03")
    terminal.type("echo code $?\n")
    assert "Traceback" not in terminal.expect("code 130\n")
