"""The training repository: which commit is meant, and every host at that commit.

A repository with an https or ssh address is cloned by the hosts themselves. A local one travels as a git bundle
over SSH, so that private code needs no token on a shared VM.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tpufleet.errors import CodeError, DiskFull, HostFault
from tpufleet.model import Code, CodeSpec, Host
from tpufleet.names import RepoUrl, shown
from tpufleet.ops.fleet import Fleet
from tpufleet.paths import remote_bundle
from tpufleet.ssh.fanout import Outcome, gather
from tpufleet.text import clean, size

GIT_LIMIT_S = 120
SETUP_LIMIT_S = 1800
COMMIT = re.compile(r"[0-9a-f]{40}")
# git runs programs for some kinds of addresses; these it may use
GIT_ENV = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file", "LC_ALL": "C"}


@dataclass(frozen=True)
class Synced:
    """One host after a sync."""

    host: str
    commit: str
    dirty: bool
    fetched: bool
    setup: str  # ran | cached | none


class Bring(Protocol):
    def __call__(self, host: Host, *, fresh: bool = False) -> Synced:
        """Bring the host to the commit; a `fresh` one surely has nothing of it yet."""
        ...


def resolve(spec: CodeSpec, directory: Path) -> Code:
    """The commit that `spec` means now, in full; `directory` is where a relative path starts.

    Raises CodeError when the repository can't be read or has no such commit.
    """
    try:
        url = RepoUrl(spec.repo)
    except ValueError:
        return _resolve_local(spec, directory)
    return _resolve_url(spec, url)


def sync(
    fleet: Fleet, hosts: Sequence[Host], code: Code, *, restore: bool = False
) -> tuple[Outcome[Host, Synced], ...]:
    """Bring every host to `code.commit` and its set-up, side by side; with `restore` undo what was changed there."""
    with syncing(fleet, code, restore=restore) as bring:
        return tuple(gather(hosts, bring))


@contextlib.contextmanager
def syncing(fleet: Fleet, code: Code, *, restore: bool = False) -> Generator[Bring]:
    """The way to bring one host to `code.commit`, for any number of threads; a bundle is made once, if one needs it."""
    if code.uncommitted:
        said = f"{code.uncommitted} changed files are not committed: hosts get {code.commit[:12]} without them"
        fleet.say("code", said)
    for left in fleet.paths.state.glob("bundle-*"):  # of a command that was killed; ours holds the fleet's lock
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=fleet.paths.ensure_state(), prefix="bundle-") as aside:
        bundle = _Bundle(code, Path(aside))

        def bring(host: Host, *, fresh: bool = False) -> Synced:
            return _sync_host(fleet, host, code, bundle, fresh=fresh, restore=restore)

        yield bring


def _sync_host(fleet: Fleet, host: Host, code: Code, bundle: _Bundle, *, fresh: bool, restore: bool) -> Synced:
    agent = fleet.agent(host)
    if fresh and code.url is None:
        _upload(fleet, host, code, bundle)
    request: dict[str, Any] = {
        "repo": code.repo_id,
        "url": code.url,
        "bundle": code.url is None,
        "commit": code.commit,
        "shallow": list(code.shallow),
        "setup": list(code.setup),
        "restore": restore,
        "setup_timeout_s": SETUP_LIMIT_S,
    }
    answer = agent.ask("code", request, timeout_s=SETUP_LIMIT_S + 60)
    if answer.get("missing"):
        if code.url is not None:
            raise HostFault(
                f"{code.url} has no commit {code.commit[:12]}",
                kind="git",
                where=host.name,
                hint="git push, then again",
            )
        _upload(fleet, host, code, bundle)
        answer = agent.ask("code", request, timeout_s=SETUP_LIMIT_S + 60)
    done = Synced(
        host.name,
        str(answer.get("commit")),
        bool(answer.get("dirty")),
        bool(answer.get("fetched")),
        str(answer.get("setup")),
    )
    fleet.say(host.name, f"code at {done.commit[:12]}" + (" (changed on the host)" if done.dirty else ""), "done")
    return done


def _upload(fleet: Fleet, host: Host, code: Code, bundle: _Bundle) -> None:
    path = bundle.path()
    fleet.say(host.name, f"receiving the code ({size(path.stat().st_size)})")
    fleet.agent(host).upload(path, remote_bundle(code.repo_id, code.commit))


class _GitSaidNo(CodeError):
    """git ran and refused."""


class _Bundle:
    """The bundle of a local commit, made by whoever needs it first."""

    def __init__(self, code: Code, aside: Path) -> None:
        self._code = code
        self._directory = code.directory or aside  # only local code is ever bundled
        self._aside = aside
        self._lock = threading.Lock()
        self._made: Path | None = None

    def path(self) -> Path:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Path:
        """`git bundle` wants a ref; a bare repository that borrows the objects gets one, the original is left alone."""
        objects = _git(self._directory, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        bare = self._aside / "borrowed.git"
        _git(self._aside, "init", "--quiet", "--bare", str(bare))
        (bare / "objects" / "info" / "alternates").write_text(objects + "\n")
        if self._code.shallow:
            (bare / "shallow").write_text("".join(f"{commit}\n" for commit in self._code.shallow))
        _git(bare, "update-ref", "refs/heads/tpufleet", self._code.commit)
        made = self._aside / "code.bundle"
        _git(bare, "bundle", "create", "--quiet", str(made), "refs/heads/tpufleet")
        return made


def _resolve_url(spec: CodeSpec, url: str) -> Code:
    ref = spec.ref or "HEAD"
    if COMMIT.fullmatch(ref):
        commit = ref
    else:
        listed = _git(Path.cwd(), "ls-remote", "--quiet", "--", url, ref, f"{ref}^{{}}", subject=url).splitlines()
        if not listed:
            raise CodeError(f"{url} has no branch, tag or commit {ref!r}", hint="check `code.ref` in the fleet file")
        commit = listed[-1].split()[0]  # a peeled tag comes last
    return Code(repo_id(url), commit, spec.setup, url=url)


def _resolve_local(spec: CodeSpec, directory: Path) -> Code:
    path = local_directory(spec, directory)
    if not path.is_dir():
        raise CodeError(
            f"the repository {shown(str(path), 300)} does not exist", hint="check `code.repo` in the fleet file"
        )
    ref = spec.ref or "HEAD"
    try:
        commit = _git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except _GitSaidNo as error:
        inside = (path / ".git").exists() or (path / "HEAD").exists()
        raise CodeError(
            f"{path} has no commit {ref!r}" if inside else f"{path} is not a git repository",
            hint=_commit_hint(path, spec.ref, inside=inside),
        ) from error
    changes = _git(path, "status", "--porcelain", "--untracked-files=no") if (path / ".git").exists() else ""
    shallow = Path(_git(path, "rev-parse", "--path-format=absolute", "--git-path", "shallow"))
    return Code(
        repo_id(str(path)),
        commit,
        spec.setup,
        directory=path,
        uncommitted=len(changes.splitlines()),
        shallow=tuple(shallow.read_text().split()) if shallow.exists() else (),
    )


def _commit_hint(path: Path, ref: str | None, *, inside: bool) -> str:
    where = shlex.join(["git", "-C", str(path)])
    if inside and ref:
        return f"{where} branch --all shows what there is; check code.ref in the fleet file"
    begin = "" if inside else f"{where} init && "
    return f"{begin}{where} add --all && {where} commit --message 'What the hosts shall run'"


def local_directory(spec: CodeSpec, directory: Path) -> Path:
    """Where a repository is that has no address; a relative path begins at `directory`, the fleet file's."""
    return (directory / Path(spec.repo.removeprefix("file://")).expanduser()).resolve()


def repo_id(address: str) -> str:
    """The id under which hosts have the repository with this address, or path at home (host/places.py)."""
    return hashlib.sha256(address.encode()).hexdigest()[:12]


def _git(directory: Path, *words: str, subject: str | None = None) -> str:
    """git's answer, stripped; raises CodeError with git's last line. A GIT_DIR of the caller's is not ours."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | GIT_ENV
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *words], capture_output=True, env=env, timeout=GIT_LIMIT_S, check=True
        )
    except FileNotFoundError as error:
        raise CodeError("git is not installed here", hint="install git") from error
    except subprocess.TimeoutExpired as error:
        raise CodeError(f"git {words[0]} took longer than {GIT_LIMIT_S} s") from error
    except subprocess.CalledProcessError as error:
        if b"No space left on device" in error.stderr:
            raise DiskFull(directory) from error
        lines = clean(error.stderr.decode(errors="replace"), keep_newlines=True).strip().splitlines()
        said = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")
        raise _GitSaidNo(
            f"{subject or directory} can't be read: {said or 'git failed'}",
            hint="check `code.repo` in the fleet file",
        ) from error
    return done.stdout.decode(errors="replace").strip()
