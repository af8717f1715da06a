"""The agent on a host, asked over SSH: a verb and a JSON object go there, a JSON object or bytes come back.

A host that has no agent yet (or another version's) is given one, once: a directory named by the digest of what is in
it, made aside and renamed, so that it is whole or absent and never changes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from tpufleet.errors import HostFault, StateError
from tpufleet.model import Host
from tpufleet.paths import REMOTE_BASE, remote_agent
from tpufleet.ssh.bundle import Bundle, bundle
from tpufleet.ssh.port import Connection, Result, Stream, quote
from tpufleet.text import clean, clean_bytes

BARE = 113  # the exit code by which the command below says that there is no agent
NO_BASE = 114  # and this one, that our directory can't be made; the account is then the last line on stderr
ERROR_START = b'{"error":'
ERROR_LIMIT = 1 << 20
DEEPEST = 64  # of lists and objects in an answer

# The image preloads an allocator that breaks some programs (LD_PRELOAD); -ES keeps a user's Python settings out.
ASK = "[ -e {agent}/__main__.py ] || exit 113; exec {root}env -u LD_PRELOAD python3 -ES {agent} {verb}"
ROOT = "sudo -n "
AS_ROOT = frozenset({"accounts", "belongings"})  # the verbs that are root's; all others are the operator's

# What a host's tools say when nothing more can be written; the last one is the rehearsal cloud's full disk.
FULL = (b"No space left", b"quota exceeded", b"File too large")

SHIP = """\
set -e; umask 022; unset LD_PRELOAD; export LC_ALL=C
base={base}
mkdir -p "$base/lib" 2>/dev/null && [ -w "$base/lib" ] ||
  sudo -n install -d -m 0755 -o "$(id -un)" "$base" "$base/lib" || {{ id -un >&2; exit 114; }}
