"""Log in as each person would, with a throw-away key, and look at what they will find."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpufleet.errors import TpufleetError
from tpufleet.model import Host
from tpufleet.names import Seat, UserName
from tpufleet.ops.fleet import Fleet
from tpufleet.ssh.access import Access
from tpufleet.ssh.client import ParamikoDialer
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.keys import ensure_key
from tpufleet.ssh.port import quote
from tpufleet.text import clean, clean_bytes, size

LEAST_FREE = 1 << 30  # bytes; a clone, an environment and some checkpoints
ANSWER_LIMIT_S = 30.0
NUMBER = re.compile(r"\d{1,15}", re.ASCII)  # what a host says is nobody's to believe, and int() has its limits
LONGEST_WORD = 64

# What a plain `ssh HOST COMMAND` finds: no login shell, as editors and scp have it. `$1`: the clone's directory; `$2`:
# the word that the training begins with, looked for where it is typed (`$3`, below the clone), as on-chip does. `$4`:
# yes if other commands come before, which may make the .venv that has it.
LOOK = r"""
root=${TPUFLEET_HOST_ROOT-}
printf 'user=%s\n' "$(id -un)"
sudo -n true 2>/dev/null && echo sudo=yes
printf 'home=%s\n' "$(stat -c %a ~)"
printf 'pin=%s\n' "${TPU_VISIBLE_CHIPS-}"
for device in "$root"/dev/accel[0-9]* "$root"/dev/vfio/[0-9]*; do
  [ -r "$device" ] && [ -w "$device" ] && printf 'chip=%s\n' "${device##*[a-z/]}"
done
command -v on-chip >/dev/null && echo tools=yes
printf 'free=%s\n' "$(df -Pk ~ | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
[ -e ~/"$1"/.git ] && echo clone=yes
cd ~/"$1" 2>/dev/null && [ -d .venv/bin ] && venv=$PWD/.venv/bin && PATH=$venv:$PATH
cd ~/"$1/$3" 2>/dev/null && [ -d .venv/bin ] && venv=$PWD/.venv/bin && PATH=$venv:$PATH
there() { type -P -- "$1" || bash -lc 'type -P -- "$1"' look "$1" </dev/null; }
{ [ -n "$4" -a -z "${venv-}" ] || there "$2"; } >/dev/null && echo train=yes
exit 0
"""


@dataclass(frozen=True)
class Visit:
    """What one person finds on the host of their seat. `faults` are sentences; without any all is well."""

    name: UserName
    seat: Seat
    login: bool = False
    chip: bool = False
    pinned: bool = False
    clone: bool | None = None  # None: there is nothing to clone
    free: int | None = None  # bytes
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Typed:
    """What people are told to type: the training's first word, in `workdir` of the `clone` (None where there is no
    code); and whether something else comes first (`setup`)."""

    clone: str | None
    train: str
    workdir: str = "."
    setup: bool = False


@dataclass(frozen=True)
class Visitor:
    """A key that is thrown away afterwards; `line` is its public half."""

    file: Path
    line: str


@dataclass(frozen=True)
class _Door:
    """One person's way in; a dialer of their own, since it connects each host once."""

    name: UserName
    seat: Seat
    host: Host
    chips: tuple[int, ...] = field(default=())


def throw_away_key(directory: str) -> Visitor:
    """A new key in `directory`, which is removed with it."""
    file = Path(directory, "key")
    return Visitor(file, ensure_key(file).rpartition(" ")[0])


def visit(
    fleet: Fleet, seats: Mapping[UserName, Seat], hosts: Mapping[str, Host], visitor: Visitor, typed: Typed
) -> list[Visit]:
    """Everybody of `seats`, side by side, on the host where they sit."""
    doors = [_door(name, seat, hosts[seat.host]) for name, seat in seats.items()]
    outcomes = gather(doors, lambda door: _look(fleet, door, visitor, typed))
    return [
        outcome.value or Visit(outcome.item.name, outcome.item.seat, faults=(_said(outcome.error),))
        for outcome in outcomes
    ]


def _door(name: UserName, seat: Seat, host: Host) -> _Door:
    chips = tuple(range(host.chips)) if seat.chip is None else (seat.chip,)
    return _Door(name, seat, replace(host, user=str(name)), chips)


def _said(error: TpufleetError | None) -> str:
    return f"can't log in: {error.message}" if error else "can't log in"


def _look(fleet: Fleet, door: _Door, visitor: Visitor, typed: Typed) -> Visit:
    access = Access(str(door.name), visitor.file, own_key=True, jump=fleet.spec.ssh.jump)
    with ParamikoDialer(access, fleet.trust) as dialer:
        words = [typed.clone or ".", typed.train, typed.workdir, "yes" if typed.setup else ""]
        command = quote(["bash", "-c", LOOK, "look", *words])
        result = dialer.connect(door.host).run(command, timeout_s=ANSWER_LIMIT_S)
    said = clean_bytes(result.stdout, keep_newlines=True)
    return judged(door.name, door.seat, door.chips, said, typed)


def judged(name: UserName, seat: Seat, chips: Sequence[int], said: str, typed: Typed) -> Visit:
    """Pure: what the answer of LOOK means for a person whose seat has these chips."""
    lines = [line.partition("=") for line in said.splitlines()]
    found = {key: value for key, _, value in lines}
    visible = {int(value) for key, _, value in lines if key == "chip" and NUMBER.fullmatch(value)}
    free = int(found["free"]) * 1024 if NUMBER.fullmatch(found.get("free", "")) else None
    pin = {int(word) for word in found.get("pin", "").split(",") if NUMBER.fullmatch(word)}
    shown = {key: found.get(key, "")[:LONGEST_WORD] or "?" for key in ("user", "home")}
    pinned = found.get("pin", "")[:LONGEST_WORD] or "nothing"
    login = found.get("user") == name
    cloned = typed.clone is not None
    faults = [
        (not login, f"the account is {shown['user']}"),
        ("sudo" in found, "may use sudo"),
        (found.get("home") != "750", f"others may enter the home (mode {shown['home']})"),
        (not set(chips) <= visible, f"can't open chip {', '.join(str(chip) for chip in chips if chip not in visible)}"),
        (pin != set(chips), f"is pinned to {pinned}"),
        ("tools" not in found, "on-chip is not there"),
        (free is None or free < LEAST_FREE, f"has {size(free or 0)} of disk left"),
        (cloned and "clone" not in found, "the code is not in the home"),
        (
            "train" not in found and ("clone" in found or not cloned),
            f"{clean(typed.train)[:LONGEST_WORD]}, which the card's training begins with, is not there",
        ),
    ]
    return Visit(
        name,
        seat,
        login=login,
        chip=set(chips) <= visible,
        pinned=pin == set(chips),
        clone="clone" in found if cloned else None,
        free=free,
        faults=tuple(sentence for wrong, sentence in faults if wrong),
    )


def temporary() -> tempfile.TemporaryDirectory[str]:
    """Where the throw-away key is, 0700."""
    return tempfile.TemporaryDirectory(prefix="tpufleet-visit-")
