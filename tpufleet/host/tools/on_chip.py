#!/usr/bin/env -S python3 -IS
"""on-chip: runs a command on a TPU chip of this host that nobody else has, and gives the chip back. One file,
Python 3.10, no dependencies; it imports nothing of tpufleet's, since people run it where tpufleet isn't."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HELP = """\
on-chip: run a command on a TPU chip of this host.

  on-chip [N|cpu] [--wait] -- COMMAND [ARGUMENT ...]

  on-chip -- python train.py      on your seat; without one, on the lowest chip
                                  that is free and nobody's seat
  on-chip 2 -- python train.py    on chip 2
  on-chip cpu -- python train.py  on no chip at all
  on-chip --wait -- ./sweep.sh    waits until the chip is free
  chips                           who is on which chip

The command sees that chip only, whichever framework it uses (PyTorch/XLA, JAX),
and the chip is yours until it and everything it started has ended. It runs in
your terminal, without a shell in between: Ctrl-C reaches it, and its exit code
is on-chip's. If there is a .venv here, or where the git clone begins, its
python is the one that is found.

What the training writes to $TPUFLEET_RUN_DIR (metrics.jsonl, completions.jsonl,
checkpoints/) lies in ~/runs/YOU-DATE-TIME, with run.json, which says what ran
where, when, and how it ended.

exit codes: 75 the chip is busy (who has it is said), 77 it is somebody else's
seat, 2 on-chip was called wrongly, 1 another hitch, 126 and 127 the command
can't be run or isn't there, 128+N it was ended by signal N; else the command's.
"""

WRONG, BUSY, NOT_YOURS, CANNOT_EXECUTE, NOT_FOUND = 2, 75, 77, 126, 127
PATIENCE_S = 0.05  # for a lease: one that only looks at it holds it for a moment
RELEASE_S = 0.5  # for a device whose last process is just ending
POLL_S = 0.2
FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,31}")

# ------------------------------------------------------------------ the pin: as tpufleet/host/pin.py, a test compares

BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
METRIC_PORT = 8431
MESH_PORT = 8474
MESH = ("TPU_MESH_CONTROLLER_ADDRESS", "TPU_MESH_CONTROLLER_PORT")
STALE = (*MESH, "TPU_PROCESS_ADDRESSES", "TPU_PROCESS_PORT", "CLOUD_TPU_TASK_ID", "TPU_HOST_BOUNDS",
         "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_VISIBLE_DEVICE_PATHS")  # fmt: skip
PINNING = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES", "TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS",
           "TPU_LOG_DIR")  # fmt: skip


def pinned(
    environ: Mapping[str, str], slot: Sequence[int], on_host: int, log_dir: Path, *, multi_host: bool
) -> dict[str, str]:
    """`environ` for the chips of `slot` on a host that has `on_host`; for no chip at all if `slot` is empty."""
    size = len(slot)
    unset = (*STALE, *(("TPU_SKIP_MDS_QUERY", "JAX_PLATFORMS") if size else PINNING))
    variables = {name: value for name, value in environ.items() if name not in unset}
    if not size:
        return {**variables, "PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu"}
    visible = ",".join(map(str, slot))
    port_flag = f"--runtime_metric_service_port={METRIC_PORT + slot[0]}"  # of flags given twice the last wins
    init_args = [word for word in environ.get("LIBTPU_INIT_ARGS", "").split(" ") if word != port_flag]
    variables |= {
        "TPU_VISIBLE_CHIPS": visible,
        "TPU_VISIBLE_DEVICES": visible,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": BOUNDS[size],
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "PJRT_DEVICE": "TPU",
        "LIBTPU_INIT_ARGS": " ".join([*init_args, port_flag]).strip(),
        "TPU_LOG_DIR": str(log_dir),
    }
    if 1 < size < on_host:
        port = str(MESH_PORT + slot[0] // size)
        variables |= {MESH[0]: f"localhost:{port}", MESH[1]: port}
    if multi_host and size > 1 and size == on_host:  # a worker of a larger slice must not wait for the others
        variables |= {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_HOST_BOUNDS": "1,1,1",
            "TPU_CHIPS_PER_HOST_BOUNDS": BOUNDS[size],
            "TPU_WORKER_HOSTNAMES": "localhost",
            "WORKER_ID": "0",
        }
    return variables


# ------------------------------------------------------------------------------------------------ what was asked for


class Refused(Exception):
    """What can't be done, as a sentence with the next command, and the exit code that says it."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