part=$(mktemp -d "$base/lib/.{digest}.XXXXXX"); trap 'rm -rf "$part"' EXIT
head -c {size} | tar -xf - -C "$part"
[ -e "$part/__main__.py" ]
find "$part" -type f -exec sync {{}} +
chmod 755 "$part"
mv -T "$part" "$base/lib/{digest}" 2>/dev/null || [ -e "$base/lib/{digest}/__main__.py" ]
"""

# `head` takes the archive and no byte more, so what follows it on stdin is the request.
SHIP_AND_ASK = (
    SHIP + 'trap - EXIT; rm -rf "$part"; exec {root}env -u LD_PRELOAD python3 -ES "$base/lib/{digest}" {verb}'
)

# A transfer that is cut ends with what looks like the end of the file: so the size is looked at before the rename.
UPLOAD = """\
set -e; umask 022; unset LD_PRELOAD; export LC_ALL=C
to={to}; part="$to.$$.part"; trap 'rm -f "$part"' EXIT
mkdir -p "$(dirname "$to")"
cat > "$part"
[ "$(wc -c < "$part")" -eq {size} ] || {{ echo "the transfer was cut" >&2; exit 1; }}
sync "$part"
mv -fT "$part" "$to"
"""


# For hosts on which the operator may not use sudo: our directories, also those that a reboot empties (tmpfiles.d(5)).
BY_ADMINISTRATOR = (
    "tpufleet needs sudo without a password there, or that the host's administrator runs once: "
    r"{{ printf 'd /var/lib/tpufleet 0755 {user}\nd /run/tpufleet/leases 0755 root root\n'; "
    r"printf 'f /run/tpufleet/leases/chip-%d.lock 0666\n' $(seq 0 15); }} | "
    "sudo tee /etc/tmpfiles.d/tpufleet.conf && sudo systemd-tmpfiles --create tpufleet.conf"
)


class Bare(HostFault):
    """There is no agent of this version on the host, and none was to be put there."""


class Agent:
    """The agent of one host over a connection; `shipped` is what it consists of (another one in tests)."""

    def __init__(self, connection: Connection, host: Host, *, shipped: Callable[[], Bundle] = bundle) -> None:
        self._connection = connection
        self._host = host
        self._shipped = shipped

    def ask(
        self, verb: str, payload: Mapping[str, Any], *, ship: bool = True, timeout_s: float | None = 60.0
    ) -> dict[str, Any]:
        """The agent's answer to `verb`.

        A host without the agent gets it first; with `ship=False` it is left as it is and Bare is raised. Raises
        HostFault with the agent's own kind and sentence when it says no, or when what answers is no agent.
        """
        result = self._connection.run(self._command(verb), stdin=_line(payload), timeout_s=timeout_s)
        if _is_bare(result):
            if not ship:
                raise self._bare()
            return self.ship_and_ask(verb, payload, timeout_s=timeout_s)
        return self._answer(result)

    def ship_and_ask(self, verb: str, payload: Mapping[str, Any], *, timeout_s: float | None = 60.0) -> dict[str, Any]:
        """As `ask`, for a host that surely has no agent (it was made just now): both in one go."""
        digest, tar = self._shipped()
        command = SHIP_AND_ASK.format(
            base=REMOTE_BASE, digest=digest, size=len(tar), root=_root(verb), verb=quote([verb])
        )
        result = self._connection.run(command, stdin=tar + _line(payload), timeout_s=timeout_s)
        if result.exit_code != 0 and not result.stdout and not _is_no_root(result):
            self._done(result, "the agent's set-up")
        return self._answer(result)

    @contextlib.contextmanager
    def open(self, verb: str, payload: Mapping[str, Any]) -> Generator[Stream]:
        """The bytes that the agent sends for a streaming verb; its stdin stays open until the context is left.

        Raises HostFault as `ask` does, Bare for a host without the agent.
        """
        with self._connection.stream(self._command(verb), stdin=_line(payload), keep_stdin_open=True) as stream:
            self._look_for_refusal(stream)
            yield stream

    def upload(self, path: Path, to: str, *, progress: Callable[[int], None] | None = None) -> None:
        """Put the local file `path` on the host at `to` (a word for the host's shell): whole, or not at all."""
        try:
            command = UPLOAD.format(to=to, size=path.stat().st_size)
        except OSError as error:
            raise StateError(f"can't be read: {error.strerror or error}", where=str(path)) from error
        self._done(self._connection.send_file(command, path, progress=progress), "the upload")

    def ship(self) -> None:
        """Put the agent on the host; safe against others that do the same at the same time."""
        digest, tar = self._shipped()
        self._done(
            self._connection.run(SHIP.format(base=REMOTE_BASE, digest=digest, size=len(tar)), stdin=tar),
            "the agent's set-up",
        )

    # ----------------------------------------------------------------------------------- what the host's words mean

    def _look_for_refusal(self, stream: Stream) -> None:
        """Raise the error that came in place of the bytes; bytes may look like one, so the exit code tells."""
        start = stream.read(ERROR_LIMIT)
        stream.unread(start)
        if start and not start.startswith(ERROR_START):
            return
        first = stream.readline(ERROR_LIMIT) if start else b""
        more = stream.read(1) if first else b""
        if not more and (code := stream.wait()) != 0:
            result = Result(code, first, stream.stderr())
            if _is_bare(result):
                raise self._bare()
            self._answer(result)
        stream.unread(first + more)

    def _command(self, verb: str) -> str:
        return ASK.format(agent=remote_agent(self._shipped().digest), root=_root(verb), verb=quote([verb]))

    def _answer(self, result: Result) -> dict[str, Any]:
        answer = _object(result.stdout)
        error = answer.get("error") if answer else None
        if isinstance(error, dict):
            said = cast("dict[str, Any]", error)
            kind = re.sub(r"[^a-z-]", "", str(said.get("kind")))[:40]
            message = clean(str(said.get("message")), keep_newlines=True)[:4000]
            raise self._fault(kind or "internal", message, hint=self._remedy(kind, message))
        if answer is None or result.exit_code != 0:
            raise self._no_answer(result)
        return answer

    def _remedy(self, kind: str, message: str) -> str:
        """The next command for an agent's own words of what went wrong."""
        if "with sudo: sudo: " in message:  # host/places.py, in sudo's own words
            return BY_ADMINISTRATOR.format(user=self._host.user or "USER")
        return {
            "setup-failed": "mend code.setup in the fleet file (or what it runs), then tpufleet sync",
            "git": "check code.repo and code.ref in the fleet file, then tpufleet sync",
            "drift": "wait for those runs or stop them, then again; a new commit has a checkout of its own",
            "disk-full": f"tpufleet ssh {self._host.name} -- df -h",
            "not-found": "tpufleet runs",
            "bad-request": "tpufleet doctor",
        }.get(kind, f"tpufleet ssh {self._host.name} -- 'tail \"$TPUFLEET_HOST_ROOT\"/var/lib/tpufleet/*.log'")

    def _no_answer(self, result: Result) -> HostFault:
        if _is_no_root(result):
            user = self._host.user or "the fleet's user (ssh.user)"
            hint = f"the host's administrator has to let {user} use sudo without a password"
            return self._fault("no-sudo", f"what only root may do is refused {_last_words(result)}", hint)
        if result.exit_code == 127:
            return self._fault("no-python", "there is no python3 on the host", hint="tpufleet needs Python 3.10 there")
        if _is_bare(result):
            return self._fault("bad-answer", "the agent was put on the host and isn't there")
        return self._fault("bad-answer", f"the agent ended with exit code {result.exit_code} {_last_words(result)}")

    def _done(self, result: Result, what: str) -> None:
        if result.exit_code == 0:
            return
        if any(word in result.stderr for word in FULL):
            raise self._fault("disk-full", "the host's disk is full", hint=f"tpufleet ssh {self._host.name} -- df -h")
        if result.exit_code == NO_BASE:
            raise self._no_base(result)
        raise self._fault("upload", f"{what} ended with exit code {result.exit_code} {_last_words(result)}")

    def _no_base(self, result: Result) -> HostFault:
        *said, user = clean_bytes(result.stderr, keep_newlines=True).split("\n")[:-1] or [""]
        why = said[-1][:300] if said else "no reason given"
        known = user if re.fullmatch(r"[a-z_][a-z0-9_.-]{0,31}", user) else "USER"
        hint = BY_ADMINISTRATOR.format(user=known) if "sudo" in why else None
        return self._fault("no-base", f"can't make /var/lib/tpufleet: {why}", hint)

    def _bare(self) -> Bare:
        return Bare("has no agent of this version yet", kind="bare", where=self._host.name, hint="tpufleet create")

    def _fault(self, kind: str, message: str, hint: str | None = None) -> HostFault:
        return HostFault(message, kind=kind, where=self._host.name, hint=hint)


def _line(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload).encode() + b"\n"


def _root(verb: str) -> str:
    return ROOT if verb in AS_ROOT else ""


def _is_bare(result: Result) -> bool:
    return result.exit_code == BARE and not result.stdout


def _is_no_root(result: Result) -> bool:
    """Whether sudo refused a verb of root's."""
    return result.exit_code == 1 and not result.stdout and _last_words(result).startswith("and said: sudo: ")


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not _is_flat(answer := cast("dict[str, Any]", value)):
        return None
    return answer


def _is_flat(answer: dict[str, Any]) -> bool:
    """Whether values lie at most DEEPEST deep in each other; what is deeper can be read, but neither compared nor
    written by whoever has more on the stack."""
    level: list[Any] = [answer]
    for _ in range(DEEPEST):
        level = [inner for item in level for inner in _within(item) if isinstance(inner, (dict, list))]
    return not level


def _within(item: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item


def _last_words(result: Result) -> str:
    """The last line that the host said about it, for a sentence."""
    lines = clean_bytes(result.stderr or result.stdout, keep_newlines=True).strip().splitlines()
    return f"and said: {lines[-1][:300]}" if lines else "and said nothing"
