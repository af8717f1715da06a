"""The first process of a namespace host: mounts what the host has of its own, then becomes its sshd.

Run as a script, with the standard library only, by `unshare` in new mount, pid, UTS and IPC namespaces, in the host's
directory. What it mounts exists nowhere else and ends with it. The machine's files are there to read; what a host
writes stays below its own directory:

- `layers/` are the upper layers over the machine's LAYERED directories: accounts, configuration, installed programs;
- `root/` holds the OWN directories, which show nothing of the machine's, and may be looked into from outside;
- everything else is read-only.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

LAYERED = ("etc", "opt", "root", "srv", "usr", "var")
OWN = ("home", "run", "tmp", "var/lib/google", "var/lib/tpufleet", "var/log", "var/tmp")
BOOT_ID = "proc/sys/kernel/random/boot_id"
DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
DEV_LINKS = {
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
}
# <linux/mount.h>
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE = 1, 2, 4, 8, 32, 4096, 16384
FLAGS = {"nosuid": NO_SUID, "nodev": NO_DEV, "noexec": NO_EXEC}


def main() -> None:
    """`sys.argv[1]` is JSON: `name`, `devices` (files in /dev), `shown` (directories to see as they are), `command`.

    Standard input is a pipe that ends with the daemon.
    """
    plan = json.loads(sys.argv[1])
    os.umask(0o022)
    found = mount_points()
    devices = {name: opened(f"/dev/{name}") for name in DEVICES}
    own = {f"/{name}": opened(f"root/{name}") for name in OWN}
    shown = {path: opened(path) for path in plan["shown"]}
    boot_id = opened(f"root/{BOOT_ID}")
    for name in layered(Path.cwd()):
        mount("overlay", f"/{name}", "overlay", 0, f"lowerdir=/{name},upperdir=layers/{name},workdir=work/{name}")
    for target, directory in {**own, **shown}.items():
        Path(target).mkdir(parents=True, exist_ok=True)
        mount(directory, target, flags=BIND | RECURSIVE)
    make_dev(devices, plan["devices"])
    mount("proc", "/proc", "proc", NO_SUID | NO_DEV | NO_EXEC)
    mount(boot_id, f"/{BOOT_ID}", flags=BIND)
    protect(found, ("/dev", "/proc", *own, *(f"/{name}" for name in layered(Path.cwd()))))
    for path in shown:
        mount("", path, flags=REMOUNT | BIND | READ_ONLY)
    socket.sethostname(plan["name"])
    if select.select([sys.stdin], [], [], 0)[0]:
        sys.exit("the rehearsal cloud has ended")  # before it was sure that its death would be ours
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a disk that is full (disk.py) says so, and kills nobody
    os.chdir("/")
    os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - sshd, as our daemon named it


def layered(directory: Path) -> list[str]:
    """Those of LAYERED that a machine has and that don't hold the host's `directory`: no layer may lie in another."""
    tops = {name: Path("/", name) for name in LAYERED}
    return [
        name for name, top in tops.items() if top.is_dir() and not top.is_symlink() and top not in directory.parents
    ]


def make_dev(devices: Mapping[str, str], chips: Iterable[str]) -> None:
    """A /dev with the usual `devices`, terminals of its own, and a file for each chip."""
    mount("dev", "/dev", "tmpfs", NO_SUID, "mode=755,size=1m")
    for name, source in devices.items():
        Path("/dev", name).touch()
        mount(source, f"/dev/{name}", flags=BIND)
    for name, target in DEV_LINKS.items():
        Path("/dev", name).symlink_to(target)
    for name in ("pts", "shm"):
        Path("/dev", name).mkdir()
    mount("devpts", "/dev/pts", "devpts", NO_SUID | NO_EXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("shm", "/dev/shm", "tmpfs", NO_SUID | NO_DEV, "mode=1777")  # noqa: S108 - the host's own
    for chip in map(Path, chips):
        chip.parent.mkdir(exist_ok=True)
        chip.touch()
        chip.chmod(0o666)


def protect(found: Mapping[str, int], covered: tuple[str, ...]) -> None:
    """The machine's mounts (by their points, with their flags) become read-only, as far as they aren't covered."""
    for point, flags in found.items():
        if not any(Path(point).is_relative_to(one) for one in covered):
            mount("", point, flags=REMOUNT | BIND | READ_ONLY | flags)


def mount_points() -> dict[str, int]:
    """Where something is mounted now, with those of FLAGS that it has."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return {
        point.encode().decode("unicode_escape"): sum(FLAGS.get(option, 0) for option in options.split(","))
        for _, point, _, options, *_ in lines
    }


def opened(path: str) -> str:
    """A name for `path` that stays good when something is mounted over the way to it."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH)}"


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2); raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = (os.fsencode(one) for one in (source, target, kind))
    if libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)):
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {kind or 'a directory'} can't be mounted on {target}")


if __name__ == "__main__":
    main()
