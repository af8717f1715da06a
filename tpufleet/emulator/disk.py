"""A full disk on an emulated host, as near as a process without privileges comes to one.

The host's files lie on the disk of the person who started the emulator, which is not to be filled. Instead the
host's processes may not let any file grow (RLIMIT_FSIZE 0): reading, deleting, pipes and empty files work, a write to
a file fails. The error is EFBIG ("File too large") where a full disk says ENOSPC, and `df` shows the real disk. A
process that ran before and has not ignored SIGXFSZ (Python does) is ended by its next write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

# A shell passes an ignored signal and its limits on to what it becomes.
STARTER = ("/bin/sh", "-c", 'trap "" XFSZ; ulimit -S -f 0; exec "$@"', "sh")


def starting(argv: Sequence[str]) -> list[str]:
    """`argv` as it is started on a host whose disk is full."""
    return [*STARTER, *argv]


def fill(pids: Iterable[int], full: bool) -> None:
    """The processes can't write any more, or can again; only the soft limit changes, which everybody may lift."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            try:
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else hard, hard))
            except PermissionError:
                _as_its_user(pid, full)


def _as_its_user(pid: int, full: bool) -> None:
    """The same for another user's process, which even root needs a capability for that containers seldom have."""
    if os.geteuid():
        return
    with contextlib.suppress(FileNotFoundError):
        lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        user, group = (int(words[1]) for words in lines if words[0] in ("Uid:", "Gid:"))
        limit = "0" if full else "unlimited"
        wanted = ["prlimit", f"--pid={pid}", f"--fsize={limit}:"]
        subprocess.run(wanted, user=user, group=group, extra_groups=[], capture_output=True, check=False)


def no_space() -> OSError:
    """What a write says that the emulator itself makes for a person (SFTP)."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