class Wish(NamedTuple):
    """`chip`: a number, "cpu", or None for the seat or a free one."""

    chip: int | str | None
    wait: bool
    command: list[str]


def parse(words: Sequence[str]) -> Wish:
    if "--" not in words:
        chip = "".join(f"{word} " for word in words[:1] if re.fullmatch(r"cpu|\d{1,3}", word, re.ASCII))
        rest = " ".join(words[1:] if chip else words)
        rest = "COMMAND" if chip and not rest else "python train.py" if rest.startswith("-") else rest
        raise Refused(f"the command comes after two dashes, as in: on-chip {chip}-- {clean(rest)[:200]}", WRONG)
    cut = list(words).index("--")
    options, command = list(words[:cut]), list(words[cut + 1 :])
    wait = "--wait" in options
    chips = [word for word in options if word != "--wait"]
    if len(chips) > 1 or not all(re.fullmatch(r"cpu|\d{1,3}", word, re.ASCII) for word in chips):
        said = clean(" ".join(chips))[:100]
        raise Refused(f"before the two dashes stands a chip's number or cpu, not {said}; see on-chip --help", WRONG)
    if not command:
        raise Refused("there is no command after the two dashes; see on-chip --help", WRONG)
    return Wish(None if not chips else "cpu" if chips == ["cpu"] else int(chips[0]), wait, command)


def clean(text: str) -> str:
    """What others wrote, for a terminal: nothing in it can move the cursor or turn the writing around."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


# --------------------------------------------------------------------------------------------------------- this host


class Host(NamedTuple):
    """This host as on-chip needs it: `seats` are everybody's, by chip."""

    root: Path
    devices: dict[int, Path]
    person: str
    seats: dict[int, str]
    multi_host: bool

    def lease(self, chip: int) -> Path:
        return self.root / f"run/tpufleet/leases/chip-{chip}.lock"


def this_host() -> Host:
    """Read from the host's files. What the operator wrote may be missing or of another version: then nobody has a
    seat here as far as on-chip knows, and the kernel keeps other people's closed all the same."""
    root = Path(os.path.realpath(os.environ.get("TPUFLEET_HOST_ROOT") or "/"))
    # On a rehearsal host all processes are one user's, and the session says who it is.
    person = os.environ.get("USER", "") if root != Path("/") else _user_name()
    seats: dict[int, str] = {}
    workers = 1
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        told: Any = json.loads((root / "var/lib/tpufleet/people.json").read_bytes())
        here = [entry for entry in told["people"] if entry["state"] == "here" and NAME.fullmatch(entry["name"])]
        seats = {int(chip): entry["name"] for entry in here for chip in entry["seat"]}
        nodes = [host["name"].rpartition("-w")[0] for host in told["hosts"]]
        workers = nodes.count(told["host"].rpartition("-w")[0])
    return Host(root, _devices(root), person if NAME.fullmatch(person) else "nobody", seats, multi_host=workers > 1)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _devices(root: Path) -> dict[int, Path]:
    """The device files by their chip's number: /dev/accelN, else /dev/vfio/N, whose numbers are the kernel's and only
    their order counts."""
    accel = {int(path.name[5:]): path for path in root.glob("dev/accel*") if path.name[5:].isdecimal()}
    vfio = sorted((int(path.name), path) for path in root.glob("dev/vfio/*") if path.name.isdecimal())
    return dict(sorted(accel.items())) or {index: path for index, (_, path) in enumerate(vfio)}


# --------------------------------------------------------------------------------------------------- taking the chip


