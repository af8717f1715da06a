"""What all viewers are told, drawn and encoded once for all of them: everything, and then whatever is new.

Versions are numbers that grow, also from one board to the next on the same machine: a browser that comes back with the
last one it has seen is told what is new since, or all of it where that is too long ago.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tpufleet.board import parts
from tpufleet.board.history import History
from tpufleet.board.look import Look
from tpufleet.board.scene import RunRow, Scene
from tpufleet.report.html import fragment

KEPT = 240  # news, for those who come back
KEPT_BYTES = 8 << 20
FRESH = 12  # so many news may follow `all` before it is encoded anew


class Feed:
    """Takes looks from one thread and tells any other what they come to."""

    def __init__(self) -> None:
        self._state = threading.Lock()
        self._version = time.time_ns() // 1_000_000
        self._scene = Scene()
        self._items: dict[str, object] = {}  # what each part was drawn from
        self._parts: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {name: [] for name in parts.LISTS}
        self._runs: dict[str, Mapping[str, Any]] = {}
        self._history = History()
        self._news: deque[tuple[int, bytes]] = deque()
        self._all: tuple[int, bytes] | None = None
        self._listeners: list[Callable[[], object]] = []
        self._closed = False
        self._draw_head(self._scene)

    @property
    def scene(self) -> Scene:
        """The newest one."""
        return self._scene

    @property
    def is_closed(self) -> bool:
        return self._closed

    def listen(self, told: Callable[[], object]) -> None:
        """Have `told` called whenever there is something new, in whichever thread that is, until the feed is closed."""
        with self._state:
            self._listeners.append(told)

    def close(self) -> None:
        """There will be nothing new any more."""
        with self._state:
            self._closed = True
            listeners, self._listeners = self._listeners, []
        for told in listeners:
            told()

    # ------------------------------------------------------------------------------------------------- what is told

    def since(self, version: int) -> tuple[int, bytes] | None:
        """The newest version, and the events behind `version`; None where only all of it will do."""
        with self._state:
            if version == self._version:
                return version, b""
            if not self._oldest() <= version < self._version:
                return None
            return self._version, self._behind(version)

    def whole(self) -> tuple[int, bytes]:
        """The newest version, and the events by which somebody who knows nothing gets there."""
        with self._state:
            if self._all is None or self._version - self._all[0] > FRESH or self._all[0] < self._oldest():
                self._all = self._version, self._encode_all()
            base, everything = self._all
            return self._version, everything + self._behind(base)

    def _behind(self, version: int) -> bytes:
        return b"".join(news for number, news in self._news if number > version)

    def _oldest(self) -> int:
        """The version behind which all news are kept."""
        return self._news[0][0] - 1 if self._news else self._version

    def _encode_all(self) -> bytes:
        content = {
            "parts": self._parts,
            "lists": self._lists,
            "runs": self._runs,
            "curves": self._history.all(),
        }
        return event("all", self._version, content)

    # ---------------------------------------------------------------------------------------------- what comes in

    def trouble(self, problem: str) -> None:
        """Nothing newer than the last look is to be had."""
        self.take(Look(replace(self._scene, problem=problem)))

    def take(self, look: Look) -> None:
        """Draw what has changed since the look before, and tell it."""
        with self._state:
            news = self._changes(look)
            self._scene = look.scene
            if not news or self._closed:
                return
            self._version += 1
            self._news.append((self._version, event("news", self._version, news)))
            while len(self._news) > KEPT or sum(len(told) for _, told in self._news) > KEPT_BYTES:
                self._news.popleft()
            listeners = list(self._listeners)
        for told in listeners:
            told()

    def _changes(self, look: Look) -> dict[str, Any]:
        """What is new, by the keys of a `news` event; empty for nothing."""
        drawn, gone, lists = self._draw(look.scene)
        changed, left = self._choose(look.scene.runs)
        self._history.keep(self._runs)
        curves = self._history.take(points for points in look.points if points.run in self._runs)
        news: dict[str, Any] = {
            "parts": drawn,
            "gone": gone,
            "lists": lists,
            "runs": changed,
            "left": left,
            "curves": curves.curves,
            "anew": curves.anew,
        }
        return {name: value for name, value in news.items() if value}

    def _choose(self, rows: Sequence[RunRow]) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
        """What curves are chosen by, of those runs of which it is another than before; and the runs that are gone."""
        before = {row.id: row for row in self._scene.runs}
        runs = {
            row.id: self._runs[row.id] if before.get(row.id) is row and row.id in self._runs else _meta(row)
            for row in rows
        }
        changed = {run: meta for run, meta in runs.items() if self._runs.get(run) != meta}
        left = [run for run in self._runs if run not in runs]
        self._runs = runs
        return changed, left

    def _draw(self, scene: Scene) -> tuple[dict[str, str], list[str], dict[str, list[str]]]:
        """Draw the parts that changed: them by id, the ids of those that are gone, the lists whose order is another."""
        drawn = self._draw_head(scene)
        items: dict[str, object] = {"head": None}
        lists: dict[str, list[str]] = {}
        for name in parts.LISTS:
            found: Sequence[Any] = getattr(scene, name)
            order: list[str] = []
            for item in found:
                part = parts.part_id(name, item)
                if part in items:
                    continue  # told twice; what has no name of its own can't be shown apart
                order.append(part)
                items[part] = item
                if self._items.get(part) != item:
                    drawn[part] = self._parts[part] = fragment(parts.draw(name, item))
            if self._lists[name] != order:
                self._lists[name] = lists[name] = order
        gone = [part for part in self._items if part not in items]
        for part in gone:
            del self._parts[part]
        self._items = items
        return drawn, gone, lists

    def _draw_head(self, scene: Scene) -> dict[str, str]:
        head = fragment(parts.head(scene))
        if self._parts.get("head") == head:
            return {}
        self._parts["head"] = head
        return {"head": head}


def _meta(row: RunRow) -> Mapping[str, Any]:
    """What a run's curve is chosen by."""
    return {"job": row.job, "state": row.state, "person": row.person, "params": dict(row.params)}


def event(kind: str, version: int, content: Mapping[str, Any]) -> bytes:
    """A server-sent event; JSON has no line breaks of its own."""
    data = json.dumps({"version": version, **content}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"event: {kind}\nid: {version}\ndata: {data}\n\n".encode()
