"""Work in a person's home: by a child of root's that has become that person, and can do nothing that they can't.

So no link, pipe or race in a home leads root anywhere. The person may stop such a child or make it wait: it has a time
limit, and whoever asked goes on without it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from tpufleet.host import files
from tpufleet.host.errors import HostError, from_os
from tpufleet.host.files import JsonObject

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
MOST_DESCRIPTORS = 1024
NOBODYS = 0x80000000  # uids from here on are nobody's: https://systemd.io/UIDS-GIDS
KILL_S = 2.0
LOOK_S = 0.002


class Child(NamedTuple):
    """A child at work, and the pipe that its answer comes through."""

    pid: int
    answer: int


def start(uid: int, gid: int, work: Callable[[], JsonObject], *, become: bool) -> Child:
    """A child that does `work` as that person (with `become`), in a process group of its own; it ends with us."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    libc = ctypes.CDLL(None)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading)
    code = 1
    try:
        os.setpgid(0, 0)
        os.closerange(3, writing)  # root's locks: who stops this child must not hold them for ever
        os.closerange(writing + 1, MOST_DESCRIPTORS)
        if become:
            _become(uid, gid)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of uid, which clears it: prctl(2)
        os.umask(0o022)
        os.chdir("/")
        if os.getppid() == parent:  # else it died before it could take us along
            os.write(writing, json.dumps(_outcome(work)).encode())
            code = 0
    except BaseException:
        traceback.print_exc()  # a bug: to stderr, since nothing may leave this block
        raise
    finally:
        os._exit(code)


def outcome(child: Child, deadline: float) -> JsonObject:
    """What the work gave, or {"error": SENTENCE}; at the deadline (time.monotonic) the child and its programs end."""
    data = b""
    late = False
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([child.answer], [], [], left)[0]:
            late = True
            break
        part = os.read(child.answer, 65536)
        if not part:
            break
        data += part
    os.close(child.answer)
    _kill_group(child.pid)
    os.waitpid(child.pid, 0)
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    given = files.as_object(value)
    if given is not None:
        return given
    return {"error": "the work in the home took too long" if late else "the work in the home broke off"}


def kill_all_of(uid: int, gid: int) -> None:
    """Ends every process of a person at one stroke. Whether there was any can't be told: kill(2) of everybody succeeds
    wherever anybody else lives.

    The child is the person by its effective uid alone: with it it may signal them, and by its other two, which are
    nobody's, they may not signal it. Else they could stop it before it ends them.
    """
    pid = os.fork()
    if not pid:
        try:
            _become(uid, gid, others=NOBODYS + uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    deadline = time.monotonic() + KILL_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(LOOK_S)


def _become(uid: int, gid: int, others: int | None = None) -> None:
    """Gives root up for good. `others` are the real and the saved uid, if they are to be another's."""
    real = uid if others is None else others
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(real, uid, real)


def _outcome(work: Callable[[], JsonObject]) -> JsonObject:
    try:
        return work()
    except HostError as error:
        return {"error": error.message}
    except OSError as error:
        return {"error": from_os(error).message}


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
