#!/usr/bin/env -S python3 -IS
"""chips: who is on which TPU chip, on this host and on the others of its fleet. One file, Python 3.10, no
dependencies; it imports nothing of tpufleet's, since people run it where tpufleet isn't."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pwd
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

HELP = """\
chips: who is on which TPU chip, since when, and with what.

  chips           of all hosts of the fleet
  chips --here    of this host only
  chips --watch   again and again, until Ctrl-C
  chips --json    for programs

Other hosts are asked through ssh, with your own key: log in with ssh -A, so
that your key's agent comes along. What can't be reached is said below the list.

A chip is somebody's seat (only they can use it), taken by a run of the fleet's
queue, or open to all. To use one:

  on-chip -- python train.py      your seat, or the lowest free one
  on-chip --help                  all about it
"""

WIDTH = 80
EVERY_S = 2.0
FRESH_S = 120.0  # how old usage.json may be
REMOTE_S = 8.0
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
HOST = re.compile(r"[a-z0-9][a-z0-9-]{0,69}")
SSH = ("ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=3", "-o", "ClearAllForwardings=yes",
       "-o", "ControlPath=none")  # fmt: skip
ASK = "chips --here --json"

Row = dict[str, Any]


def clean(text: object) -> str:
    """For a terminal: nothing in it can move the cursor or turn the writing around."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text))


def text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def parsed(text: str | bytes) -> Row:
    """The JSON object in `text`; an empty one when there is none."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("Row", value) if isinstance(value, dict) else {}


def rows_of(value: Any) -> list[Row]:
    """The objects in what should be a list of objects."""
    entries = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Row", entry) for entry in entries if isinstance(entry, dict)]


def number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1 << 60 else None


# ---------------------------------------------------------------------------------------------------------- this host


def seats_of(told: Row) -> dict[str, list[Any]]:
    """Who is here, with which chips for a seat, by what the operator told this host; it may be of another version."""
    here = [person for person in rows_of(told.get("people")) if person.get("state") == "here"]
    seats = {str(person.get("name")): person.get("seat") for person in here}
    return {
        name: cast("list[Any]", seat) for name, seat in seats.items() if NAME.fullmatch(name) and isinstance(seat, list)
    }


def devices_of(root: Path) -> dict[int, Path]:
    """The device files by their chip's number: /dev/accelN, else /dev/vfio/N, whose numbers are the kernel's and only
    their order counts."""
    accel = {int(path.name[5:]): path for path in root.glob("dev/accel*") if path.name[5:].isdecimal()}
    vfio = sorted((int(path.name), path) for path in root.glob("dev/vfio/*") if path.name.isdecimal())
    return dict(sorted(accel.items())) or {index: path for index, (_, path) in enumerate(vfio)}


def look(root: Path, told: Row) -> list[Row]:
    """This host's chips: `state` is free, seat (somebody's, who isn't on it), run, person, or busy (on it without a
    lease); `who`, `since`, `pid` and `command` as far as an ordinary user can know them."""
    people, devices, usage = seats_of(told), devices_of(root), _usage(root)
    takers, openers = _takers(root, devices), _openers(devices.values())
    found: list[Row] = []
    for chip, device in devices.items():
        seat = next((name for name, chips in people.items() if chip in chips), None)
        row: Row = {"chip": chip, "device": str(device.relative_to(root)), "seat": seat, "state": "free"}
        pid = next(iter(openers.get(device, [])), None)
        if chip in takers:
            row |= _taken(root, chip, takers[chip], seat, people)
        elif pid is not None:
            row |= {"state": "busy", "who": owner_of(pid), **process(pid)}
        elif seat is not None:
            row |= {"state": "seat"}
        blank = dict.fromkeys(("who", "run", "since", "pid", "command", "hbm_used", "hbm_total", "duty_pct"))
        found.append({**blank, **row, **usage.get(str(chip), {})})
    return found


def _taken(root: Path, chip: int, pid: int | None, seat: str | None, people: Collection[str]) -> Row:
    """Who has a lease: the kernel's word (the process that took it, its user) before the lease's note, in which
    anybody could write."""
    note = parsed(_lease(root, chip)[1])
    run, person, command, since = (note.get(name) for name in ("run", "person", "command", "since"))
    if isinstance(run, str) and (pid is None or owner_of(pid) not in people):
        training = _training(run)
        known = process(training) if training else {}
        return {"state": "run", "run": run[:128], "who": training and owner_of(training), **known}
    if not isinstance(person, str) or not NAME.fullmatch(person):
        person = None
    noted = note.get("pid")
    if type(noted) is int and (pid is None or not Path(f"/proc/{pid}").exists()) and Path(f"/proc/{noted}").exists():
        pid = noted  # on-chip itself was killed, and its command holds on
    alive = pid is not None and Path(f"/proc/{pid}").exists()
    # On a rehearsal host all processes are one user's, so that the note says more than the kernel.
    who = owner_of(pid) if alive and pid and (root == Path("/") or not person) else person or seat
    known = process(pid) if alive and pid else {"command": command if isinstance(command, str) else None}
    if isinstance(since, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\dZ]*", since, re.ASCII):
        known["since"] = since
    return {"state": "person", "who": who, **known}


def _takers(root: Path, chips: Iterable[int]) -> dict[int, int | None]:
    """The chips whose lease is held, and by which process (None: not known; it may be dead, and its children hold on).

    /proc/locks may be read by all; where processes have a namespace of their own, it leaves out what dead ones took,
    so a lease that isn't in it is tried.
    """
    wanted: dict[str, int] = {}
    found: dict[int, int | None] = {}
    for chip in chips:
        lease = root / f"run/tpufleet/leases/chip-{chip}.lock"
        try:
            status = lease.stat()
        except OSError:
            continue
        wanted[f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"] = chip
    for words in map(str.split, text_of(Path("/proc/locks")).splitlines()):  # 1: FLOCK ADVISORY WRITE 12 fd:01:58 0 EOF
        if len(words) >= 6 and words[1] == "FLOCK" and words[5] in wanted:
            found[wanted[words[5]]] = int(words[4])
    for chip in set(wanted.values()) - set(found):
        if _lease(root, chip)[0]:
            found[chip] = None
    return found


def _lease(root: Path, chip: int) -> tuple[bool, bytes]:
    """Whether a lock that shares (as others that look have it) is refused, and the note; nothing of a lease that isn't
    ours to open, as that of somebody else's seat."""
    try:
        fd = os.open(root / f"run/tpufleet/leases/chip-{chip}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False, b""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        held = False
    except BlockingIOError:
        held = True
    note = os.read(fd, 4096)
    os.close(fd)
    return held, note


def _openers(devices: Iterable[Path]) -> dict[Path, list[int]]:
    """Which processes have the devices open, as far as this user may see it; the accel driver tells everybody."""
    wanted = {str(device): device for device in devices}
    found: dict[Path, list[int]] = {}
    for device in devices:
        owner = text_of(Path("/sys/class/accel", device.name, "device_owner")).strip()
        if device.parent == Path("/dev") and owner.isdecimal() and int(owner):
            found[device] = [int(owner)]
    for pid in all_pids():
        try:
            targets = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}  # noqa: PTH115 - half the time
        except OSError:
            continue
        for target in targets & wanted.keys():
            found.setdefault(wanted[target], []).append(pid)
    return found


