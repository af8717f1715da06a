"""The machine's accounts: asked of its own database, changed by useradd, usermod and pkill and nothing else.

An account says itself whose it is: the full name in its comment, which only root can change, is `tpufleet FLEET`. It
is there from the moment the account is, so nothing that breaks off leaves an account that nobody knows as ours.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import accounts_child
from tpufleet.host.errors import INTERNAL, HostError, bad
from tpufleet.host.places import Places, own_environment

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_MATCH = 1  # pkill(1)
ROUNDS = 100
ROUND_S = 0.02


class Account(NamedTuple):
    """An account, or the operator's; `comment` is the full name."""

    name: str
    uid: int
    gid: int
    comment: str = ""


def is_real(places: Places) -> bool:
    """Whether this is a machine of its own and we are its root. On the rehearsal cloud's process hosts every file
    belongs to whoever started them, so what needs other uids isn't done there."""
    return places.root == Path("/") and os.geteuid() == 0


def require_root(places: Places) -> None:
    """Raises HostError unless accounts can be changed here: by root, or on an emulated host."""
    if places.root == Path("/") and os.geteuid() != 0:
        raise bad("accounts are root's to make: the operator needs sudo")


def operator(places: Places) -> Account:
    """Who asked root for this: sudo says it; without sudo it is whoever we are."""
    uid = int(os.environ.get("SUDO_UID") or os.getuid()) if is_real(places) else os.getuid()
    entry = pwd.getpwuid(uid)
    name = entry.pw_name if is_real(places) else os.environ.get("USER") or entry.pw_name
    return Account(name, uid, entry.pw_gid)


def mark(fleet: str) -> str:
    """The comment of accounts that are a fleet's."""
    return f"tpufleet {fleet}"


def by_name(places: Places, name: str) -> Account | None:
    if is_real(places):
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            return None
    return next((account for account in _listed(places) if account.name == name), None)


def by_uid(places: Places, uid: int) -> Account | None:
    if is_real(places):
        try:
            return _account(pwd.getpwuid(uid))
        except KeyError:
            return None
    return next((account for account in _listed(places) if account.uid == uid), None)


def of_fleet(places: Places, fleet: str) -> list[Account]:
    """The accounts that were made for the fleet."""
    known = [_account(entry) for entry in pwd.getpwall()] if is_real(places) else _listed(places)
    return [account for account in known if account.comment == mark(fleet)]


def group_in_the_way(places: Places, name: str, gid: int) -> str | None:
    """The group that has this name or number, as a word for a sentence."""
    if is_real(places):
        groups = [(group.gr_name, group.gr_gid) for group in grp.getgrall()]
    else:
        groups = [(fields[0], int(fields[2])) for fields in _lines(places, "group") if fields[2].isdigit()]
    return next((f"{title} ({number})" for title, number in groups if title == name or number == gid), None)


def extra_groups(places: Places, account: Account) -> list[str]:
    """The groups an account is in besides its own."""
    if not is_real(places):
        return []
    return [group.gr_name for group in grp.getgrall() if account.name in group.gr_mem and group.gr_gid != account.gid]


def is_closed(places: Places, name: str) -> bool:
    """Whether the account is locked or has an end, by its line in /etc/shadow."""
    mine = [fields for fields in _lines(places, "shadow") if fields[0] == name]
    return any(fields[1].startswith("!") or (len(fields) > 7 and fields[7] != "") for fields in mine)


def add(places: Places, name: str, uid: int, fleet: str, keep: Collection[int]) -> None:
    """Makes the account and its group, with no password and no home yet. useradd inherits the descriptors `keep`."""
    words = ["useradd", "--uid", str(uid), "--user-group", "--no-create-home", "--home-dir", f"/home/{name}"]
    words += ["--shell", "/bin/bash", "--password", "*", "--no-log-init", "--comment", mark(fleet), name]
    _run(places, words, keep)


def open_again(places: Places, name: str) -> None:
    _run(places, ["usermod", "--unlock", "--expiredate", "", name])


def close(places: Places, name: str) -> None:
    """No way in any more: sshd, PAM and cron ask for the account's end whatever keys lie in its home."""
    _run(places, ["usermod", "--lock", "--expiredate", "1", name])


def leave_groups(places: Places, name: str) -> None:
    _run(places, ["usermod", "--groups", "", name])


def end_everything(places: Places, account: Account) -> bool:
    """Ends all sessions and processes of a person; whether there were any. Raises HostError when they don't end.

    A process that forks all the time outruns a program that looks through /proc, but not a signal to everybody
    (kill(2), -1), which only a process of that person may send.
    """
    real = is_real(places)
    found = real and _lives(account.uid)
    for _ in range(ROUNDS):
        if real:
            accounts_child.kill_all_of(account.uid, account.gid)
        # a setuid program runs as somebody else, but its real uid is theirs
        matched = [_pkill(places, words) for words in (["-U", str(account.uid)], ["-u", str(account.uid)])]
        left = _lives(account.uid) if real else any(matched)
        if not left:
            return found
        found = True
        time.sleep(ROUND_S)
    raise HostError(INTERNAL, f"processes of {account.name} don't end")


def _pkill(places: Places, words: list[str]) -> bool:
    """Whether there was somebody to end."""
    command = [_program(places, "pkill"), "-KILL", *words]
    done = subprocess.run(command, env=_environment(places), capture_output=True, check=False)
    return done.returncode != NO_MATCH


def _program(places: Places, name: str) -> str:
    """Where a program is. An emulated host has its own: the machine's would change the machine. Raises HostError."""
    path = shutil.which(name, path=_environment(places).get("PATH"))
    if path is None or not Path(path).is_relative_to(places.root):
        raise HostError(INTERNAL, f"there is no {name} on this host")
    return path


def _lives(uid: int) -> bool:
    """Whether a process of that uid lives; who waits to be buried doesn't."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines = (entry / "status").read_text().splitlines()
            except OSError:
                continue
            told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            if str(uid) in told.get("Uid", "").split()[:2] and told.get("State", "Z")[0] not in "ZX":
                return True
    return False


def _run(places: Places, words: list[str], keep: Collection[int] = ()) -> None:
    done = subprocess.run(
        [_program(places, words[0]), *words[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(places),
        pass_fds=keep,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise HostError(INTERNAL, f"{words[0]}: {said[0].removeprefix(f'{words[0]}: ')[:300]}")


def _environment(places: Places) -> dict[str, str]:
    """On the rehearsal cloud PATH names the stand-ins."""
    return {**own_environment(), "LC_ALL": "C", **({"PATH": PATH} if is_real(places) else {})}


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_gecos.partition(",")[0])


def _listed(places: Places) -> list[Account]:
    """The accounts in the emulated host's own /etc/passwd."""
    return [
        Account(fields[0], int(fields[2]), int(fields[3]), fields[4].partition(",")[0])
        for fields in _lines(places, "passwd")
        if len(fields) > 4 and fields[2].isdigit() and fields[3].isdigit()
    ]


def _lines(places: Places, database: str) -> list[list[str]]:
    try:
        text = (places.root / "etc" / database).read_text()
    except FileNotFoundError:
        return []
    return [fields for line in text.splitlines() if len(fields := line.split(":")) > 2]
