"""Pure: the card, which tells a person everything from the key to the training and out again; and its text.

`sections` is what a card says, once for every form of it: here as text of 80 columns, in `report.cards` as a page.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tpufleet.names import FleetName, Seat, UserName
from tpufleet.publickey import ED25519

WIDTH = 80
UNIX = "macOS, Linux, WSL"
WINDOWS = "Windows (PowerShell)"
GITHUB_KEYS = "https://github.com/settings/keys"


@dataclass(frozen=True)
class Card:
    """What is particular about one person's card.

    `alias` is the name under which OpenSSH is to remember the host's key (of type `host_key_kind`), so that an address
    which another machine had before doesn't matter. `clone` is the directory of the code in the home, `repo` the
    address from which it can be cloned, if it has one; `train` are the words that start a training in `workdir` of it.
    """

    fleet: FleetName
    name: UserName
    seat: Seat
    address: str
    port: int
    alias: str
    fingerprint: str
    host_key_kind: str = ED25519
    jump: str | None = None
    repo: str | None = None
    clone: str = ""
    workdir: str = "."
    setup: tuple[str, ...] = ()
    train: tuple[str, ...] = ("python", "train.py")
    expires: datetime | None = None

    @property
    def chip(self) -> str:
        return "all of the host's" if self.seat.chip is None else f"{self.seat.chip}  ({self.seat})"

    @property
    def key(self) -> str:
        """The name of the key's file."""
        return key_file(self.fleet)


@dataclass(frozen=True)
class Command:
    """Something to copy, as it stands; `where` says on which system, if not on all."""

    text: str
    where: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the card: paragraphs and commands in order."""

    title: str
    parts: tuple[str | Command, ...]


def facts(card: Card) -> tuple[tuple[str, str], ...]:
    """The head of the card: what is what."""
    until = card.expires and f"{card.expires:%Y-%m-%d %H:%M} UTC"
    return (
        ("name", card.name),
        ("host", card.seat.host),
        ("address", card.address + (f"  port {card.port}" if card.port != 22 else "")),
        ("chip", card.chip),
        *((("until", until),) if until else ()),
        ("host key", card.fingerprint),
    )


def sections(card: Card) -> tuple[Section, ...]:
    """All that the card says below its head."""
    return (
        _key(card),
        _login(card),
        _config(card),
        _train(card),
        _completions(),
        _github(card),
        _rules(card),
        _leave(card),
    )


def ssh_words(card: Card, key: str) -> str:
    """The line that logs in, with the key file as the system's shell has it."""
    words = ["ssh", "-i", key, "-o", "IdentitiesOnly=yes"]  # an agent full of other keys would use up sshd's patience
    words += ["-p", str(card.port)] if card.port != 22 else []
    words += ["-J", card.jump] if card.jump else []
    words += ["-o", f"HostKeyAlgorithms={card.host_key_kind}"] if card.host_key_kind != ED25519 else []
    return " ".join([*words, f"{card.name}@{card.address}"])


def _unix_key(card: Card) -> str:
    return unix_file(card.key)


def _windows_key(card: Card) -> str:
    return windows_file(card.key)


def key_file(fleet: str) -> str:
    """The name of the key's file: one that OpenSSH has no other use for."""
    return f"tpu-{fleet}"


def unix_file(name: str) -> str:
    return f"~/.ssh/{name}"


def windows_file(name: str) -> str:
    return f'"$HOME\\.ssh\\{name}"'


def _key(card: Card) -> Section:
    make = "ssh-keygen -t ed25519 -C {name} -f {file}"
    return Section(
        "A key, if you have none yet",
        (
            Command(make.format(name=card.name, file=_unix_key(card)), UNIX),
            Command(make.format(name=card.name, file=_windows_key(card)), WINDOWS),
            f"Send the one line of the file {card.key}.pub, and only that: the other file is the key itself, which "
            "nobody but you may ever see. Whoever sent another key names its file below, after -i.",
        ),
    )


def _login(card: Card) -> Section:
    return Section(
        "Log in",
        (
            Command(ssh_words(card, _unix_key(card)), UNIX),
            Command(ssh_words(card, _windows_key(card)), WINDOWS),
            "The first time, ssh asks whether this is the right host. Answer with the host key from above:",
            Command(card.fingerprint),
            "Should it say one day that the host's identification has changed, then the machine was made anew: get "
            f"your new card from the host of the evening, and type ssh-keygen -R {_known_as(card)} once.",
        ),
    )


