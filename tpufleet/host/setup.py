"""A repository's setup lines: run in the commit's tree, once per host for the same lines and commit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tpufleet.host import files, git
from tpufleet.host.environment import setup_environment
from tpufleet.host.errors import SETUP_FAILED, HostError
from tpufleet.host.places import RepoPlaces

SHOWN_LINES = 20


def run_setup(at: RepoPlaces, commit: str, lines: Sequence[str], timeout_s: float, lock: int) -> str:
    """Runs the lines in turn; gives "none", "cached" or "ran". Raises HostError (setup-failed) with the output's end.

    `lock`, the repository's, is inherited by the lines: a setup whose caller died is waited for, not doubled.
    """
    if not lines:
        return "none"
    if was_done(at, commit) == list(lines):
        return "cached"
    log = at.setup_log(hashlib.sha256(json.dumps([commit, *lines]).encode()).hexdigest()[:16])
    deadline = time.monotonic() + timeout_s
    log.write_bytes(b"")
    for line in lines:
        problem = _run_line(at.tree(commit), line, log, deadline, lock)
        if problem is not None:
            raise HostError(SETUP_FAILED, f"setup line {line!r:.200} {problem}:\n{_end_of(log)}")
    files.write_json(at.set_up(commit), {"setup": list(lines), "changes": git.changes(at.tree(commit))})
    return "ran"


def environment_id(lines: Sequence[str]) -> str:
    """A short name of what set-up lines make of a commit; home and hosts tell environments apart by it."""
    return hashlib.sha256(json.dumps(list(lines)).encode()).hexdigest()[:16]


def was_done(at: RepoPlaces, commit: str) -> list[str]:
    """The lines that were run in the commit's tree, all of them to their end."""
    return files.as_texts((files.read_json(at.set_up(commit)) or {}).get("setup") or []) or []


def _run_line(tree: Path, line: str, log: Path, deadline: float, lock: int) -> str | None:
    """Runs one line; gives what went wrong, as the end of a sentence."""
    shell = shutil.which("bash") or "/bin/sh"
    with log.open("ab") as output:
        output.write(f"$ {line}\n".encode())
        output.flush()
        process = subprocess.Popen(
            [shell, "-c", line],
            cwd=tree,
            env=setup_environment(tree),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )
        try:
            code = process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left in the background would hold the lock
        process.wait()
    if code is None:
        return "took too long"
    return None if code == 0 else f"exited with {code}"


def _end_of(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-SHOWN_LINES:])
