"""Carries out what the cloud decided: boots hosts, halts them, and tells the cloud what came of it.

All work on one node is done in the order it was asked for; a delete interrupts what is still under way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tpufleet.emulator import addresses, processes
from tpufleet.emulator.accounts import keys_of
from tpufleet.emulator.book import Book
from tpufleet.emulator.clock import Clock
from tpufleet.emulator.cloud import Cloud, NodeRecord
from tpufleet.emulator.hosts import Host, Place, Settings, View, remove_tree
from tpufleet.emulator.metadata import values_of
from tpufleet.emulator.store import Store
from tpufleet.emulator.wire import ApiError, Operation, bad_request, not_found

log = logging.getLogger(__name__)

HostMaker = Callable[[Place, View], Host]


class Keeper:
    def __init__(self, store: Store, clock: Clock, settings: Settings, ssh_port: int, make_host: HostMaker) -> None:
        stored = store.load()
        self.cloud = Cloud(clock, stored.get("cloud"))
        self.book = Book(stored.get("book"))
        self.clock = clock
        self.settings = settings
        self.ssh_port = ssh_port
        self._store = store
        self._make_host = make_host
        self._hosts: dict[str, Host] = {}
        self._tasks: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # What the API asks for. Each returns at once, with the operation that now runs.

    def create(self, project: str, zone: str, node_id: str, body: Any) -> Operation:
        operation = self.cloud.create(project, zone, node_id, body)
        node = self.cloud.node(operation.target)
        self.book.created(node.name, node.resource["id"], self.clock.now())
        self._do(node, self._bring_up, node)
        return operation

    def delete(self, name: str) -> Operation:
        operation = self.cloud.delete(name)
        node = self.cloud.node(name)
        self.book.billing_stops(node.resource["id"], self.clock.now())
        self._interrupt(node)
        self._do(node, self._remove, node)
        return operation

    def stop(self, name: str) -> Operation:
        operation = self.cloud.stop(name)
        node = self.cloud.node(name)
        self._do(node, self._take_down, node, "STOPPED")
        return operation

    def start(self, name: str) -> Operation:
        operation = self.cloud.start(name)
        node = self.cloud.node(name)
        self._do(node, self._bring_up, node)
        return operation

    def update(self, name: str, mask: list[str], body: Any) -> Operation:
        operation = self.cloud.update(name, mask, body)
        self.save()
        return operation

    def host_keys(self, name: str) -> list[str | None]:
        """The hosts' public keys by worker; None while a host has not booted."""
        node = self.cloud.node(name)
        return list(node.host_keys) if node.host_keys else [None] * node.accelerator.hosts

    def change_settings(self, settings: Settings) -> None:
        self.settings.path = settings.path
        self.settings.create_seconds = settings.create_seconds
        for host in self._hosts.values():
            host.refresh()

    # Faults: these return when it has happened.

    async def preempt(self, name: str) -> None:
        """Takes a READY node away: nothing on it runs, nothing but `delete` is possible."""
        node = self.cloud.node(name)
        if node.state != "READY":
            raise bad_request(f"preempt is not supported while in state {node.state}")
        node.resource["state"] = "PREEMPTED"
        await self._do(node, self._take_down, node, "PREEMPTED")

    async def crash(self, host_name: str) -> None:
        """The host is off: nothing listens, nothing runs; its files stay."""
        node, worker = self._find_host(host_name)
        await self._do(node, self._host(node, worker).halt)

    async def revive(self, host_name: str) -> None:
        """The host boots (again)."""
        node, worker = self._find_host(host_name)
        await self._do(node, self._reboot, node, worker)

    async def resume(self) -> None:
        """After a start of the daemon: no process of an earlier one is left, and every node goes on."""
        await processes.kill_below(self._store.hosts)
        wanted = {node.host_name(k) for node in self.cloud.nodes.values() for k in range(node.accelerator.hosts)}
        for directory in self._store.hosts.iterdir():
            if directory.name not in wanted:
                await asyncio.to_thread(remove_tree, directory)
        await _together([self._do(node, self._resume, node) for node in self.cloud.nodes.values()])

    async def shut_down(self) -> None:
        """Ends every process on every host and all work in progress; the nodes stay recorded."""
        for node in list(self.cloud.nodes.values()):
            self._interrupt(node)
        await asyncio.gather(*(task for tasks in self._tasks.values() for task in tasks), return_exceptions=True)
        await _together(host.halt() for host in self._hosts.values())
        self.save()

    def save(self) -> None:
        self._store.save({"cloud": self.cloud.stored(), "book": self.book.stored()})

    # The work itself.

    async def _resume(self, node: NodeRecord) -> None:
        match node.state:
            case "CREATING" | "STARTING" | "READY":
                await self._boot(node)
            case "DELETING":
                await self._remove(node)
            case "STOPPING":
                await self._take_down(node, "STOPPED")
            case _:
                pass

    async def _bring_up(self, node: NodeRecord) -> None:
        await self.clock.sleep(self.settings.create_seconds)
        await self._boot(node)

    async def _boot(self, node: NodeRecord) -> None:
        """All hosts up and the node READY; a node without addresses is given up."""
        try:
            listening = self._listen(node)
            hosts = [self._host(node, worker) for worker in range(len(listening))]
            await _together(host.boot(one) for host, one in zip(hosts, listening, strict=True))
            node.host_keys = [host.host_key() for host in hosts]
        except (ApiError, OSError) as error:
            log.warning("%s does not come up: %s", node.name, error)
            await self._discard(node)
            self.book.deleted(node.resource["id"], self.clock.now())
            self.cloud.removed(node.name, error if isinstance(error, ApiError) else _internal(error))
        else:
            self.book.billing_starts(node.resource["id"], self.clock.now())
            self.cloud.became(node.name, "READY")
        self.save()

    def _listen(self, node: NodeRecord) -> list[socket.socket]:
        """Sockets on the node's addresses: those it had if they are free, else new ones."""
        count = node.accelerator.hosts
        sockets = addresses.claim_number(node.number, count, self.ssh_port) if node.number else []
        if not sockets:
            self._forget_hosts(node)
            node.number, sockets = addresses.claim(self._store.directory, count, self.ssh_port)
        return sockets

    async def _take_down(self, node: NodeRecord, state: str) -> None:
        self.book.billing_stops(node.resource["id"], self.clock.now())
        await self._halt(node)
        self.cloud.became(node.name, state)
        self.save()

    async def _remove(self, node: NodeRecord) -> None:
        await self._discard(node)
        self.book.deleted(node.resource["id"], self.clock.now())
        self.cloud.removed(node.name)
        self.save()

    async def _discard(self, node: NodeRecord) -> None:
        await self._halt(node)
        hosts = [self._host(node, worker) for worker in range(node.accelerator.hosts)]
        await _together(host.wipe() for host in hosts)
        self._forget_hosts(node)

    async def _halt(self, node: NodeRecord) -> None:
        hosts = [self._host(node, worker) for worker in range(node.accelerator.hosts)]
        await _together(host.halt() for host in hosts)

    async def _reboot(self, node: NodeRecord, worker: int) -> None:
        host = self._host(node, worker)
        await host.halt()
        await host.boot(addresses.listen(node.address(worker), self.ssh_port))

    def _host(self, node: NodeRecord, worker: int) -> Host:
        name = node.host_name(worker)
        if name not in self._hosts:
            self._hosts[name] = self._make_host(self._place(node, worker), self._view(node, worker))
        return self._hosts[name]

    def _forget_hosts(self, node: NodeRecord) -> None:
        for worker in range(node.accelerator.hosts):
            self._hosts.pop(node.host_name(worker), None)

    def _place(self, node: NodeRecord, worker: int) -> Place:
        accelerator = node.accelerator
        name = node.host_name(worker)
        devices = tuple(f"{accelerator.device_prefix}{chip}" for chip in range(accelerator.chips_per_host))
        return Place(name, self._store.hosts / name, node.address(worker), devices)

    def _view(self, node: NodeRecord, worker: int) -> View:
        name = node.host_name(worker)

        return View(
            keys_of=lambda user: keys_of(user, node.metadata, self.clock.now()),
            metadata=lambda: values_of(node.wire(), name, worker),
            process_started=lambda: self.book.process_started(name),
        )

    def _find_host(self, host_name: str) -> tuple[NodeRecord, int]:
        """The node and worker of a host of a READY node. Raises ApiError."""
        for node in self.cloud.nodes.values():
            for worker in range(node.accelerator.hosts):
                if node.host_name(worker) == host_name and node.state == "READY":
                    return node, worker
        raise not_found(f"hosts/{host_name}")

    def _do(self, node: NodeRecord, work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[None]:
        """Starts `work(*args)` on `node`, after what is being done to it."""
        self.save()
        task = asyncio.create_task(self._in_turn(node.name, work, *args))
        self._tasks[node.name].add(task)
        task.add_done_callback(lambda done: self._done(node.name, done))
        return task

    async def _in_turn(self, name: str, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        async with self._turns[name]:
            await work(*args)

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks[name].discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("work on %s failed", name, exc_info=error)

    def _interrupt(self, node: NodeRecord) -> None:
        for task in self._tasks[node.name]:
            task.cancel()


async def _together(works: Iterable[Awaitable[None]]) -> None:
    """Awaits all of `works` to their ends, then raises the first error among them."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if result is not None:
            raise result


def _internal(error: OSError) -> ApiError:
    return ApiError("INTERNAL", f"Internal error: {error}")
