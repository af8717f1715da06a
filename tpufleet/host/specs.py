"""RunSpec: what one run is asked to be, checked field by field, because it came over the wire."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

from tpufleet.host.errors import HostError, bad
from tpufleet.host.files import JsonObject, as_object, as_texts, safe_relative
from tpufleet.host.pin import CONTRACT
from tpufleet.host.places import COMMIT, REPO_ID, RUN_ID

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,79}")
ENVIRONMENT = re.compile(r"[0-9a-f]{16}")
METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@/-]{0,63}")
LONGEST_PATTERN = 1000
SLOT_SIZES = (1, 2, 4, 8)
LONGEST_S = 10 * 366 * 86400.0
SMALLEST_LOG = 4096


class RunSpec(NamedTuple):
    """One run as it was asked for; secrets are not part of it (see `split_secrets`)."""

    id: str
    job: str
    fleet: str
    host: str
    params: JsonObject
    command: tuple[str, ...]
    repo: str | None
    commit: str | None
    dirty: bool
    workdir: str
    chips: int
    device: str
    multi_host: bool
    env: dict[str, str]
    metrics: dict[str, str]
    artifacts: tuple[str, ...]
    retries: int
    priority: int
    submitted: str
    time_limit_s: float | None = None  # of wall time that an attempt may take
    stalled_s: float | None = None  # without a byte in the log or a record in metrics.jsonl
    stop_on_nan: bool = False
    log_limit: int | None = None  # bytes
    group: str | None = None  # of which this host may run `group_limit` at once
    group_limit: int | None = None
    environment: str | None = None  # the set-up it was planned with (setup.environment_id)


def parse_spec(value: object) -> tuple[RunSpec, dict[str, str]]:
    """A RunSpec and its secrets out of a request's JSON; raises HostError (bad-request) naming run and field."""
    fields = as_object(value)
    if fields is None:
        raise bad("a run must be an object")
    run = fields.get("id")
    if not isinstance(run, str) or not RUN_ID.fullmatch(run):
        raise bad(f"{run!r:.150} is not a run's id")
    check = _Checker(run, fields)
    repo = check.optional_match("repo", REPO_ID)
    commit = check.optional_match("commit", COMMIT)
    if (repo is None) != (commit is None):
        check.refuse("commit", "must come together with a repository")
    chips = check.number("chips", 1, 0, 8)
    device = check.text("device", "tpu")
    if device not in ("tpu", "cpu"):
        check.refuse("device", "must be tpu or cpu")
    if chips not in SLOT_SIZES and not (chips == 0 and device == "cpu"):
        check.refuse("chips", "must be 1, 2, 4 or 8 (or 0 on the cpu)")
    spec = RunSpec(
        id=run,
        job=check.text("job"),
        fleet=check.text("fleet"),
        host=check.match("host", HOST_NAME),
        params=as_object(fields.get("params") or {}) or {},
        command=check.words("command", at_least=1),
        repo=repo,
        commit=commit,
        dirty=check.flag("dirty"),
        workdir=check.workdir(),
        chips=chips,
        device=device,
        multi_host=check.flag("multi_host"),
        env=check.environment("env"),
        metrics=check.patterns(),
        artifacts=check.words("artifacts"),
        retries=check.number("retries", 0, 0, 1000),
        priority=check.number("priority", 0, -1000, 1000),
        submitted=check.text("submitted"),
        time_limit_s=check.seconds("time_limit_s"),
        stalled_s=check.seconds("stalled_s"),
        stop_on_nan=check.flag("stop_on_nan"),
        log_limit=check.optional_number("log_limit", SMALLEST_LOG, 1 << 50),
        group=None if fields.get("group") is None else check.text("group"),
        group_limit=check.optional_number("group_limit", 0, 1_000_000),
        environment=check.optional_match("environment", ENVIRONMENT),
    )
    return spec, check.environment("secrets")


def spec_from(stored: JsonObject) -> RunSpec:
    """The spec that was written as `RunSpec._asdict()`; it was checked then."""
    known: dict[str, Any] = {name: stored[name] for name in RunSpec._fields if name in stored}
    known["command"] = tuple(stored["command"])
    known["artifacts"] = tuple(stored["artifacts"])
    return RunSpec(**known)


class _Checker:
    """Reads fields of one run's request; every refusal names the run and the field."""

    def __init__(self, run: str, fields: JsonObject) -> None:
        self.run = run
        self.fields = fields

    def refuse(self, name: str, why: str) -> NoReturn:
        raise bad(f"run {self.run}: {name} {why}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.fields.get(name, default)
        if not isinstance(value, str) or "\0" in value or len(value) > 10_000:
            self.refuse(name, "must be text")
        return value

    def match(self, name: str, pattern: re.Pattern[str]) -> str:
        value = self.text(name)
        if not pattern.fullmatch(value):
            self.refuse(name, f"has an unsafe form: {value!r:.100}")
        return value

    def optional_match(self, name: str, pattern: re.Pattern[str]) -> str | None:
        return None if self.fields.get(name) is None else self.match(name, pattern)

    def number(self, name: str, default: int, low: int, high: int) -> int:
        value = self.fields.get(name, default)
        if type(value) is not int or not low <= value <= high:
            self.refuse(name, f"must be a whole number from {low} to {high}")
        return value

    def optional_number(self, name: str, low: int, high: int) -> int | None:
        return None if self.fields.get(name) is None else self.number(name, low, low, high)

    def seconds(self, name: str) -> float | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST_S:
            self.refuse(name, "must be a number of seconds above zero")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false")
        return value

    def words(self, name: str, at_least: int = 0) -> tuple[str, ...]:
        words = as_texts(self.fields.get(name) or [])
        if words is None or len(words) < at_least:
            self.refuse(name, "must be a list of words")
        if at_least and not words[0]:
            self.refuse(name, "must begin with a program")
        return tuple(words)

    def mapping(self, name: str) -> dict[str, str]:
        value = as_object(self.fields.get(name) or {})
        if value is None or not all(isinstance(item, str) for item in value.values()):
            self.refuse(name, "must map names to texts")
        return value

    def environment(self, name: str) -> dict[str, str]:
        """Environment variables; the message never shows a value, which may be a secret."""
        variables = self.mapping(name)
        for variable, value in variables.items():
            if not ENV_NAME.fullmatch(variable) or variable in CONTRACT or "\0" in value:
                self.refuse(name, f"cannot set {variable!r:.100}")
        return variables

    def workdir(self) -> str:
        value = self.text("workdir", ".") or "."
        plain = value.rstrip("/")
        if plain not in (".", "./") and not safe_relative(plain.removeprefix("./")):
            self.refuse("workdir", "must be a plain relative directory below the repository")
        return value

    def patterns(self) -> dict[str, str]:
        """Metric names and regular expressions that compile."""
        patterns = self.mapping("metrics")
        for name, pattern in patterns.items():
            if not METRIC_NAME.fullmatch(name):
                self.refuse("metrics", f"has an unsafe name: {name!r:.100}")
            try:
                compiled = re.compile(pattern) if len(pattern) <= LONGEST_PATTERN else None
            except (re.error, RecursionError, OverflowError) as error:
                raise HostError("bad-request", f"run {self.run}: the pattern of {name} is wrong: {error}") from None
            if compiled is None or compiled.groups > 1:
                self.refuse(
                    "metrics", f"{name} needs a pattern with at most one group and {LONGEST_PATTERN} characters"
                )
        return patterns