def _known_as(card: Card) -> str:
    """The name under which OpenSSH remembers the host when nothing else is said."""
    return card.address if card.port == 22 else f"'[{card.address}]:{card.port}'"


def _config(card: Card) -> Section:
    options = {
        "HostName": card.address,
        "Port": str(card.port),
        "User": card.name,
        "IdentityFile": _unix_key(card),
        "IdentitiesOnly": "yes",
        "HostKeyAlias": card.alias,
        "HostKeyAlgorithms": card.host_key_kind,
        **({"ProxyJump": card.jump} if card.jump else {}),
    }
    block = "\n".join([f"Host {card.fleet}", *(f"  {key} {value}" for key, value in options.items())])
    return Section(
        "Shorter, for every other time",
        (
            "Put this into the file ~/.ssh/config, the same on every system. Then scp, rsync and VS Code know the "
            f"host as {card.fleet}, too:",
            Command(block),
            "From then on:",
            Command(f"ssh {card.fleet}"),
        ),
    )


def _train(card: Card) -> Section:
    train = shlex.join(card.train)
    home = f"cd ~/{shlex.quote(card.clone)} && " if card.clone else ""
    inside = f"cd ~/{shlex.quote(f'{card.clone}/{card.workdir}'.removesuffix('/.'))} && " if card.clone else ""
    here = f"The code is {card.clone}, in your home."
    got = (f"{here} If it isn't there yet:", Command(f"git clone {card.repo}")) if card.repo else (here,)
    set_up = tuple(Command(home + line) for line in card.setup)
    return Section(
        "Train, on the host",
        (
            *(got if card.clone else ()),
            *(("Once, what it needs:", *set_up) if set_up else ()),
            "On the CPU:",
            Command(f"{inside}on-chip cpu -- {train}"),
            "On your chip, which on-chip takes for you, and gives back when the training ends:",
            Command(f"{inside}on-chip -- {train}"),
            "Who is on which chip:",
            Command("chips"),
        ),
    )


def _completions() -> Section:
    return Section(
        "Read what it writes",
        (
            "Completions are printed while it trains. What on-chip ran has a directory of its own in ~/runs; the last "
            "three of each there:",
            Command("find ~/runs/ -name completions.jsonl -exec tail -n 3 {} +"),  # with the slash: it may be a link,
        ),
    )


def _github(card: Card) -> Section:
    return Section(
        "A GitHub key of your own, to push from the host",
        (
            "Made on the host, so that your own key stays at home:",
            Command(f'ssh-keygen -t ed25519 -C "{card.name} on {card.seat.host}" && cat ~/.ssh/id_ed25519.pub'),
            f"Add the line to {GITHUB_KEYS} and name it {card.fleet}. Delete it there when you leave: root on the host "
            "can read every file, and a disk may outlive the evening.",
        ),
    )


def _rules(card: Card) -> Section:
    place = "This host is" if card.seat.chip is None else "This one chip is"
    return Section(
        "House rules",
        (
            f"{place} yours; another only when its person says so. The CPU, the memory, the disk and the network are "
            "everybody's. Leave other people's files and processes alone. Tell the host of the evening what breaks.",
        ),
    )


def _leave(card: Card) -> Section:
    return Section(
        "Leave",
        (
            "Take home what you want to keep (typed at home, with the block above), end with Ctrl-C what still trains, "
            "and log out:",
            Command(f"scp -r {card.fleet}:runs ."),
            *((Command(f"scp -r {card.fleet}:{card.clone} ."),) if card.clone else ()),
            Command("exit"),
            "Then delete the key at GitHub, if you made one.",
        ),
    )


# ------------------------------------------------------------------------------------------------------------- text


def text(cards: Sequence[Card]) -> str:
    """The cards as text: prose in at most 80 columns, commands in one line each, however long, for copying."""
    return "\n\n".join(_text(card) for card in cards)


def _text(card: Card) -> str:
    lines = [f"{card.fleet}: the card of {card.name}", "=" * WIDTH]
    lines += [f"{name:<9} {value}" for name, value in facts(card)]
    for section in sections(card):
        lines += ["", section.title, "-" * len(section.title)]
        for part in section.parts:
            lines += _command(part) if isinstance(part, Command) else textwrap.wrap(part, WIDTH)
    return "\n".join(lines) + "\n"


def _command(command: Command) -> Iterator[str]:
    if command.where:
        yield f"{command.where}:"
    yield from (f"    {line}" for line in command.text.split("\n"))
