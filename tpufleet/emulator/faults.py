"""Everything that can be made to go wrong, by kind and target; what lasts is in force until it is ended.

A fault's target is a host (`tpu-0-w0`), a node (its id or its whole name), ZONE or ZONE/TYPE, METRIC@REGION (or
TYPE@REGION), STATUS or STATUS/METHOD, or empty. Faults are forgotten when the daemon ends, except for capacity and
quota, which belong to the cloud and are stored with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tpufleet.accelerators import lookup
from tpufleet.emulator import schema
from tpufleet.emulator.capacity import Use
from tpufleet.emulator.hosts import Host
from tpufleet.emulator.interference import LOST, STATUS_OF_HTTP, Interference, Rule
from tpufleet.emulator.keeper import Keeper
from tpufleet.emulator.nodes import NodeRecord
from tpufleet.emulator.wire import CODES, ApiError, Json, bad_request
from tpufleet.errors import UsageError


@dataclass
class Lasting:
    """A fault in force: what ends it, and whether its victim is still there."""

    options: Json
    end: Callable[[], Awaitable[None]]
    holds: Callable[[], bool] = lambda: True


Begin = Callable[[str, Json], Awaitable[Lasting | None]]


class Faults:
    def __init__(self, keeper: Keeper, interference: Interference, methods: Collection[str]) -> None:
        """`methods` are the API's, by name."""
        self._keeper = keeper
        self._interference = interference
        self._methods = methods
        self._lasting: dict[tuple[str, str], Lasting] = {}
        self._kinds: dict[str, tuple[Begin, Json]] = {
            "stockout": (self._stockout, {"chips": int}),
            "quota": (self._quota, {"limit": int}),
            "preempt": (self._preempt, {}),
            "maintenance": (self._maintenance, {}),
            "suspend": (self._suspend, {}),
            "vanish": (self._vanish, {}),
            "hang-operation": (self._hang, {}),
            "reboot": (self._reboot, {"newIp": bool}),
            "down": (self._down, {}),
            "up": (self._up, {}),
            "partition": (self._partition, {}),
            "slow": (self._slow, {"kbps": float, "delayMs": float}),
            "disk-full": (self._disk_full, {}),
            "change-host-key": (self._change_host_key, {}),
            "change-ip": (self._change_ip, {}),
            "api": (self._api, {"next": int, "at": int, "retryAfter": int, "text": str}),
            "slow-api": (self._slow_api, {"ms": float}),
        }

        self._remember()

    def _remember(self) -> None:
        """What the cloud has kept over a restart of the daemon."""
        kept = self._keeper.capacity.stored()
        for target, chips in kept["limits"].items():
            self._lasting["stockout", target] = self._short_of_chips(target, chips)
        for target, limit in kept["quotas"].items():
            metric, _, region = target.partition("@")
            self._lasting["quota", target] = self._limited([metric], region, limit)

    async def begin(self, kind: str, target: str, body: Any) -> Json:
        """Makes it happen (again: with these options instead) and says what is in force of it. Raises ApiError."""
        start, fields = self._kind(kind)
        options = schema.check(body, fields, "")
        lasting = await start(target, options)
        if lasting is not None:
            self._lasting[kind, target] = lasting
        return {"kind": kind, "target": target, "lasts": lasting is not None, **options}

    async def end(self, kind: str, target: str) -> Json:
        """Ends what lasts. Raises ApiError when it isn't in force."""
        self._kind(kind)
        self._forget_what_is_over()
        if (kind, target) not in self._lasting:
            raise ApiError("NOT_FOUND", f"There is no fault '{kind} {target}'".rstrip() + " in force." + self._listed())
        await self._lasting.pop((kind, target)).end()
        return {"kind": kind, "target": target, "lasts": False}

    async def clear(self) -> list[Json]:
        """Ends everything that lasts, the oldest first; says what that was."""
        ended = self.in_force()
        for one in ended:
            await self.end(one["kind"], one["target"])
        return ended

    def in_force(self) -> list[Json]:
        self._forget_what_is_over()
        return [{"kind": kind, "target": target, **one.options} for (kind, target), one in self._lasting.items()]

    def _forget_what_is_over(self) -> None:
        self._lasting = {key: one for key, one in self._lasting.items() if one.holds()}

    def _listed(self) -> str:
        there = ", ".join(f"{kind} {target}".rstrip() for kind, target in self._lasting)
        return f" In force: {there}." if there else " None is."

    def _kind(self, kind: str) -> tuple[Begin, Json]:
        if kind not in self._kinds:
            raise ApiError("NOT_FOUND", f"There is no fault {kind!r}; there are {', '.join(self._kinds)}.")
        return self._kinds[kind]

    # The cloud.

    async def _stockout(self, target: str, options: Json) -> Lasting:
        zone, _, accelerator = target.partition("/")
        if accelerator:
            _metrics(accelerator)
        if (chips := options.get("chips", 0)) < 0:
            raise bad_request("chips can't be fewer than 0")
        self._keeper.capacity.limit(zone, accelerator or None, chips)
        self._keeper.save()
        return self._short_of_chips(target, chips)

    def _short_of_chips(self, target: str, chips: int) -> Lasting:
        zone, _, accelerator = target.partition("/")

        async def end() -> None:
            self._keeper.capacity.limit(zone, accelerator or None, None)
            self._keeper.save()

        return Lasting({"chips": chips}, end)

    async def _quota(self, target: str, options: Json) -> Lasting:
        wanted, _, region = target.partition("@")
        limit = options.get("limit", 0)
        if not region or limit < 0:
            raise bad_request("a quota is METRIC@REGION or TYPE@REGION with a limit of 0 or more")
        metrics = [wanted] if wanted.endswith("ForTPUAPI") else _metrics(wanted)
        for metric in metrics:
            self._keeper.capacity.quota(metric, region, limit)
        self._keeper.save()
        return self._limited(metrics, region, limit)

    def _limited(self, metrics: Sequence[str], region: str, limit: int) -> Lasting:
        async def end() -> None:
            for metric in metrics:
                self._keeper.capacity.quota(metric, region, None)
            self._keeper.save()

        return Lasting({"limit": limit}, end)

    async def _preempt(self, node: str, options: Json) -> None:
        del options
        await self._keeper.preempt(self._node(node).name)

    async def _maintenance(self, name: str, options: Json) -> Lasting:
        node = self._node(name)
        self._keeper.simulate_maintenance(node.name, list(range(node.accelerator.hosts)))

        async def end() -> None:
            await self._keeper.restart(node.name)

        return Lasting(options, end, lambda: self._is_there(node) and bool(node.maintenance))

    async def _suspend(self, name: str, options: Json) -> None:
        del options
        await self._keeper.queue.suspend(self._queued_resource(name))

    async def _vanish(self, node: str, options: Json) -> None:
        del options
        await self._keeper.vanish(self._node(node).name)

    async def _hang(self, node: str, options: Json) -> Lasting:
        """The node may be one that is still to be created."""
        steps = self._keeper.steps
        steps.hang(node)

        async def end() -> None:
            steps.release(node)

        return Lasting(options, end, lambda: steps.hangs(node))

    # Hosts.

    async def _down(self, host: str, options: Json) -> None:
        del options
        self._host(host)
        await self._keeper.crash(host)

    async def _up(self, host: str, options: Json) -> None:
        del options
        self._host(host)
        await self._keeper.revive(host)

    async def _reboot(self, host: str, options: Json) -> None:
        self._host(host)
        await self._keeper.revive(host, new_address=options.get("newIp", False))

    async def _change_ip(self, host: str, options: Json) -> None:
        del options
        self._host(host)
        await self._keeper.move(host)

    async def _change_host_key(self, host: str, options: Json) -> None:
        del options
        self._host(host).change_key()

    async def _partition(self, name: str, options: Json) -> Lasting:
        host = self._host(name)
        host.link.cut(True)

        async def end() -> None:
            host.link.cut(False)

        return self._of_host(name, host, options, end)

    async def _slow(self, name: str, options: Json) -> Lasting:
        host = self._host(name)
        kbps, delay_ms = options.get("kbps"), options.get("delayMs", 0.0)
        if (kbps is None and not delay_ms) or (kbps is not None and kbps <= 0) or delay_ms < 0:
            raise bad_request("a slow host needs kbps above 0, delayMs, or both")
        host.link.slow(kbps, delay_ms / 1000)

        async def end() -> None:
            host.link.slow()

        return self._of_host(name, host, options, end)

    async def _disk_full(self, name: str, options: Json) -> Lasting:
        host = self._host(name)
        host.fill_disk(True)

        async def end() -> None:
            host.fill_disk(False)

        return self._of_host(name, host, options, end)

    def _of_host(self, name: str, host: Host, options: Json, end: Callable[[], Awaitable[None]]) -> Lasting:
        return Lasting(options, end, lambda: self._keeper.host(name) is host)

    # The API.

    async def _api(self, target: str, options: Json) -> Lasting:
        word, _, method = target.partition("/")
        status = LOST if word == "lost-answer" else STATUS_OF_HTTP.get(word, word)
        if status != LOST and status not in CODES:
            raise bad_request(f"{word!r} is no error of the API; there are {', '.join((*STATUS_OF_HTTP, *CODES))}")
        if method and method not in self._methods:
            raise bad_request(f"there is no method {method!r}; there are {', '.join(sorted(self._methods))}")
        count, at = options.get("next", 1), options.get("at", 1)
        if count < 1 or at < 1:
            raise bad_request("next and at count from 1")
        rule = Rule(status, options.get("text", ""), method or None, at - 1, count, options.get("retryAfter"))
        self._interference.rules.append(rule)

        async def end() -> None:
            rule.left = 0

        return Lasting(options, end, lambda: rule.left > 0)

    async def _slow_api(self, target: str, options: Json) -> Lasting:
        del target
        if options.get("ms", 0) <= 0:
            raise bad_request("a slow API needs ms above 0")
        self._interference.delay_s = options["ms"] / 1000

        async def end() -> None:
            self._interference.delay_s = 0.0

        return Lasting(options, end)

    # Who is meant.

    def full_name(self, wanted: str) -> str:
        """The whole name of the node or queued resource `wanted`; raises ApiError when there is none."""
        if any(wanted in (name, name.rpartition("/")[2]) for name in self._keeper.cloud.queued):
            return self._queued_resource(wanted)
        return self._node(wanted).name

    def _node(self, wanted: str) -> NodeRecord:
        nodes = self._keeper.cloud.nodes
        found = [node for name, node in nodes.items() if wanted in (name, node.label)]
        if not found:
            raise ApiError(
                "NOT_FOUND", f"There is no node {wanted!r}; " + _those(node.label for node in nodes.values())
            )
        return found[0]

    def _is_there(self, node: NodeRecord) -> bool:
        return self._keeper.cloud.nodes.get(node.name) is node

    def _host(self, wanted: str) -> Host:
        found = self._keeper.host(wanted)
        if found is None:
            raise ApiError("NOT_FOUND", f"There is no host {wanted!r}; " + _those(self._keeper.host_names()))
        return found

    def _queued_resource(self, wanted: str) -> str:
        names = list(self._keeper.cloud.queued)
        found = [name for name in names if wanted in (name, name.rpartition("/")[2])]
        if not found:
            raise ApiError(
                "NOT_FOUND",
                f"There is no queued resource {wanted!r}; " + _those(name.rpartition("/")[2] for name in names),
            )
        return found[0]


def _those(names: Iterable[str]) -> str:
    """`there are a, b.`"""
    listed = ", ".join(names)
    return f"there are {listed}." if listed else "there is none."


def _metrics(accelerator: str) -> list[str]:
    """The quotas of an accelerator type, on demand and spot; raises ApiError for a type that doesn't exist."""
    try:
        found = lookup(accelerator)
    except UsageError as error:
        raise bad_request(error.message) from error
    return [Use("", found, spot=spot).metric("Region") for spot in (False, True)]
