"""How a person changed the code that they cloned: one patch per clone, commits of their own and new files included."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tpufleet.host import git
from tpufleet.host.places import own_environment

NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}", re.ASCII)
MOST_CLONES = 20
LONGEST = 16 << 20  # bytes; changed code is small, and data that was put beside it isn't wanted
TIME_LIMIT_S = 60
BIG = "1m"  # git shows no content of files beyond
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's own, of a repository without commits


def of_clones(home: Path) -> Iterator[tuple[str, bytes | str]]:
    """The clones right below `home` as (name, patch); a sentence in place of a patch that can't be had.

    Runs as the person whose home it is: git does what the settings in their repository say, with their rights alone.
    """
    clones = [entry for entry in sorted(home.iterdir()) if NAME.fullmatch(entry.name) and (entry / ".git").is_dir()]
    for clone in clones[:MOST_CLONES]:
        if not clone.is_symlink():
            patch = _patch(clone)
            if patch:
                yield clone.name, patch


def _patch(clone: Path) -> bytes | str:
    base = _base(clone)
    with tempfile.TemporaryDirectory() as aside:
        index = Path(aside, "index")  # a copy, so that the person's own stays as it is
        if (clone / ".git/index").is_file():
            shutil.copyfile(clone / ".git/index", index)
        try:
            _git(clone, index, "add", "--all", "--intent-to-add", ".")
            words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", base)
            done = _git(clone, index, "-c", f"core.bigFileThreshold={BIG}", *words)
        except subprocess.TimeoutExpired:
            return f"git took longer than {TIME_LIMIT_S} s"
        except FileNotFoundError:
            return "git is not installed on this host"
    if done.returncode:
        return f"git could not tell what was changed: {done.stderr.decode(errors='replace').strip()[-200:]}"
    return done.stdout if len(done.stdout) <= LONGEST else f"the changes are longer than {LONGEST >> 20} MiB"


def _base(clone: Path) -> str:
    """The commit from which the person went on: the newest that they have in common with where they cloned from."""
    for upstream in ("@{upstream}", "origin/HEAD"):
        found = _git(clone, None, "merge-base", "HEAD", upstream)
        if found.returncode == 0:
            return found.stdout.decode().strip()
    return "HEAD" if _git(clone, None, "rev-parse", "--verify", "--quiet", "HEAD").returncode == 0 else EMPTY_TREE


def _git(clone: Path, index: Path | None, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in own_environment().items() if not name.startswith("GIT_")}
    environment |= {"HOME": os.devnull, "LC_ALL": "C", "GIT_ALLOW_PROTOCOL": "", "GIT_TERMINAL_PROMPT": "0"}
    if index:
        environment["GIT_INDEX_FILE"] = str(index)
    return subprocess.run(
        ["git", *git.SAFE, "-C", str(clone), "--no-optional-locks", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=TIME_LIMIT_S,
        check=False,
    )
