"""A running emulator's own routes (control.py), from outside: settings, steps, the book, faults.

Used by the command line, by `tpufleet.testing` and by tests alike. Imports little: `launch` needs it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from tpufleet.errors import CloudError, CloudUnreachable, NotFound, StateError, UsageError

Json = dict[str, Any]

TIMEOUT_S = 30
ALL = "tpufleet emulator fault list shows what is in force"
# An error of the daemon, by its status: whose mistake it is.
MEANINGS: dict[str, type[CloudError] | type[UsageError]] = {"INVALID_ARGUMENT": UsageError, "NOT_FOUND": NotFound}


class Remote:
    """The emulator at `url` (http://127.0.0.1:PORT). Every method raises CloudUnreachable when nobody answers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def book(self) -> Json:
        """The judge's book: `calls` by method, `processes` by host, `nodes` with their `nodeSeconds`, and so on."""
        return self._call("GET", "book")

    def settings(self) -> Json:
        """`path`, `createSeconds`, `manual`."""
        return self._call("GET", "info")["settings"]

    def configure(
        self, path: Sequence[Path] | None = None, create_seconds: float | None = None, manual: bool | None = None
    ) -> Json:
        """Changes the settings that are given; returns them all."""
        given: Json = {
            "path": None if path is None else [str(one) for one in path],
            "createSeconds": create_seconds,
            "manual": manual,
        }
        return self._call("PUT", "settings", {name: value for name, value in given.items() if value is not None})

    def step(self, name: str) -> bool:
        """With the setting `manual`: the node or queued resource goes on to its next state; False: it has none."""
        return bool(self._call("POST", f"step/{quote(name)}")["stepped"])

    def begin(self, kind: str, target: str = "", **options: Any) -> Json:
        """The fault begins (faults.py has the kinds, targets and options; an option that is None isn't given)."""
        body = {name: value for name, value in options.items() if value is not None}
        return self._call("POST", f"faults/{quote(kind)}/{quote(target)}", body)

    def end(self, kind: str, target: str = "") -> Json:
        return self._call("DELETE", f"faults/{quote(kind)}/{quote(target)}")

    def in_force(self) -> list[Json]:
        return self._call("GET", "faults")["faults"]

    def clear(self) -> list[Json]:
        """Ends everything that is in force; returns what that was."""
        return self._call("DELETE", "faults")["faults"]

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        import urllib.error
        import urllib.request

        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/emulator/{path}", data=data, method=method)  # noqa: S310 (ours)
        straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is never behind a proxy
        try:
            with straight.open(request, timeout=TIMEOUT_S) as answer:
                return cast(Json, json.load(answer))
        except urllib.error.HTTPError as error:
            raise _meaning(error.read()) from error
        except OSError as error:
            raise CloudUnreachable(
                f"the rehearsal cloud at {self.url} does not answer: {error}", hint="tpufleet emulator start"
            ) from error


def _meaning(body: bytes) -> CloudError | UsageError | StateError:
    try:
        said: Json = json.loads(body)["error"]
        kind = MEANINGS.get(str(said["status"]), CloudError)
        message = str(said["message"]).removeprefix("Cloud TPU received a bad request. ")
    except (ValueError, KeyError, TypeError):
        return StateError("the rehearsal cloud gave an answer that can't be read", hint="tpufleet emulator stop")
    return kind(message, hint=ALL)


class Faults:
    """What can go wrong, one method each (docs/rehearsal.md). Those that last return what ends them."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def stockout(self, zone: str, accelerator: str | None = None, chips: int = 0) -> InForce:
        """The zone has `chips` in all, of one type or of all; what is there stays."""
        return self._lasting("stockout", f"{zone}/{accelerator}" if accelerator else zone, chips=chips)

    def quota(self, metric: str, region: str, limit: int) -> InForce:
        """`metric` is a quota's name, or an accelerator type: its quotas, on demand and spot."""
        return self._lasting("quota", f"{metric}@{region}", limit=limit)

    def preempt(self, node: str) -> None:
        self._remote.begin("preempt", node)

    def maintenance(self, node: str) -> InForce:
        """Announced on its hosts and unhealthy; the end of it reboots them."""
        return self._lasting("maintenance", node)

    def suspend(self, queued_resource: str) -> None:
        self._remote.begin("suspend", queued_resource)

    def vanish(self, node: str) -> None:
        self._remote.begin("vanish", node)

    def hang_operation(self, node: str) -> InForce:
        """The operation that runs on the node, or the next one, does not end; the node may be yet to be created."""
        return self._lasting("hang-operation", node)

    def reboot(self, host: str, *, new_ip: bool = False) -> None:
        self._remote.begin("reboot", host, newIp=new_ip)

    def down(self, host: str) -> None:
        self._remote.begin("down", host)

    def up(self, host: str) -> None:
        self._remote.begin("up", host)

    def partition(self, host: str) -> InForce:
        return self._lasting("partition", host)

    def slow(self, host: str, kbps: float | None = None, delay_ms: float | None = None) -> InForce:
        return self._lasting("slow", host, kbps=kbps, delayMs=delay_ms)

    def disk_full(self, host: str) -> InForce:
        return self._lasting("disk-full", host)

    def change_host_key(self, host: str) -> None:
        self._remote.begin("change-host-key", host)

    def change_ip(self, host: str) -> None:
        self._remote.begin("change-ip", host)

    def api(
        self,
        status: int | str,
        *,
        method: str | None = None,
        at: int | None = None,
        count: int | None = None,
        retry_after: int | None = None,
        text: str | None = None,
    ) -> InForce:
        """The `count` calls (of `method`) from the `at`-th on are answered with `status`, an HTTP or RPC one."""
        target = f"{status}/{method}" if method else str(status)
        return self._lasting("api", target, next=count, at=at, retryAfter=retry_after, text=text)

    def lose_answer(self, *, method: str | None = None, at: int | None = None, count: int | None = None) -> InForce:
        """Those calls are carried out, and the connection is cut before the answer."""
        return self.api("lost-answer", method=method, at=at, count=count)

    def slow_api(self, ms: float) -> InForce:
        return self._lasting("slow-api", "", ms=ms)

    def in_force(self) -> list[Json]:
        return self._remote.in_force()

    def clear(self) -> list[Json]:
        """Ends everything that is in force; returns what that was."""
        return self._remote.clear()

    def _lasting(self, kind: str, target: str, **options: Any) -> InForce:
        self._remote.begin(kind, target, **options)
        return InForce(self._remote, kind, target)


@dataclass(frozen=True)
class InForce:
    """A fault that lasts; as a context manager it ends with the block."""

    remote: Remote
    kind: str
    target: str

    def end(self) -> None:
        """Raises NotFound when it isn't in force any more."""
        self.remote.end(self.kind, self.target)

    def __enter__(self) -> InForce:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(NotFound):
            self.end()
