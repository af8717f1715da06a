"""git, run so that neither a URL, a repository nor the environment can make it do something else.

For some addresses git runs programs, and one that begins with a dash is an option to it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tpufleet.host import files
from tpufleet.host.errors import GIT, HostError, bad
from tpufleet.host.places import SET_UP, own_environment

FETCH_TIMEOUT_S = 1800
LOCAL_TIMEOUT_S = 600
PROTOCOLS = "https:ssh"
NOTHING: tuple[int, ...] = ()
NO_CHANGES = ""
UNREADABLE = "unreadable"
URL = re.compile(
    r"https://[A-Za-z0-9][\w.-]*(?::\d{1,5})?/[\w.~/+@%-]+"
    r"|ssh://(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9][\w.-]*(?::\d{1,5})?/[\w.~/+@%-]+"
    r"|git@[A-Za-z0-9][\w.-]*:[\w.~/+@%-]+",
    re.ASCII,
)

# No hooks and no helpers that a repository or its configuration brings along; stalled transfers end by themselves.
SAFE = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
    "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", "-c", "advice.detachedHead=false",
)  # fmt: skip


def checked_url(url: str) -> str:
    """`url` if hosts may clone from it; raises HostError (bad-request)."""
    if not URL.fullmatch(url):
        raise bad("a repository's address must be https://…, ssh://… or git@host:path")
    return url


def git(
    *words: str,
    protocols: str = "",
    timeout_s: float = LOCAL_TIMEOUT_S,
    keep: Collection[int] = NOTHING,
    settings: Path | None = None,
) -> str:
    """Runs git and gives what it printed; raises HostError (git) with the last thing it said.

    `protocols` are those it may fetch over; none by default. It inherits the descriptors `keep`: a lock that must be
    held for as long as it writes, even when its caller is killed. `settings` is read in place of ~/.gitconfig.
    """
    done = _run(words, protocols, timeout_s, keep, settings)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        telling = [line for line in said if line.startswith(("fatal:", "error:", "remote:", "ERROR:"))] or said
        raise HostError(GIT, f"git {words_shown(words)}: {' '.join(telling[-2:])[:500] or 'it failed'}")
    return done.stdout


def succeeds(*words: str) -> bool:
    """Whether a local git command succeeds."""
    return _run(words, "", LOCAL_TIMEOUT_S).returncode == 0


def is_dirty(tree: Path) -> bool:
    """Whether tracked files of a checkout were changed since its commit and its set-up; added files don't count."""
    set_up = files.read_json(tree / ".git" / SET_UP) or {}
    return changes(tree) != set_up.get("changes", NO_CHANGES)


def changes(tree: Path) -> str:
    """A hash of how tracked files of a checkout differ from its commit; NO_CHANGES when they don't."""
    try:
        local = looking_at(tree)
    except HostError:
        return UNREADABLE
    status = _run((*local, "status", "--porcelain", "--untracked-files=no"), "", LOCAL_TIMEOUT_S)
    if status.returncode == 0 and not status.stdout.strip():
        return NO_CHANGES
    diff = _run((*local, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD"), "", LOCAL_TIMEOUT_S)
    if status.returncode or diff.returncode:
        return UNREADABLE
    return hashlib.sha256(diff.stdout.encode(errors="replace")).hexdigest()[:16]


def looking_at(tree: Path) -> tuple[str, ...]:
    """git's first words to look at a checkout and change nothing. The programs that its own settings name for each
    file (filters) don't run: a job may have written them there. Those in the operator's settings do, such as LFS."""
    words = ("-C", str(tree), "--no-optional-locks")
    told = _run((*words, "config", "--local", "-z", "--name-only", "--get-regexp", r"^filter\."), "", LOCAL_TIMEOUT_S)
    return *words, *without_filters(told.stdout.split("\0"))


def without_filters(settings: Iterable[str]) -> list[str]:
    """Words that switch off the filters which `settings` (`filter.NAME.clean` …) name; raises HostError (git) for a
    name that can't be switched off."""
    names = sorted({setting.partition(".")[2].rpartition(".")[0] for setting in settings if setting})
    if any("=" in name for name in names):  # where git ends a setting's name
        raise HostError(GIT, "the names of its filters are none that can be switched off")
    offs = [f"filter.{name}.{off}" for name in names for off in ("clean=", "process=", "required=false")]
    return [word for off in offs for word in ("-c", off)]


def words_shown(words: Sequence[str]) -> str:
    """The subcommand, for a message: the first word that is neither an option nor an option's value."""
    rest = iter(words)
    for word in rest:
        if word in ("-C", "-c"):
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


def _run(
    words: Sequence[str],
    protocols: str,
    timeout_s: float,
    keep: Collection[int] = NOTHING,
    settings: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in own_environment().items() if not name.startswith("GIT_")}
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20",
        "LC_ALL": "C",
    }
    if settings is not None:
        env["GIT_CONFIG_GLOBAL"] = str(settings)
    try:
        return subprocess.run(
            ["git", *SAFE, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            timeout=timeout_s,
            pass_fds=keep,
            check=False,
        )
    except FileNotFoundError:
        raise HostError(GIT, "git is not installed on this host") from None
    except subprocess.TimeoutExpired:
        raise HostError(GIT, f"git {words_shown(words)}: no end after {timeout_s:.0f} s") from None
