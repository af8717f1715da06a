"""Pure: what a fleet file of the right form may still have wrong in it, value by value and value against value.

(`cloud` and `nodes` have a module of their own: `config.cloud`.)
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from tpufleet.config.cloud import findings_about_cloud, is_inside, largest_host
from tpufleet.config.lists import twins
from tpufleet.config.marks import Finding, Path
from tpufleet.config.sweeps import findings_about_sweep
from tpufleet.host.files import safe_relative
from tpufleet.host.pin import ALWAYS_UNSET, CONTRACT, PINNING
from tpufleet.model import OPERATOR, PARALLEL, PRIORITIES, CodeSpec, JobSpec, Provider, Spec, SshSpec
from tpufleet.names import SYSTEM_GROUPS, RepoUrl, shown

MAX_RETRIES = 1000
MAX_PORT = 65535
MAX_LOG_MB = 100_000
MAX_PATTERN = 1000
SLOTS = (1, 2, 4, 8)  # the chips that a run can be pinned to (host/pin.py: BOUNDS)
# What OpenSSH takes for a destination: nothing that it, or a shell, could take for more.
JUMP = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?(?::[1-9][0-9]{0,4})?"
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
SET_BY_RUNNER = frozenset((*ALWAYS_UNSET, *PINNING, "PJRT_DEVICE", "JAX_PLATFORMS", "TPU_SKIP_MDS_QUERY"))


def findings_about(spec: Spec) -> Iterator[Finding]:
    """Everything in `spec` that can't be meant, or must not be done."""
    yield from findings_about_cloud(spec)
    yield from _ssh(spec.ssh, own_hosts=spec.cloud.provider is not Provider.INVENTORY)
    if spec.code:
        yield from _code(spec.code)
    largest = largest_host(spec)
    for name, job in spec.jobs.items():
        yield from _job(("jobs", name), job, largest)


def _ssh(ssh: SshSpec, *, own_hosts: bool) -> Iterator[Finding]:
    if own_hosts and ssh.user in SYSTEM_GROUPS:
        why = "the VMs have a group of that name, so Google's guest agent can't make the account"
        yield Finding(("ssh", "user"), f"{shown(ssh.user)} can't be the operator: {why}", f"user: {OPERATOR}")
    if ssh.key is not None and not ssh.key.isprintable():
        yield Finding(("ssh", "key"), "`key` must be the path of a private key", "key: ~/.ssh/id_ed25519")
    if ssh.jump is not None and not (JUMP.fullmatch(ssh.jump) and _port_of(ssh.jump) <= MAX_PORT):
        hint = "such as bastion, me@bastion.example.org or me@bastion.example.org:2222"
        yield Finding(("ssh", "jump"), f"{shown(ssh.jump)} is not a host to jump through", hint)


def _port_of(address: str) -> int:
    """The port of `host:port`; 0 where none is named."""
    return int(address.rpartition(":")[2]) if ":" in address else 0


def _code(code: CodeSpec) -> Iterator[Finding]:
    why = _repo_refused(code.repo)
    if why:
        yield Finding(("code", "repo"), f"`repo` {why}", f"it must be {RepoUrl.says}")
    for index, line in enumerate(code.setup):
        if not line.strip():
            yield Finding(("code", "setup", index), "an item of `setup` is empty")


def _repo_refused(repo: str) -> str | None:
    """Why `repo` can't be used, if so. Never shows an address with a password in it."""
    if RepoUrl.pattern.fullmatch(repo) or re.fullmatch(r"file:///[^\n]+", repo):
        return None
    if not repo or "\n" in repo:
        return "is not an address or a directory"
    if repo.startswith("-"):
        return f"can't begin with '-': {shown(repo)}"
    if re.match(r"https?://[^/]*@", repo):
        return "must not hold a user or a token: every host would see it"
    if re.match(r"[^/]*:", repo):  # git takes what has a ':' before the first '/' for an address
        return f"is an address of a kind that hosts can't clone: {shown(repo)}"
    return None


