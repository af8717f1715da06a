"""Every path on a host, in one class; all of them lie below the host's root (`/`, or an emulated host's)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tpufleet.host.errors import INTERNAL, HostError, bad

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._=+-]{0,127}")
FLEET = re.compile(r"[a-z][a-z0-9-]{0,62}")
REPO_ID = re.compile(r"[0-9a-f]{8,64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
SET_UP = "tpufleet-set-up.json"


def host_root() -> Path:
    """The host's root as the environment names it (`TPUFLEET_HOST_ROOT`), symlinks resolved."""
    return Path(os.path.realpath(os.environ.get("TPUFLEET_HOST_ROOT") or "/"))


class Places:
    """Paths of one host. Names that come from outside are checked before they become part of a path."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else host_root()
        self.base = self.root / "var/lib/tpufleet"
        self.leases = self.root / "run/tpufleet/leases"
        self.dev = self.root / "dev"
        self.libtpu_lock = self.root / "tmp/libtpu_lockfile"
        self.boot_id = self.root / "proc/sys/kernel/random/boot_id"
        self.control = self.base / "control"
        self.code = self.base / "code"
        self.restore = self.base / "restore"  # files of runs that were on another host, while they arrive
        self.agent_log = self.base / "agent.log"
        self.usage = self.base / "usage.json"  # HBM and duty cycle of the chips, where they can be had
        self.current = self.base / "lib/current"  # the agent that is woken at boot
        self.environment = self.base / "environment.json"  # what it is woken in
        self.unit = self.root / "etc/systemd/system/tpufleet.service"
        self.queue_lock = self.base / "queue.lock"
        self.queue_fifo = self.base / "queue.fifo"
        self.queue_log = self.base / "queue.log"
        self.ttl = self.base / "ttl.json"  # of the timer that keeps the node's ttl, where it has one
        self.people = self.base / "people.json"  # whose account and seat is here; root's
        self.shared = self.base / "people"  # a directory for each person who has agreed to show their runs
        self.accounts_lock = self.base / "accounts.lock"  # whoever changes accounts
        self.clones_lock = self.base / "clones.lock"  # whoever clones into homes
        self.expiry_lock = self.base / "expiry.lock"  # of the one that ends the time of people
        self.accounts_log = self.base / "accounts.log"  # root's, as agent.log and queue.log are the operator's
        self.settings = self.root / "etc/tpufleet"  # what every account reads; root's

    def proc(self, name: str) -> Path:
        """A file of /proc that describes the machine; an emulated host may have its own."""
        own = self.root / "proc" / name
        return own if own.exists() else Path("/proc") / name

    def home(self, name: str) -> Path:
        """The home of a person; raises HostError for an unsafe name."""
        if not USER.fullmatch(name):
            raise bad(f"{name!r:.150} is not a user's name")
        return self.root / "home" / name

    def lease(self, chip: int) -> Path:
        return self.leases / f"chip-{chip:d}.lock"

    def turn(self, fleet: str) -> Path:
        """The lock of whoever gives runs of the fleet to hosts; raises HostError for an unsafe name."""
        if not FLEET.fullmatch(fleet):
            raise bad(f"{fleet!r:.150} is not a fleet's name")
        return self.base / f"turn-{fleet}.lock"

    def run(self, run: str) -> RunPlaces:
        """The paths of one run; raises HostError for an id that is not a safe file name."""
        if not RUN_ID.fullmatch(run):
            raise bad(f"{run!r:.150} is not a run's id")
        return RunPlaces(self, run)

    def runs(self) -> list[str]:
        """The ids of all runs this host was given, sorted."""
        try:
            names = [path.name for path in self.control.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if RUN_ID.fullmatch(name))

    def repo(self, repo: str) -> RepoPlaces:
        if not REPO_ID.fullmatch(repo):
            raise bad(f"{repo!r:.150} is not a repository's id")
        return RepoPlaces(self, repo)

    def repos(self) -> list[str]:
        try:
            names = [path.name for path in self.code.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if REPO_ID.fullmatch(name))

    def prepare(self) -> None:
        """Makes the directories that everything else lies in, with sudo where it must."""
        from tpufleet.host import leases  # late: it knows of places

        own = ["-m", "0755", "-o", str(os.getuid()), "-g", str(os.getgid())]
        _ensure_directory(self.base, 0o755, own)
        leases.prepare(self)
        self.control.mkdir(mode=0o700, exist_ok=True)
        (self.base / "runs").mkdir(mode=0o700, exist_ok=True)
        self.close_runs()
        self.code.mkdir(exist_ok=True)

    def close_runs(self) -> None:
        """What runs write is the operator's alone to read: hosts have other people as well."""
        runs = self.base / "runs"
        if runs.is_dir() and runs.stat().st_mode & 0o077:
            runs.chmod(0o700)


class RunPlaces:
    """The paths of one run: `dir` is the job's to write, `control` is ours and the job is told nothing of it."""

    def __init__(self, places: Places, run: str) -> None:
        self.id = run
        self.dir = places.base / "runs" / run
        self.set_aside = places.base / "runs" / f".{run}.before"
        self.log = self.dir / "log.txt"
        self.metrics = self.dir / "metrics.jsonl"
        self.checkpoints = self.dir / "checkpoints"
        self.control = places.control / run
        self.lock = self.control / "lock"
        self.spec = self.control / "spec.json"
        self.state = self.control / "state.json"
        self.handle = self.control / "handle.json"
        self.secrets = self.control / "secrets.json"
        self.stop = self.control / "stop.json"
        self.scan = self.control / "metrics.json"
        self.scan_lock = self.control / "metrics.lock"  # held while the log is read by offsets, or cut
        self.cut = self.control / "log.json"
        self.verified = self.control / "verified.json"


class RepoPlaces:
    """The paths of one repository: a bare clone, and one immutable tree per commit."""

    def __init__(self, places: Places, repo: str) -> None:
        self.id = repo
        self.dir = places.code / repo
        self.lock = self.dir / "lock"
        self.git = self.dir / "repo.git"
        self.trees = self.dir / "trees"
        self.bundles = self.dir / "bundles"
        self.current = self.dir / "current.json"

    def tree(self, commit: str) -> Path:
        return self.trees / _commit(commit)

    def bundle(self, commit: str) -> Path:
        return self.bundles / f"{_commit(commit)}.bundle"

    def setup_log(self, digest: str) -> Path:
        return self.dir / f"setup-{digest}.log"

    def set_up(self, commit: str) -> Path:
        """What was done to a tree by set-up; it goes with the tree."""
        return self.tree(commit) / ".git" / SET_UP


def _commit(commit: str) -> str:
    if not COMMIT.fullmatch(commit):
        raise bad(f"{commit!r:.150} is not a full commit")
    return commit


def own_environment() -> dict[str, str]:
    """The environment for programs of ours: without LD_PRELOAD, since the TPU images preload tcmalloc, which breaks
    git and ssh (seen with both on the TPU image)."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _ensure_directory(path: Path, mode: int, sudo_options: list[str]) -> None:
    """`path` is a directory this process can write to, made with `mode`; raises HostError when it can't be."""
    if path.is_dir() and os.access(path, os.W_OK | os.X_OK):
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
    except PermissionError:
        import subprocess  # late: a probe never comes here

        made = subprocess.run(
            ["sudo", "-n", "install", "-d", *sudo_options, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=own_environment(),
            check=False,
        )
        if made.returncode or not os.access(path, os.W_OK | os.X_OK):
            said = made.stderr.strip().splitlines()[-1:] or ["no reason given"]
            raise HostError(INTERNAL, f"cannot make {path} with sudo: {said[0]}") from None