def slots(host: Host, chip: int | str | None) -> list[tuple[int, ...]]:
    """What may be taken, the best first; raises Refused where nothing may."""
    if not host.devices:
        raise Refused("this host has no TPU chip; on the CPU: on-chip cpu -- COMMAND")
    if isinstance(chip, int):
        if chip not in host.devices:
            here = f"chip {' to '.join(map(str, sorted({min(host.devices), max(host.devices)})))}"
            raise Refused(f"there is no chip {chip} here, there is {here}; see chips", WRONG)
        if host.seats.get(chip, host.person) != host.person:
            raise Refused(f"chip {chip} is {host.seats[chip]}'s seat; what is free: chips --here", NOT_YOURS)
        return [(chip,)]
    mine = tuple(sorted(index for index, name in host.seats.items() if name == host.person))
    if mine:
        if not set(mine) <= set(host.devices) or len(mine) not in BOUNDS:
            raise Refused(f"your seat, {_name(mine)}, isn't what this host has now; tell who runs the fleet")
        return [mine]
    open_to_all = [(index,) for index in host.devices if index not in host.seats]
    if not open_to_all:
        raise Refused("every chip here is somebody else's seat; on the CPU: on-chip cpu -- COMMAND", NOT_YOURS)
    return open_to_all


def take(host: Host, wish: Wish) -> tuple[tuple[int, ...], list[int]]:
    """The chips, and the descriptors that hold their leases; raises Refused when they are busy, or waits."""
    wanted = slots(host, wish.chip)
    told = False
    while True:
        busy: list[int] = []
        closed: list[Refused] = []
        for slot in wanted:
            try:
                held = _take_slot(host, slot, busy)
            except Refused as refused:
                closed.append(refused)
                continue
            if held:
                return slot, held
        if not busy:
            raise closed[0]
        if not wish.wait:
            raise Refused(f"{_who_has(busy)}. To wait for it: on-chip --wait; for all chips: chips", BUSY)
        if not told:
            say(f"{_who_has(busy)}. Waiting; Ctrl-C leaves.")
            told = True
        time.sleep(POLL_S)


def _take_slot(host: Host, slot: Sequence[int], busy: list[int]) -> list[int]:
    """The leases of all chips of `slot`; or none, and the chip that is busy is added to `busy`."""
    held: list[int] = []
    for chip in slot:
        try:
            fd = _lock(host, chip)
            held += [] if fd is None else [fd]
            if fd is None or _is_open(host.devices[chip]):
                busy.append(chip)
                break
        except Refused:
            _give_back(held)
            raise
    else:
        return held
    _give_back(held)
    return []


def _give_back(held: Sequence[int]) -> None:
    for fd in held:
        os.close(fd)


