"""What a shell may complete: runs, jobs, hosts, people, from what lies here. Never asks a cloud or a host, never fails.

Typer calls these while somebody is typing, so they are quick and lenient: the fleet file is read as plain YAML, and
what can't be read is not offered. A name that isn't plain letters, digits and a few signs is never offered to a shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import typer

from tpufleet.text import natural

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+:-]{0,127}")
MOST_BYTES = 4_000_000
MOST_NODES = 256
Complete = Callable[[typer.Context, str], list[str]]
Object = Mapping[str, Any]


class Nearby:
    """What lies beside the fleet file, read as far as it can be read."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._spec = _object(_yaml(config))

    def jobs(self) -> list[str]:
        return list(_object(self._spec.get("jobs")))

    def runs(self) -> list[str]:
        """Those that came home, and those that were sent to hosts from here."""
        home = self._config.parent / "artifacts" / str(self._spec.get("fleet")) / "runs.json"
        return [*_texts(_objects(_object(_json(home)).get("runs")), "id"), *self._placed()]

    def hosts(self) -> list[str]:
        """Those that the file wants, and those that runs were sent to."""
        return [*(f"{node}-w0" for node in self.nodes()), *self._placed().values()]

    def nodes(self) -> list[str]:
        pools = _objects(self._spec.get("nodes"))
        counted = [(pool.get("name"), min(int(pool.get("count", 1)), MOST_NODES)) for pool in pools]
        listed = _objects(_object(self._spec.get("cloud")).get("hosts"))
        made = [f"{name}-{number}" for name, count in counted for number in range(count)]
        return [*made, *_texts(listed, "name")]

    def people(self) -> list[str]:
        listed = self._spec.get("people", "people.yaml")
        if isinstance(listed, str):
            listed = _yaml(self._config.parent / listed)
        return _texts(_objects(listed), "name")

    def _placed(self) -> dict[str, str]:
        from tpufleet.state.peek import placed

        return placed(self._config.parent / ".tpufleet" / "journal.db")


def _offering(find: Callable[[Nearby], Iterable[str]]) -> Complete:
    """A function as Typer wants it: of what `find` finds, the names that begin with what was typed; perhaps none."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        config = context.find_root().params.get("config") or "tpufleet.yaml"
        try:
            names = set(find(Nearby(Path(config).absolute())))
        except (OSError, ValueError, TypeError, RecursionError):
            return []
        plain = [name for name in names if PLAIN.fullmatch(name) and name.startswith(incomplete)]
        return sorted(plain, key=natural)

    return complete


runs_and_jobs = _offering(lambda near: [*near.runs(), *near.jobs()])
jobs = _offering(Nearby.jobs)
nodes = _offering(Nearby.nodes)
hosts = _offering(Nearby.hosts)
people = _offering(Nearby.people)


def one_of(*values: str) -> Complete:
    """The values that an option may have."""
    return _offering(lambda _near: values)


def hosts_listed(context: typer.Context, incomplete: str) -> list[str]:
    """Hosts and nodes in a list with commas: the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    names = [*hosts(context, last), *nodes(context, last)]
    return [f"{before}{comma}{name}" for name in dict.fromkeys(names)]


def _text(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(MOST_BYTES)


def _yaml(path: Path) -> object:
    import yaml

    try:
        return yaml.load(_text(path), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (both are safe)
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _json(path: Path) -> object:
    try:
        return json.loads(_text(path))
    except (OSError, ValueError):
        return None


def _object(value: object) -> Object:
    return cast("Object", value) if isinstance(value, dict) else {}


def _texts(items: Iterable[Object], name: str) -> list[str]:
    return [text for item in items if isinstance(text := item.get(name), str)]


def _objects(value: object) -> list[Object]:
    return [_object(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