def _usage(root: Path) -> Mapping[str, Row]:
    """HBM and duty cycle by chip, where the queue's worker has found them lately."""
    path = root / "var/lib/tpufleet/usage.json"
    try:
        if time.time() - path.stat().st_mtime > FRESH_S:
            return {}
    except OSError:
        return {}
    names = ("hbm_used", "hbm_total", "duty_pct")
    found = parsed(text_of(path))
    return {
        chip: {name: number(row[name]) for name in names if name in row}
        for chip in found
        for row in rows_of([found[chip]])
    }


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - half the time


def words_of(pid: int) -> list[str]:
    return text_of(Path(f"/proc/{pid}/cmdline")).rstrip("\0").split("\0")


def _training(run: str) -> int | None:
    """The process of a run of the queue's: the child of its supervisor (`python3 … AGENT supervise RUN …`)."""
    supervisor = next((pid for pid in all_pids() if _follow(words_of(pid), "supervise", run)), None)
    children = (pid for pid in all_pids() if supervisor is not None and _stat(pid)[1:2] == [str(supervisor)])
    return next(children, supervisor)


def _follow(words: Sequence[str], first: str, second: str) -> bool:
    return first in words and words[words.index(first) + 1 :][:1] == [second]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on (proc(5)); the name before them may hold anything."""
    return text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def process(pid: int) -> Row:
    """A process's number, command and beginning; of on-chip, the command that it runs."""
    words = words_of(pid)
    if "--" in words and any(re.search(r"on.chip(\.py)?$", word) for word in words[:4]):
        words = words[words.index("--") + 1 :]
    fields = _stat(pid)
    boot = re.search(r"^btime (\d+)$", text_of(Path("/proc/stat")), re.MULTILINE)
    since = int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK") if boot and len(fields) > 19 else None
    said = since and time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
    return {"pid": pid, "command": clean(" ".join(words))[:300] or None, "since": said}


def owner_of(pid: int) -> str | None:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


# -------------------------------------------------------------------------------------------------------- other hosts


