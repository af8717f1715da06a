"""How far the files of each run were read: hosts are asked for what is new, and for nothing once all is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpufleet.board.look import LONGEST, Told
from tpufleet.board.records import Counter, Json, Points, Written, objects, written
from tpufleet.model import Host
from tpufleet.report.records import as_record

FILES = ("metrics", "completions")


@dataclass
class _Place:
    """How far one run was read on the host of that identity. `over` is the life of it that was read to its end."""

    identity: str
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    counter: Counter = field(default_factory=Counter)
    over: str | None = None


@dataclass(frozen=True)
class News:
    """What a run wrote since the last look; `anew`: these are its first completions."""

    points: Points
    pieces: tuple[Written, ...]
    anew: bool


class Reading:
    """`ask` from any thread, `take` from one: a look asks all hosts side by side, and takes their answers then."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._known: set[str] = set()  # identities of hosts that were heard
        self._lives: dict[str, str] = {}

    def ask(self, host: Host) -> dict[str, Any] | None:
        """The `runs` of a request for `results`: None, for all of them, to a host that was never heard."""
        if host.identity not in self._known:
            return None
        here = [(run, place) for run, place in self._places.items() if place.identity == host.identity]
        return {
            run: dict(place.tokens) for run, place in here if place.over is None or place.over != self._lives.get(run)
        }

    def take(
        self, host: Host, asked: Mapping[str, Any] | None, told: Mapping[str, Told], answer: Json
    ) -> Iterator[News]:
        """What is new of the runs that the host was `told` to have, by its `answer` to what it was `asked`."""
        self._known.add(host.identity)
        for run, state in told.items():
            place = self._places.get(run)
            if place is None or place.identity != host.identity:
                place = self._places[run] = _Place(host.identity)
            self._lives[run] = state.life
            if asked is not None and run not in asked:
                continue
            files = {name: as_record(as_record(answer.get(run)).get(name)) for name in FILES}
            if state.is_active or any(file.get("more") is True for file in files.values()):
                place.over = None
            else:
                place.over = state.life
            if any(files.values()):
                yield self._news(run, place, files)

    def _news(self, run: str, place: _Place, files: Mapping[str, Json]) -> News:
        anew: dict[str, bool] = {}
        texts: dict[str, str] = {}
        for name, file in files.items():
            token, text = file.get("token"), file.get("text")
            anew[name] = bool(file) and (file.get("anew") is True or name not in place.tokens)
            texts[name] = text if isinstance(text, str) else ""
            if isinstance(token, str):
                place.tokens[name] = token
            elif file:
                place.tokens.pop(name, None)
        points = place.counter.points(run, texts["metrics"], anew=anew["metrics"])
        pieces = tuple(piece for item in objects(texts["completions"]) if (piece := written(item, LONGEST)))
        return News(points, pieces, anew["completions"])