def _job(path: Path, job: JobSpec, largest: int | None) -> Iterator[Finding]:
    if not job.command or not job.command[0]:
        yield Finding((*path, "command"), "`command` must begin with a program", "command: [python, train.py]")
    if job.device not in ("tpu", "cpu"):
        yield Finding((*path, "device"), f"`device` must be tpu or cpu, not {shown(job.device)}")
    if job.chips not in SLOTS:
        yield Finding(
            (*path, "chips"), f"`chips` must be 1, 2, 4 or 8, not {job.chips}", "a run's chips are on one host"
        )
    elif largest is not None and job.chips > largest:
        yield Finding(
            (*path, "chips"),
            f"{job.chips} chips on one host are more than the fleet's hosts have ({largest})",
            "ask for fewer, or for an accelerator with larger hosts",
        )
    if job.whole_host and job.chips != 1:
        yield Finding((*path, "chips"), "a whole host has the chips it has", "leave out `chips` or `whole_host`")
    if job.whole_host and job.device == "cpu":
        sentence = "`whole_host` takes all chips of a host, which device: cpu has no use for"
        yield Finding((*path, "whole_host"), sentence, "leave out one of them")
    if not _is_directory_below(job.workdir):
        yield Finding(
            (*path, "workdir"),
            f"`workdir` must be a plain directory below the clone, which {shown(job.workdir)} is not",
        )
    for index, pattern in enumerate(job.artifacts):
        if not is_inside(pattern):
            yield Finding(
                (*path, "artifacts", index), f"`artifacts` must stay below the clone, unlike {shown(pattern)}"
            )
    yield from findings_about_sweep(path, job)
    yield from _limits(path, job)
    yield from _variables(path, job)
    for name, pattern in job.metrics.items():
        why = _pattern_refused(pattern)
        if why:
            hint = r"put the number into one group, such as 'test loss: ([\d.]+)'; further groups as (?:…)"
            yield Finding((*path, "metrics", name), f"the pattern of `{name}` {why}", hint)


def _limits(path: Path, job: JobSpec) -> Iterator[Finding]:
    """How long, how much, how many at once, and how urgent."""
    for key, duration in (
        ("time_limit", job.time_limit),
        ("stalled_after", job.stalled_after),
        ("mirror", job.mirror),
    ):
        if duration is not None and not duration.seconds:
            yield Finding((*path, key), f"`{key}` must be longer than nothing", "such as 30m")
    for key, number, (low, high) in (
        ("retries", job.retries, (0, MAX_RETRIES)),
        ("priority", job.priority, PRIORITIES),
        ("max_parallel", job.max_parallel, PARALLEL),
        ("log_limit_mb", job.log_limit_mb, (1, MAX_LOG_MB)),
    ):
        if number is not None and not low <= number <= high:
            yield Finding((*path, key), f"`{key}` must be from {low} to {high}, not {number}")


def _variables(path: Path, job: JobSpec) -> Iterator[Finding]:
    named = [((*path, "env", name), name, True) for name in job.env]
    named += [((*path, "secrets", index), name, False) for index, name in enumerate(job.secrets)]
    for place, name, at_key in named:
        if not VARIABLE.fullmatch(name):
            yield Finding(place, f"{shown(name)} can't be the name of an environment variable", at_key=at_key)
        elif name in CONTRACT or name in SET_BY_RUNNER:
            hint = "the pin depends on it; `device` and `chips` say what a run sees"
            yield Finding(place, f"{name} is set by tpufleet itself", hint, at_key=at_key)
    for index, name in enumerate(job.secrets):
        if name in job.env:
            yield Finding((*path, "secrets", index), f"{name} is in `env` too", "a secret's value is not in the file")
    yield from twins((*path, "secrets"), job.secrets)


def _is_directory_below(path: str) -> bool:
    """Whether the host's runner would take `path` as a working directory (`host.specs`)."""
    plain = path.rstrip("/")
    return plain == "." or safe_relative(plain.removeprefix("./"))


def _pattern_refused(pattern: str) -> str | None:
    """Why a metric's pattern can't be used, if so. The runner wants the same (`host.specs`)."""
    if len(pattern) > MAX_PATTERN:
        return f"is longer than {MAX_PATTERN} characters"
    try:
        with warnings.catch_warnings(action="ignore"):  # what a later Python may read differently
            groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {shown(str(error))[1:-1]}"
    return None if groups == 1 else f"has {groups} groups"