def others(told: Row, root: Path) -> tuple[dict[str, list[Row]], list[str]]:
    """The chips of the fleet's other hosts, asked side by side, and sentences on those that didn't answer."""
    from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired  # late: with --here nobody needs it

    names = [str(host.get("name")) for host in rows_of(told.get("hosts")) if host.get("name") != told.get("host")]
    config = ("-F", os.path.expanduser("~/.ssh/config")) if root != Path("/") else ()  # noqa: PTH111 - as ssh has it
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # it breaks ssh on TPU images
    asked = {
        name: Popen([*SSH, *config, "--", name, ASK], stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=env)
        for name in names
        if HOST.fullmatch(name)
    }
    deadline = time.monotonic() + REMOTE_S
    found: dict[str, list[Row]] = {}
    problems: dict[str, str] = {}
    for name, ssh in asked.items():
        try:
            out, err = ssh.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutExpired:
            ssh.kill()
            out, err = b"", b"no answer in time"
        said = parsed(out)
        if "chips" in said:
            found[name] = rows_of(said["chips"])
        else:
            problems[name] = clean((err.decode(errors="replace").strip().splitlines() or ["no answer"])[-1])[:200]
    return found, _sentences(problems)


def _sentences(problems: Mapping[str, str]) -> list[str]:
    denied = [name for name, why in problems.items() if "Permission denied" in why]
    said = [f"{name} can't be reached: {why}" for name, why in problems.items() if name not in denied]
    if denied:
        said.append(f"{', '.join(denied)}: your key isn't here to log in there; come with ssh -A to see them, too")
    return said


# --------------------------------------------------------------------------------------------------------- the picture

HEAD = ("CHIP", "WHO", "", "UTC", "HBM", "DUTY", "PID", "COMMAND")


def cells(host: str, row: Row) -> tuple[str, ...]:
    """One chip, as HEAD has it."""
    state, who, seat = row.get("state"), row.get("who"), row.get("seat")
    name = row.get("run") if state == "run" else who or seat or ("" if state == "free" else "somebody")
    word = {"free": "free", "seat": "idle", "run": "run", "busy": "open!"}.get(str(state), "in use")
    used, total, duty = (number(row.get(key)) for key in ("hbm_used", "hbm_total", "duty_pct"))
    return (
        f"{cut(host, 14)}:{cut(row.get('chip'), 2)}",
        cut(name, 16),
        word,
        _clock(row.get("since")),
        "" if used is None or total is None else f"{used / (1 << 30):.1f}/{total / (1 << 30):.0f}G",
        "" if duty is None else f"{duty:.0f}%",
        cut(row.get("pid") or "", 7),
        clean(row.get("command") or ""),
    )


def cut(value: object, width: int) -> str:
    text = clean(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _clock(since: object) -> str:
    """The hour and minute (UTC) of today; for another day its month and day."""
    said = clean(since or "")
    return said[11:16] if said[:10] == time.strftime("%Y-%m-%d", time.gmtime()) else said[5:10]


def picture(hosts: Mapping[str, Sequence[Row]], problems: Sequence[str], width: int) -> str:
    """A line per chip that isn't wider than `width`; columns that nothing is known for are left out."""
    rows = [cells(host, row) for host, chips in hosts.items() for row in chips]
    if not rows:
        return "\n".join(["no TPU chip here", *problems]) + "\n"
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [index for index, longest in enumerate(widths) if longest]
    lines = ("  ".join(row[n].ljust(max(widths[n], len(HEAD[n]))) for n in shown).rstrip() for row in (HEAD, *rows))
    return "\n".join([*(cut(line, width) for line in lines), *problems]) + "\n"


def answer(words: Sequence[str]) -> str:
    """What is printed, once."""
    root = Path(os.path.realpath(os.environ.get("TPUFLEET_HOST_ROOT") or "/"))
    told = parsed(text_of(root / "var/lib/tpufleet/people.json") or "{}")
    here = told.get("host")
    name = here if isinstance(here, str) and HOST.fullmatch(here) else os.uname().nodename
    hosts: dict[str, Sequence[Row]] = {name: look(root, told)}
    if {"--here", "--json"} <= set(words):
        return json.dumps({"host": name, "chips": hosts[name]}) + "\n"
    found, problems = ({}, []) if "--here" in words else others(told, root)
    hosts = dict(sorted({**hosts, **found}.items()))
    if "--json" in words:
        rows = [{"host": host, "chips": chips} for host, chips in hosts.items()]
        return json.dumps({"hosts": rows, "problems": problems}) + "\n"
    return picture(hosts, problems, shutil.get_terminal_size((WIDTH, 24)).columns)


def main(words: Sequence[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP, end="")
        return 0
    wrong = sorted(set(words) - {"--json", "--here", "--watch"})
    if wrong:
        print(f"chips: there is no {clean(wrong[0])[:100]}; see chips --help", file=sys.stderr)
        return 2
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends us without a word
    cast("io.TextIOWrapper", sys.stdout).reconfigure(errors="replace")  # a terminal that isn't UTF-8
    try:
        while True:
            said = answer(words)
            print(("\033[H\033[J" if "--watch" in words and os.isatty(1) else "") + said, end="", flush=True)
            if "--watch" not in words:
                return 0
            time.sleep(EVERY_S)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # as in chips | head; nothing is left to flush to it
        return 1
    except OSError as error:
        print(f"chips: {clean(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
