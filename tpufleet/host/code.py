"""The verb `code`: one repository at one commit on this host, its setup done once."""

from __future__ import annotations

import os
import shutil
import time
from typing import NamedTuple

from tpufleet.host import files, git, locks, setup
from tpufleet.host.errors import DRIFT, GIT, HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import COMMIT, Places, RepoPlaces
from tpufleet.host.store import all_states
from tpufleet.restart import FINAL_STATES

LONGEST_SETUP_S = 24 * 3600.0


class CodeRequest(NamedTuple):
    """What the verb is asked for; `shallow` holds the commits behind which a bundled history is not known.

    `restore` undoes what was changed in the tree by hand.
    """

    repo: str
    commit: str
    url: str | None
    shallow: tuple[str, ...]
    restore: bool
    setup: tuple[str, ...]
    setup_timeout_s: float


def code(places: Places, request: JsonObject) -> JsonObject:
    """Makes the commit's tree and does its setup; two at once do it once.

    Gives `{"missing": true, "upload": PATH}` when the commit is neither here nor to be had: the client puts a bundle
    at PATH and asks again.
    """
    wanted = _parse(request)
    begun = time.monotonic()
    places.prepare()
    at = places.repo(wanted.repo)
    at.bundles.mkdir(parents=True, exist_ok=True)
    at.trees.mkdir(exist_ok=True)
    tree = at.tree(wanted.commit)
    with locks.locked(at.lock) as lock:
        if tree.is_dir():
            _make_way(places, at, wanted)
        fetched = not tree.is_dir() and _get_commit(at, wanted, lock)
        if not tree.is_dir():
            if not _has_commit(at, wanted.commit):
                return {"missing": True, "upload": str(at.bundle(wanted.commit))}
            _check_out(at, wanted.commit, wanted.shallow, lock)
        outcome = setup.run_setup(at, wanted.commit, wanted.setup, wanted.setup_timeout_s, lock)
        files.write_json(at.current, {"commit": wanted.commit})
    return {
        "commit": wanted.commit,
        "tree": str(tree),
        "dirty": git.is_dirty(tree),
        "fetched": fetched,
        "setup": outcome,
        "seconds": round(time.monotonic() - begun, 3),
    }


def _parse(request: JsonObject) -> CodeRequest:
    repo, commit, url = request.get("repo"), request.get("commit"), request.get("url")
    lines = files.as_texts(request.get("setup") or [])
    shallow = files.as_texts(request.get("shallow") or [])
    restore: object = request.get("restore", False)
    timeout_s: object = request.get("setup_timeout_s", 1800)
    if not isinstance(repo, str) or not isinstance(commit, str):
        raise bad("code needs a repository's id and a commit")
    if url is not None and not isinstance(url, str):
        raise bad("a repository's address must be text")
    if shallow is None or not all(COMMIT.fullmatch(line) for line in shallow):
        raise bad("shallow must be a list of commits")
    if not isinstance(restore, bool):
        raise bad("restore must be true or false")
    if lines is None:
        raise bad("setup must be a list of shell lines")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= LONGEST_SETUP_S:
        raise bad("setup_timeout_s must be a number of seconds, at most a day")
    checked = None if url is None else git.checked_url(url)
    return CodeRequest(repo, commit, checked, tuple(shallow), restore, tuple(lines), float(timeout_s))


def _make_way(places: Places, at: RepoPlaces, wanted: CodeRequest) -> None:
    """Moves the commit's tree aside if it was set up in another way, or changed by hand where that shall be undone.

    Raises HostError (drift) when it would have to, or set-up would change it, under runs that have not ended. A tree
    in which no set-up came to its end stays: what it has made so far is of use to the next try.
    """
    done = setup.was_done(at, wanted.commit)
    spoilt = wanted.restore and git.is_dirty(at.tree(wanted.commit))
    if done == list(wanted.setup) and not spoilt:
        return
    users = [
        state.id for state in all_states(places) if state.commit == wanted.commit and state.state not in FINAL_STATES
    ]
    if users:
        others = f" and {len(users) - 1} more" if len(users) > 1 else ""
        raise HostError(
            DRIFT,
            f"commit {wanted.commit[:12]} is in use by {users[0]}{others} as it is, and would have to be set up anew",
        )
    if done or spoilt:
        at.tree(wanted.commit).rename(at.trees / f".{wanted.commit}.before")  # the checkout removes it


def _has_commit(at: RepoPlaces, commit: str) -> bool:
    return at.git.is_dir() and git.succeeds(f"--git-dir={at.git}", "cat-file", "-e", f"{commit}^{{commit}}")


def _get_commit(at: RepoPlaces, wanted: CodeRequest, lock: int) -> bool:
    """Brings the commit into the bare repository, from a bundle that was sent or from the URL; whether it had to.

    `lock`, the repository's, is inherited by git: one whose caller died is waited for, not joined.
    """
    if _has_commit(at, wanted.commit):
        return False
    _make_bare(at, lock)
    bundle = at.bundle(wanted.commit)
    if bundle.is_file():
        try:
            git.git(f"--git-dir={at.git}", "bundle", "unbundle", str(bundle), keep=[lock])
        finally:
            bundle.unlink(missing_ok=True)  # a bad one would be in the way of the next
        if not _has_commit(at, wanted.commit):
            raise HostError(GIT, f"the bundle that was sent does not hold commit {wanted.commit[:12]}")
    elif wanted.url is not None:
        refs = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        git.git(
            f"--git-dir={at.git}", "fetch", "--quiet", "--force", "--no-tags", "--", wanted.url, *refs,
            protocols=git.PROTOCOLS, timeout_s=git.FETCH_TIMEOUT_S, keep=[lock],
        )  # fmt: skip
    if not _has_commit(at, wanted.commit):
        return False
    git.git(f"--git-dir={at.git}", "update-ref", f"refs/tpufleet/{wanted.commit}", wanted.commit, keep=[lock])
    return True


def _make_bare(at: RepoPlaces, lock: int) -> None:
    """An empty bare repository, whole or absent."""
    if at.git.is_dir():
        return
    aside = at.dir / f".repo.{os.getpid()}"
    git.git("init", "--quiet", "--bare", "--template=", "--", str(aside), keep=[lock])
    aside.rename(at.git)


def _check_out(at: RepoPlaces, commit: str, shallow: tuple[str, ...], lock: int) -> None:
    """The commit's tree, made aside and renamed; it borrows the bare repository's objects.

    What an interrupted one left behind is removed: the caller holds the repository's lock.
    """
    for left in at.trees.glob(".*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = at.trees / f".{commit}"
    git.git(
        "clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", str(at.git), str(aside),
        protocols="file", keep=[lock],
    )  # fmt: skip
    if shallow:
        (aside / ".git" / "shallow").write_text("".join(f"{line}\n" for line in shallow))
    git.git("-C", str(aside), "checkout", "--quiet", "--detach", commit, keep=[lock])
    aside.rename(at.tree(commit))
    files.sync_directory(at.trees)
