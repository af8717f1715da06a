"""Programs in processes of their own whose imports are done: forked from a Python that has imported the libraries.

A `tpufleet status` takes a second of CPU, three quarters of it to import libraries, and a tiny training four, nine
tenths of them for torch; the tests start hundreds of such programs. Here each still gets a process of its own, with its
words, environment, directory, pipes, signals and the interpreter's usual end, and imports what is the project's own.
Only the libraries named to `Warm` are there before, so what they read of the environment as they are imported was read
then.

Run as a program (by any Python, hence nothing but the standard library) this file is that Python.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path


class Warm:
    """A Python that has `libraries`, to run programs; it ends with the process that made it."""

    def __init__(self, python: str, *libraries: str) -> None:
        self.python = python
        self._requests, theirs = socket.socketpair()
        with theirs:
            subprocess.Popen(
                [python, __file__, str(theirs.fileno()), *libraries],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tests
            )

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `PYTHON WORDS…` to its end: `-m MODULE …` or `FILE …`; with a PYTHONPATH of its own it starts anew.

        As with subprocess, its output has ended when nobody, itself or what it left behind, can write any more.
        """
        if env.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
            return subprocess.run(
                [self.python, *words],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        pipes = [os.pipe() for _ in range(4)]
        (asked, ask), (out, outs), (err, errs), (status, statuses) = pipes
        socket.send_fds(self._requests, [b"."], [asked, outs, errs, statuses])
        for end in (asked, outs, errs, statuses):
            os.close(end)
        with os.fdopen(ask, "w") as request:
            json.dump({"words": list(words), "cwd": str(cwd), "env": dict(env)}, request)
        try:
            read = _read_all([out, err, status], time.monotonic() + timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(words, timeout) from None
        return subprocess.CompletedProcess([self.python, *words], int(read[status]), _text(read[out]), _text(read[err]))


def _read_all(pipes: Sequence[int], deadline: float) -> dict[int, bytes]:
    """What comes out of the pipes until all are closed at their other end."""
    read = dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        try:
            while selector.get_map():
                ready = selector.select(max(0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if part := os.read(key.fd, 1 << 16):
                        read[key.fd] += part
                    else:
                        selector.unregister(key.fd)
        finally:
            for pipe in pipes:
                os.close(pipe)
    return read


def _text(output: bytes) -> str:
    """As subprocess gives it: any end of a line is \\n."""
    return io.TextIOWrapper(io.BytesIO(output)).read()


def _serve(requests: socket.socket) -> int:
    """Answer requests until there can't be another; returns in each program's process, with the pipe of its request."""
    while True:
        byte, pipes, *_ = socket.recv_fds(requests, 1, 4)
        if not byte:
            sys.exit()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # those that have told how their programs ended
        if os.fork() == 0:
            requests.close()
            return _wait_for_program(*pipes)
        for pipe in pipes:
            os.close(pipe)


def _wait_for_program(request: int, out: int, err: int, status: int) -> int:
    """Forks the program's process, where it returns, and tells its exit code."""
    program = os.fork()
    if program == 0:
        os.close(status)
        for pipe, number in ((out, 1), (err, 2)):
            os.dup2(pipe, number)
            os.close(pipe)
        return request
    for pipe in (request, out, err):
        os.close(pipe)
    os.write(status, str(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])).encode())
    os._exit(0)


def _become(words: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be the program."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    is_module = words[0] == "-m"
    program, *rest = words[is_module:]
    sys.argv = [program, *rest]
    if is_module:
        sys.path[0] = cwd
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in sys.argv[2:]:
            importlib.import_module(library)
    gc.freeze()  # what all have is nobody's to collect: a look at it would only copy its pages
    with os.fdopen(_serve(socket.socket(fileno=int(sys.argv[1])))) as asked:
        request = json.load(asked)
    _become(**request)
