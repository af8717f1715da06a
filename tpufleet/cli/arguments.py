"""Options that several verbs share, and the global ones that may stand anywhere on the line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar

import typer

from tpufleet.cli import completion
from tpufleet.cli.session import Session
from tpufleet.errors import UsageError
from tpufleet.model import Scalar
from tpufleet.names import Duration, ParamName

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; touch nothing.")]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="SEL",
        help="Hosts or nodes, comma-separated; * and ? match.",
        autocompletion=completion.hosts_listed,
    ),
]

GLOBAL_FLAGS = frozenset({"--json", "--quiet", "-q", "--no-color"})
GLOBAL_VALUES = frozenset({"--config", "-c"})
PASSING_ON = frozenset({"exec", "ssh"})  # what follows these may be another program's, also without the dashes
T = TypeVar("T")


def help_alone(context: typer.Context) -> None:
    """The callback of a group of verbs: typed without a verb, it lists them."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def hoisted(words: Sequence[str]) -> list[str]:
    """The command line with global options moved to the front, so that `tpufleet status --json` works as well.

    What follows `--` belongs to another program and stays as it is.
    """
    end = words.index("--") if "--" in words else len(words)
    front: list[str] = []
    rest: list[str] = []
    ours = iter(words[:end])
    for word in ours:
        if word in PASSING_ON and "--" not in words:
            rest += [word, *ours]
        elif word in GLOBAL_FLAGS or word.startswith("--config="):
            front.append(word)
        elif word in GLOBAL_VALUES:
            front += [word, *([value] if (value := next(ours, None)) is not None else [])]
        else:
            rest.append(word)
    if rest[:1] == ["people"]:
        _refuse_private_keys(words)
    return [*front, *rest, *words[end:]]


def _refuse_private_keys(words: Iterable[str]) -> None:
    """A private key begins with dashes: taken for an option that there isn't, it would be shown on the terminal."""
    from tpufleet.personkey import HOW, refuse_private

    for word in words:
        try:
            refuse_private(word)
        except ValueError as error:
            raise UsageError(str(error), hint=HOW) from None


def session(context: typer.Context) -> Session:
    """The invocation that the application's callback has made."""
    return context.ensure_object(Session)


def shell_line(words: Sequence[str]) -> str:
    """A command for a host's shell: several words stay exactly those words, a single one is a line as with ssh."""
    from tpufleet.ssh.port import quote

    try:
        return words[0] if len(words) == 1 else quote(words)
    except ValueError as error:
        raise UsageError(str(error)) from error


def duration(option: str, text: str) -> Duration:
    """`30m` as given to `option`; raises UsageError."""
    try:
        found = Duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 30m") from error
    if not found.seconds:
        raise UsageError(f"{option} must be longer than nothing", hint=f"{option} 30m")
    return found


def within(option: str, number: int | None, bounds: tuple[int, int]) -> int | None:
    """The number given to `option`, if any; raises UsageError for one out of bounds."""
    low, high = bounds
    if number is not None and not low <= number <= high:
        raise UsageError(f"{option} must be from {low} to {high}, not {number}", hint=f"{option} {max(low, 1)}")
    return number


def settings(pairs: Iterable[str]) -> dict[ParamName, Scalar]:
    """`--set lr=0.01` … -> values; raises UsageError."""
    from tpufleet.sweep import parse_value

    return {name: parse_value(value) for name, value in _pairs("--set", pairs)}


def axes(pairs: Iterable[str]) -> dict[ParamName, tuple[Scalar, ...]]:
    """`--grid lr=0.01,0.001` … -> values per name; raises UsageError."""
    from tpufleet.sweep import parse_value

    found = {name: value.split(",") for name, value in _pairs("--grid", pairs)}
    for name, parts in found.items():
        if "" in parts:
            raise UsageError(f"--grid {name} has an empty value", hint=f"--grid {name}=A,B")
    return {name: tuple(parse_value(part) for part in parts) for name, parts in found.items()}


def environment(pairs: Iterable[str]) -> dict[str, str]:
    """`--env NAME=VALUE` … -> variables; raises UsageError."""
    return {str(name): value for name, value in _pairs("--env", pairs)}


def _pairs(option: str, pairs: Iterable[str]) -> list[tuple[ParamName, str]]:
    found: list[tuple[ParamName, str]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if any(name == other for other, _ in found):
            raise UsageError(f"{option} {name} is given twice", hint=f"{option} {name}=VALUE once")
        try:
            found.append((ParamName(name), value))
        except ValueError as error:
            raise UsageError(f"{option}: {error}", hint=f"{option} NAME=VALUE") from error
        if not equals or not value or "\0" in value:
            raise UsageError(f"{option} {name} has no value", hint=f"{option} {name}=VALUE")
    return found
