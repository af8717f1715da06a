"""How a person changed the code that they cloned: one patch per clone, commits of their own and new files included."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tpufleet.host import git
from tpufleet.host.errors import HostError
from tpufleet.host.places import own_environment

NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)
MOST_CLONES = 20
LONGEST = 16 << 20  # bytes; changed code is small, and data that was put beside it isn't wanted
TIME_LIMIT_S = 120  # for all clones of a person
BIG = "1m"  # git shows no content of files beyond
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's own, of a repository without commits


def of_clones(home: Path) -> Iterator[tuple[str, bytes | str]]:
    """The clones right below `home` as (name, patch); a sentence in place of a patch that can't be had.

    Runs as the person whose home it is: git does what the settings in their repository say, with their rights alone.
    """
    clones = [entry for entry in sorted(home.iterdir()) if NAME.fullmatch(entry.name) and (entry / ".git").is_dir()]
    deadline = time.monotonic() + TIME_LIMIT_S
    for clone in clones[:MOST_CLONES]:
        if not clone.is_symlink():
            patch = _patch(clone, deadline)
            if patch:
                yield clone.name, patch


def _patch(clone: Path, deadline: float) -> bytes | str:
    with tempfile.TemporaryDirectory() as aside:
        index = Path(aside, "index")  # a copy, so that the person's own stays as it is
        if (clone / ".git/index").is_file():
            shutil.copyfile(clone / ".git/index", index)
        try:
            told = _git(clone, None, deadline, "config", "-z", "--name-only", "--get-regexp", r"^filter\.").stdout
            safe = git.without_filters(os.fsdecode(told).split("\0"))
            base = _base(clone, deadline)
            _git(clone, index, deadline, *safe, "add", "--all", "--intent-to-add", ".")
            words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", base)
            done = _git(clone, index, deadline, *safe, "-c", f"core.bigFileThreshold={BIG}", *words)
        except HostError as error:
            return str(error)
        except subprocess.TimeoutExpired:
            return f"git took longer than {TIME_LIMIT_S} s for all that was cloned"
        except FileNotFoundError:
            return "git is not installed on this host"
    if done.returncode:
        return f"git could not tell what was changed: {done.stderr.decode(errors='replace').strip()[-200:]}"
    return done.stdout if len(done.stdout) <= LONGEST else f"the changes are longer than {LONGEST >> 20} MiB"


def _base(clone: Path, deadline: float) -> str:
    """The commit from which the person went on: the newest that they have in common with where they cloned from."""
    for upstream in ("@{upstream}", "origin/HEAD"):
        found = _git(clone, None, deadline, "merge-base", "HEAD", upstream)
        if found.returncode == 0:
            return found.stdout.decode().strip()
    has_commits = _git(clone, None, deadline, "rev-parse", "--verify", "--quiet", "HEAD").returncode == 0
    return "HEAD" if has_commits else EMPTY_TREE


def _git(clone: Path, index: Path | None, deadline: float, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in own_environment().items() if not name.startswith("GIT_")}
    environment |= {"HOME": os.devnull, "LC_ALL": "C", "GIT_ALLOW_PROTOCOL": "", "GIT_TERMINAL_PROMPT": "0"}
    if index:
        environment["GIT_INDEX_FILE"] = str(index)
    return subprocess.run(
        ["git", *git.SAFE, "-C", str(clone), "--no-optional-locks", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=max(deadline - time.monotonic(), 0.0),
        check=False,
    )
