"""What an account's home is to hold: its keys, the lines that read root's settings, `runs`. (Clones: `accounts_clone`.)

Done as the person themselves (`accounts_child`), and never through a link: everything is opened by descriptor, one
directory at a time, and what is written is written aside and renamed. What a person put there in place of what we need
is moved aside or left alone; it is never followed.

`~/.bashrc` and `~/.profile` get one line at their top, since each is the only one that some shells read: bash reads
.bashrc when it is interactive, or when sshd starts it for a command (Debian and Ubuntu build it with SSH_SOURCE_BASHRC;
their .bashrc returns early there, so the top is the place), and login shells read .profile.
Seen with bash 5.2 under OpenSSH 9.2: `ssh HOST 'echo $TPU_VISIBLE_CHIPS'`, `ssh HOST bash -l -c …`, and on a terminal.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from tpufleet.host.errors import INTERNAL, HostError
from tpufleet.host.files import JsonObject

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LARGEST = 1 << 20
MARK = "# tpufleet:"
KEYS = ("authorized_keys", "authorized_keys2")  # sshd reads both


class Wishes(NamedTuple):
    """What a home is to be like. With `share` its runs lie in `shared`, where the operator can read them."""

    keys: str
    settings: Path
    skeleton: Path
    shared: Path
    share: bool


def set_up(path: Path, uid: int, wishes: Wishes) -> JsonObject:
    """Makes a home as it should be: {"changed": whether anything was, "whys": sentences about what couldn't be}."""
    home = _Home(path, uid)
    home.skeleton(wishes.skeleton)
    ssh = home.directory(home.fd, ".ssh", 0o700)
    home.put(ssh, KEYS[0], wishes.keys.encode(), 0o600)
    home.remove(ssh, KEYS[1])
    home.first_line(ssh, "config", f"Include {wishes.settings}/ssh_config  {MARK} the fleet's hosts", 0o600)
    line = f"[ ! -r {wishes.settings}/shell.sh ] || . {wishes.settings}/shell.sh  {MARK} what your seat's chip is"
    for name in (".bashrc", ".profile"):
        home.first_line(home.fd, name, line, 0o644)
    home.runs(wishes.shared, share=wishes.share)
    return {"changed": home.changed, "whys": home.whys}


def take_keys_out(path: Path, uid: int) -> JsonObject:
    """Leaves no key in a home, wherever its .ssh may lead."""
    try:
        home = _Home(path, uid)
    except FileNotFoundError:
        return {}
    try:
        ssh = os.open(".ssh", DIRECTORY, dir_fd=home.fd)
    except FileNotFoundError:
        return {}
    except OSError:
        home.put_aside(home.fd, ".ssh")
        return {}
    for name in KEYS:
        home.remove(ssh, name)
    return {}


class _Home:
    """A home at work on; `changed` and `whys` say what came of it."""

    def __init__(self, path: Path, uid: int) -> None:
        self.path = path
        self.changed = False
        self.whys: list[str] = []
        self.fd = os.open(path, DIRECTORY)
        if os.fstat(self.fd).st_uid != uid:
            raise HostError(INTERNAL, f"{path} belongs to somebody else")
        self._mode(self.fd, 0o750)

    def directory(self, parent: int, name: str, mode: int) -> int:
        """A descriptor of a directory; whatever else has its name is moved aside."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
            self.changed = True
        try:
            fd = os.open(name, DIRECTORY, dir_fd=parent)
        except OSError:
            self.put_aside(parent, name)
            os.mkdir(name, mode, dir_fd=parent)
            fd = os.open(name, DIRECTORY, dir_fd=parent)
        self._mode(fd, mode)
        return fd

    def put(self, parent: int, name: str, data: bytes, mode: int) -> None:
        """A file with exactly this content and mode, whatever was there."""
        with contextlib.suppress(OSError):  # something that isn't a plain file
            if _content(parent, name) == data and _mode_of(parent, name) == mode:
                return
        aside = f".{name}.tpufleet"
        self.remove(parent, aside)
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        try:
            os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except (IsADirectoryError, NotADirectoryError):
            self.put_aside(parent, name)
            os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
        self.changed = True

    def first_line(self, parent: int, name: str, line: str, mode: int) -> None:
        """A file of the person's own that begins with our `line`; all the rest of it is theirs."""
        try:
            text = _content(parent, name)
        except OSError:
            self.whys.append(f"{name} is no plain file, so it is left as it is")
            return
        if text is None:
            text = b""
        else:
            mode = (_mode_of(parent, name) or mode) & ~0o022
        first, _, rest = text.partition(b"\n")
        if MARK.encode() in first:
            text = rest
        self.put(parent, name, f"{line}\n".encode() + text, mode if name != "config" else 0o600)

    def skeleton(self, source: Path) -> None:
        """What every new home begins with; .bashrc comes last and says that it was done."""
        if _mode_of(self.fd, ".bashrc") is not None or not source.is_dir():
            return
        plain = [path for path in source.iterdir() if path.is_file() and not path.is_symlink()]
        for path in sorted(plain, key=lambda path: path.name == ".bashrc"):
            if _mode_of(self.fd, path.name) is None:
                self.put(self.fd, path.name, path.read_bytes()[:LARGEST], 0o644)

    def runs(self, shared: Path, *, share: bool) -> None:
        """`~/runs`: a link to `shared`, which the operator may read, or a directory of their own. What is in it moves;
        a link of the person's own stays, but where it is in the way of what they agreed to."""
        status = _status(self.fd, "runs")
        is_link = status is not None and stat.S_ISLNK(status.st_mode)
        is_ours = is_link and os.readlink("runs", dir_fd=self.fd) == str(shared)
        if share and not is_ours:
            if status is not None and stat.S_ISDIR(status.st_mode):
                self._move_all(os.open("runs", DIRECTORY, dir_fd=self.fd), os.open(shared, DIRECTORY))
                with contextlib.suppress(OSError):
                    os.rmdir("runs", dir_fd=self.fd)
            if _status(self.fd, "runs") is not None:
                self.put_aside(self.fd, "runs")
            os.symlink(shared, "runs", dir_fd=self.fd)
            self.changed = True
        elif not share and (status is None or is_ours):
            self.remove(self.fd, "runs")
            fd = self.directory(self.fd, "runs", 0o750)
            with contextlib.suppress(FileNotFoundError):
                self._move_all(os.open(shared, DIRECTORY), fd)

    def remove(self, parent: int, name: str) -> None:
        """No file of that name; a directory is none."""
        try:
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # unlink(2): EISDIR on Linux
            self.put_aside(parent, name)
        self.changed = True

    def put_aside(self, parent: int, name: str) -> None:
        """Gives what has that name another one."""
        free = next(new for n in itertools.count(1) if _status(parent, new := f"{name}.before-{n}") is None)
        os.rename(name, free, src_dir_fd=parent, dst_dir_fd=parent)
        self.changed = True
        self.whys.append(f"{name} was something else, which is {free} now")

    def _move_all(self, source: int, target: int) -> None:
        """What is in one directory goes to another, which may be on another disk; what is there already stays."""
        for name in os.listdir(source):
            if _status(target, name) is not None:
                continue
            try:
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _carry(Path(f"/proc/self/fd/{source}"), Path(f"/proc/self/fd/{target}"), name)

    def _mode(self, fd: int, mode: int) -> None:
        if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.fchmod(fd, mode)
            self.changed = True


def _carry(source: Path, target: Path, name: str) -> None:
    """Copies a file or a tree aside, renames it, and removes where it was; links stay links."""
    aside = target / f".{name}.tpufleet"
    shutil.rmtree(aside, ignore_errors=True)
    if (source / name).is_dir() and not (source / name).is_symlink():
        shutil.copytree(source / name, aside, symlinks=True)
        aside.rename(target / name)
        shutil.rmtree(source / name)
    else:
        shutil.copy2(source / name, aside, follow_symlinks=False)
        aside.rename(target / name)
        (source / name).unlink()


def _content(parent: int, name: str) -> bytes | None:
    """What is in a plain file; None where there is none. Raises OSError for anything that isn't one."""
    status = _status(parent, name)
    if status is None:
        return None
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    with os.fdopen(fd, "rb") as file:
        opened = os.fstat(fd)
        if not stat.S_ISREG(opened.st_mode) or opened.st_size > LARGEST:
            raise FileExistsError(name)
        return file.read(LARGEST)


def _mode_of(parent: int, name: str) -> int | None:
    status = _status(parent, name)
    return None if status is None else stat.S_IMODE(status.st_mode)


def _status(parent: int, name: str) -> os.stat_result | None:
    """Of what has that name, itself and not what it leads to."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
