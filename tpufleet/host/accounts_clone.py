"""A clone of the fleet's code in a person's home, made as that person (`accounts_child`), with their rights only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tpufleet.host import git
from tpufleet.host.accounts_request import Clone
from tpufleet.host.errors import GIT, HostError
from tpufleet.host.files import JsonObject


def clone(home: Path, wanted: Clone, tree: Path | None, settings: Path, limit_s: float) -> JsonObject:
    """A clone beside whatever is there, made aside; what has its name is left alone. `tree` is a checkout of it on this
    host, `settings` are git's. Gives what `accounts_home.set_up` does."""
    to, aside = home / wanted.name, home / f".{wanted.name}.tpufleet"
    if os.path.lexists(to):
        return {}
    shutil.rmtree(aside, ignore_errors=True)
    os.environ["HOME"] = str(home)  # this process is a child that does nothing else
    try:
        if tree is None:
            if wanted.url is None:
                raise HostError(GIT, "this host doesn't have the code yet (tpufleet sync)")
            words = ("clone", "--quiet", "--", wanted.url, str(aside))
            git.git(*words, protocols=git.PROTOCOLS, timeout_s=limit_s, settings=settings)
        else:
            _clone_tree(tree, aside, wanted.url, settings, limit_s)
        aside.rename(to)
    except HostError as error:
        shutil.rmtree(aside, ignore_errors=True)
        return {"whys": [f"{wanted.name} is not cloned: {error.message}"]}
    return {"changed": True}


def _clone_tree(tree: Path, to: Path, url: str | None, settings: Path, limit_s: float) -> None:
    """A clone of the operator's checkout `tree`, as if it came from `url`, if there is one: on the branch that is at
    its commit, else on `main`. The checkout borrows its objects, which a clone of somebody else's must not: so nothing
    is taken by links (`--no-local`). Raises HostError (git)."""

    def here(*words: str, protocols: str = "") -> str:
        return git.git("-C", str(to), *words, protocols=protocols, timeout_s=limit_s, settings=settings).strip()

    words = ("clone", "--quiet", "--no-local", "--no-checkout", "--", str(tree), str(to))
    git.git(*words, protocols="file", timeout_s=limit_s, settings=settings)
    here("fetch", "--quiet", "--prune", "origin", "+refs/remotes/origin/*:refs/remotes/origin/*", protocols="file")
    if url:
        here("config", "remote.origin.url", url)
    names = here("for-each-ref", "--points-at", "HEAD", "--format=%(refname:lstrip=3)", "refs/remotes/origin")
    branches = [name for name in names.split() if name != "HEAD"]
    branch = next((name for name in ("main", "master") if name in branches), branches[0] if branches else None)
    here("checkout", "--quiet", "-B", branch or "main", *(["--track", f"origin/{branch}"] if branch else ["HEAD"]))
