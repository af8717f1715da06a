"""The directory of the chips' leases: any user may lock a file in it, none may remove, replace or add one.

Its files belong to root (on the rehearsal cloud: to whoever plays root) and can be opened by everybody; the directory
can be changed by root alone. In a sticky directory open to all, the user who made a file could remove it while others
hold its lock, and two would hold the chip.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tpufleet.host.errors import INTERNAL, HostError
from tpufleet.host.places import Places, own_environment

MOST_CHIPS = 16

# The directory first: once it is closed to others, nothing in it can be exchanged under our hands.
MAKE = """\
mkdir -p "$1" && chown root:root "$1" && chmod 755 "$1" && cd "$1" && shift && for file; do
  [ -f "$file" ] && [ ! -L "$file" ] || { rm -rf "./$file" && : >"$file"; } || exit
  chown root:root "$file" && chmod 666 "$file" || exit
done
"""


def prepare(places: Places) -> None:
    """Makes what is missing, with sudo where it must; raises HostError when it can't."""
    paths = [places.lease(chip) for chip in range(MOST_CHIPS)]
    if _is_sound(places.leases, paths):
        return
    try:
        _make(places.leases, paths)
    except PermissionError:
        _make_with_sudo(places.leases, [path for path in paths if not os.access(path, os.R_OK | os.W_OK)])


def _is_sound(folder: Path, paths: Sequence[Path]) -> bool:
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    closed = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022 and status.st_uid in (0, os.getuid())
    return closed and all(os.access(path, os.R_OK | os.W_OK) for path in paths)


def _make(folder: Path, paths: Sequence[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for path in paths:
        if os.access(path, os.R_OK | os.W_OK):
            continue  # a seat's belongs to a person
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            os.fchmod(fd, 0o666)  # whatever the umask is
        finally:
            os.close(fd)


def _make_with_sudo(folder: Path, paths: Sequence[Path]) -> None:
    made = subprocess.run(
        ["sudo", "-n", "sh", "-c", MAKE, "sh", str(folder), *(path.name for path in paths)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=own_environment(),
        check=False,
    )
    if made.returncode or not _is_sound(folder, paths):
        said = made.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise HostError(INTERNAL, f"cannot make {folder} with sudo: {said[0]}")
