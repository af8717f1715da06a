"""The judge's book: what happened, written by the cloud itself and not by its customers."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from tpufleet.emulator.clock import parse_rfc3339, rfc3339
from tpufleet.emulator.wire import Json


class Book:
    """Counts API calls by method and processes by host, bills a node for the time it is READY.

    A queued resource costs nothing but eats quota: how long it was there is written down as well.
    """

    def __init__(self, stored: Json | None = None) -> None:
        stored = stored or {}
        self._calls: Counter[str] = Counter(stored.get("calls", {}))
        self._processes: Counter[str] = Counter(stored.get("processes", {}))
        # One entry per node that ever was, also when a name was used again.
        self._nodes: list[Json] = stored.get("nodes", [])
        self._queued: list[Json] = stored.get("queued", [])

    def called(self, method: str) -> None:
        self._calls[method] += 1

    def process_started(self, host: str) -> None:
        self._processes[host] += 1

    def created(self, name: str, uid: str, now: datetime) -> None:
        self._nodes.append({"name": name, "id": uid, "created": rfc3339(now), "deleted": None, "billed": []})

    def deleted(self, uid: str, now: datetime) -> None:
        self.billing_stops(uid, now)
        for node in self._of(uid):
            node["deleted"] = rfc3339(now)

    def queued(self, name: str, now: datetime) -> None:
        self._queued.append({"name": name, "created": rfc3339(now), "deleted": None})

    def dequeued(self, name: str, now: datetime) -> None:
        for one in self._queued:
            if one["name"] == name and not one["deleted"]:
                one["deleted"] = rfc3339(now)

    def billing_starts(self, uid: str, now: datetime) -> None:
        """Idempotent: a node that is billed already goes on being billed."""
        for node in self._of(uid):
            if not node["billed"] or node["billed"][-1][1]:
                node["billed"].append([rfc3339(now), None])

    def billing_stops(self, uid: str, now: datetime) -> None:
        for node in self._of(uid):
            if node["billed"] and not node["billed"][-1][1]:
                node["billed"][-1][1] = rfc3339(now)

    def stored(self) -> Json:
        return {
            "calls": dict(self._calls),
            "processes": dict(self._processes),
            "nodes": self._nodes,
            "queued": self._queued,
        }

    def wire(self, now: datetime) -> Json:
        """The book as JSON: `calls`, `processes`, per node its times and `nodeSeconds` so far, `queuedResources`."""
        nodes = [
            {"name": node["name"], "id": node["id"], "created": node["created"], "deleted": node["deleted"]}
            | {"nodeSeconds": sum(_seconds(span, now) for span in node["billed"])}
            for node in self._nodes
        ]
        queued = [one | {"seconds": _seconds([one["created"], one["deleted"]], now)} for one in self._queued]
        return {
            "calls": dict(self._calls),
            "processes": dict(self._processes),
            "nodes": nodes,
            "queuedResources": queued,
        }

    def _of(self, uid: str) -> list[Json]:
        return [node for node in self._nodes if node["id"] == uid]


def _seconds(span: list[Any], now: datetime) -> float:
    start, end = span
    return ((parse_rfc3339(end) if end else now) - parse_rfc3339(start)).total_seconds()