def _lock(host: Host, chip: int) -> int | None:
    """A descriptor that holds the chip's lease, or None when someone else has it; raises Refused where none can."""
    try:
        fd = os.open(host.lease(chip), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        raise Refused(f"chip {chip} is somebody else's seat; what is free: chips --here", NOT_YOURS) from None
    except FileNotFoundError:
        raise Refused("this host isn't ready for on-chip; who runs the fleet can mend that: tpufleet create") from None
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                return None
            time.sleep(0.01)
        else:
            return fd


def _is_open(device: Path) -> bool:
    """Whether somebody is on the device without a lease, and not just about to end: it can't be opened, or a process
    that we see has it open."""
    deadline = time.monotonic() + RELEASE_S
    while True:
        try:
            os.close(os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            refused = False
        except OSError as error:
            if error.errno == errno.EACCES:
                raise Refused(f"{device} is closed to you; whose seat it is: chips --here", NOT_YOURS) from None
            refused = error.errno in (errno.EBUSY, errno.EPERM)  # what drivers say while another process is on it
        if not refused and not any(str(device) in _open_files(pid) for pid in _pids()):
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(0.01)


def _pids() -> Iterator[str]:
    return filter(str.isdecimal, os.listdir("/proc"))  # noqa: PTH208 - names are what is wanted


def _open_files(pid: str) -> set[str]:
    try:
        return {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}  # noqa: PTH115 - half the time
    except OSError:
        return set()  # another user's, or gone


def _who_has(busy: Sequence[int]) -> str:
    """Who is on the chips, since when and with what, as `chips` has it; that lies beside us."""
    from subprocess import DEVNULL, run as output_of  # late: nobody needs it who gets a chip

    beside = Path(__file__).with_name("chips.py" if __file__.endswith(".py") else "chips")
    rows: Any = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        asked = [sys.executable, "-IS", str(beside), "--here", "--json"]
        told = json.loads(output_of(asked, stdin=DEVNULL, capture_output=True, check=False).stdout)
        rows = {row["chip"]: row for row in told["chips"]}
    said: list[str] = []
    for chip in busy:
        row: Any = rows.get(chip, {})
        who = f"run {row['run']}" if row.get("run") else row.get("who") or "somebody"
        pid, since = row.get("pid"), row.get("since")
        who += " (without on-chip)" if row.get("state") == "busy" else ""
        parts = [who, row.get("command"), pid and f"pid {pid}", since and f"since {since[11:16]} UTC"]
        said.append(f"chip {chip} is busy: {clean(', '.join(filter(None, parts)))}")
    return "; ".join(said)


def _name(slot: Sequence[int]) -> str:
    return f"chip {slot[0]}" if len(slot) == 1 else f"chips {slot[0]} to {slot[-1]}"


def _instead(command: str, path: str) -> str:
    """What to type instead of a command that isn't there, if that is known."""
    from shutil import which  # late: nobody needs it whose command is there

    return "; python3 is here" if command == "python" and which("python3", path=path) else ""


# ----------------------------------------------------------------------------------------------------------- the run


class Run:
    """One run: its directory in ~/runs, and the run.json in it. Its modes come from the umask: a chmod would take the
    set-group bit off a directory that is shared with the operator."""

    def __init__(self, person: str, slot: Sequence[int], command: Sequence[str]) -> None:
        started = time.gmtime()
        first = f"{person}-{time.strftime('%Y%m%d-%H%M%S', started)}"
        runs = Path(os.path.expanduser("~/runs"))  # noqa: PTH111 - Path's raises where there is no home
        runs.mkdir(exist_ok=True)
        for name in (first, *(f"{first}-{n}" for n in range(2, 1000))):
            self.dir = runs / name
            with contextlib.suppress(FileExistsError):
                self.dir.mkdir()
                break
        self._told: dict[str, object] = {
            "id": self.dir.name,
            "person": person,
            "chip": slot[0] if slot else "cpu",
            "chips": list(slot),
            "command": list(command),
            "started": rfc3339(started),
        }
        self.write(ended=None, exit_code=None)

    def write(self, *, ended: str | None, exit_code: int | None) -> None:
        aside = self.dir / ".run.json"
        aside.write_text(json.dumps({**self._told, "ended": ended, "exit_code": exit_code}, indent=1) + "\n")
        aside.replace(self.dir / "run.json")

    def forget(self) -> None:
        """For a command that never began."""
        (self.dir / "run.json").unlink()
        self.dir.rmdir()


def rfc3339(at: time.struct_time) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", at)


def environment(host: Host, slot: Sequence[int], run_dir: Path) -> dict[str, str]:
    """The command's: the person's own, with the pin, the run, and the .venv of here or of the clone."""
    variables = pinned(os.environ, slot, len(host.devices), run_dir, multi_host=host.multi_host) | {
        "TPUFLEET_RUN_ID": run_dir.name,
        "TPUFLEET_RUN_DIR": str(run_dir),
        "TPUFLEET_ATTEMPT": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with contextlib.suppress(OSError):  # what lies where we may not look is nothing to us
        here = Path.cwd()
        clone = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
        for venv in (clone / ".venv", here / ".venv"):
            # Somebody else's would run their programs as this person.
            if (venv / "bin").is_dir() and {venv.lstat().st_uid, (venv / "bin").stat().st_uid} <= {0, os.getuid()}:
                variables["PATH"] = f"{venv}/bin:{os.environ.get('PATH', os.defpath)}"
                variables["VIRTUAL_ENV"] = str(venv)
    return variables


def run(wish: Wish) -> int:
    """Does what was asked for; gives the exit code."""
    host = this_host()
    slot, leases = ((), []) if wish.chip == "cpu" else take(host, wish)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
    umask = os.umask(0o027)
    this = Run(host.person, slot, wish.command)
    if this.dir.parent.is_symlink():
        umask &= ~0o050  # they agreed that the operator may read what the command writes there
    variables = environment(host, slot, this.dir)
    child = Child(wish.command, variables, leases, umask)
    said = clean(" ".join(wish.command))[:300]
    note = {"person": host.person, "pid": child.pid, "command": said, "since": rfc3339(time.gmtime())}
    for fd in leases:
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(note).encode(), 0)
    problem = child.begin()
    if problem:
        this.forget()
        missing = problem in (errno.ENOENT, errno.ENOTDIR)
        none = f"there is no such command here{_instead(wish.command[0], variables.get('PATH', os.defpath))}"
        why = none if missing else f"can't be run: {os.strerror(problem)}"
        raise Refused(f"{clean(wish.command[0])[:200]}: {why}", NOT_FOUND if missing else CANNOT_EXECUTE)
    code = child.wait()
    try:
        this.write(ended=rfc3339(time.gmtime()), exit_code=code)
    except OSError as error:
        say(f"run.json can't be written: {clean(str(error))}; see df -h")
    if leases:
        _keep_for_the_rest(this.dir, slot)
    return code


class Child:
    """The process that becomes the command: in our terminal and process group, the leases inherited. It waits at a
    gate until all is written down, and ends there if we are killed before."""

    def __init__(self, command: Sequence[str], env: dict[str, str], leases: Sequence[int], umask: int) -> None:
        gate, self._gate = os.pipe()  # our end to read stays open: the command may be gone when it is opened
        self._failure, failure = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._gate)
                os.umask(umask)
                for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, [])
                if os.read(gate, 1):
                    for fd in leases:
                        os.set_inheritable(fd, True)
                    os.execvpe(command[0], list(command), env)  # noqa: S606 - a list, and no shell on purpose
            except (OSError, ValueError) as error:
                os.write(failure, str(getattr(error, "errno", None) or errno.EINVAL).encode())
            finally:
                os._exit(NOT_FOUND)  # whatever happens, the child never returns into our code
        os.close(failure)

    def begin(self) -> int:
        """Opens the gate; gives the error number when the command could not be started, else 0."""
        os.write(self._gate, b"!")
        said = os.read(self._failure, 16)
        return int(said or 0)

    def wait(self) -> int:
        """The command's exit code as shells have it. Signals that somebody sent to us alone are handed on; those of
        the terminal reach the command by themselves."""
        while True:
            told = signal.sigwaitinfo((*FORWARDED, signal.SIGCHLD))
            if told.si_signo != signal.SIGCHLD:
                if told.si_code <= 0 and told.si_pid != self.pid:  # from a process, not from the kernel
                    os.kill(self.pid, told.si_signo)
                continue
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _keep_for_the_rest(run_dir: Path, slot: Sequence[int]) -> None:
    """Processes that the command left behind may be on the chip, also those that closed the lease (as Python's
    subprocess does): a process of our own holds it until they have ended."""
    rest = _marked(run_dir)
    if not rest:
        return
    say(f"{_name(slot)} stays taken until what was left behind has ended: pid {rest[0]}")
    if os.fork():
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    while _marked(run_dir):
        time.sleep(POLL_S)
    os._exit(0)


def _marked(run_dir: Path) -> list[int]:
    """The living processes, but ours, that have the run in their environment."""
    mark = b"TPUFLEET_RUN_DIR=" + os.fsencode(run_dir)
    found: list[int] = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return [pid for pid in found if pid != os.getpid()]


def say(sentence: str) -> None:
    print(f"on-chip: {sentence}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    if not words or {"-h", "--help"} & set(words[: (*words, "--").index("--")]):
        print(HELP, end="")
        return 0 if words else WRONG
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while we wait ends us without a word
    try:
        return run(parse(words))
    except Refused as refused:
        say(str(refused))
        return refused.code
    except OSError as error:
        say(f"{clean(f'{error.filename}: {error.strerror}')}; see df -h ~")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
