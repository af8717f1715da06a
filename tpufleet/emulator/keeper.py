"""Carries out what the cloud decided: boots hosts, halts them, and tells the cloud what came of it.

All work on one node is done in the order it was asked for; a delete interrupts what is still under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tpufleet.emulator.accounts import users
from tpufleet.emulator.book import Book
from tpufleet.emulator.clock import Clock
from tpufleet.emulator.cloud import Cloud
from tpufleet.emulator.hosts import Host, Settings, View
from tpufleet.emulator.identity import values_of
from tpufleet.emulator.machines import HostMaker, Machines
from tpufleet.emulator.nodes import NodeRecord
from tpufleet.emulator.operations import Operation
from tpufleet.emulator.queue import Queue
from tpufleet.emulator.steps import Steps
from tpufleet.emulator.store import Store
from tpufleet.emulator.turns import Turns, together
from tpufleet.emulator.wire import ApiError, bad_request, not_found

log = logging.getLogger(__name__)


class Keeper:
    def __init__(self, store: Store, clock: Clock, settings: Settings, ssh_port: int, make_host: HostMaker) -> None:
        stored = store.load()
        self.cloud = Cloud(clock, stored.get("cloud"))
        self.book = Book(stored.get("book"))
        self.clock = clock
        self.settings = settings
        self.ssh_port = ssh_port
        self.turns = Turns()
        self.steps = Steps(clock, lambda: settings.manual)
        self.capacity = self.cloud.capacity
        self.queue = Queue(self)
        self._store = store
        self._machines = Machines(store, ssh_port, self._view, make_host, self._numbers)

    # What the API asks for. Each returns at once, with the operation that now runs.

    def create(
        self, project: str, zone: str, node_id: str, body: Any, *, version: str = "v2", request_id: str = ""
    ) -> Operation:
        """The same `request_id` (v2alpha1 has one) again is the same operation."""
        parent = f"projects/{project}/locations/{zone}"
        if before := self.cloud.operations.asked_before("create", parent, request_id):
            return before
        operation = self.cloud.create(project, zone, node_id, body, version=version, request_id=request_id)
        self.provision(self.cloud.node(operation.target))
        return operation

    def provision(self, node: NodeRecord) -> None:
        """Starts to bring up a node that the cloud has in state CREATING."""
        self.book.created(node.name, node.resource["id"], self.clock.now())
        self._do(node, self._bring_up, node)

    def delete(self, name: str) -> Operation:
        operation = self.cloud.delete(name)
        node = self.cloud.node(name)
        self.book.billing_stops(node.resource["id"], self.clock.now())
        self.turns.interrupt(name)
        self._do(node, self._delete, node)
        self.queue.lost(node, "USER")
        return operation

    def stop(self, name: str) -> Operation:
        operation = self.cloud.stop(name)
        node = self.cloud.node(name)
        self._do(node, self._stop, node)
        return operation

    def start(self, name: str) -> Operation:
        operation = self.cloud.start(name)
        node = self.cloud.node(name)
        self._do(node, self._bring_up, node)
        return operation

    def update(self, name: str, mask: list[str], body: Any, version: str = "v2") -> Operation:
        operation = self.cloud.update(name, mask, body, version)
        self.save()
        return operation

    def restart(self, name: str) -> asyncio.Task[None]:
        """Reboots all hosts of a READY node."""
        self.cloud.restart(name)
        node = self.cloud.node(name)
        return self._do(node, self._restart, node)

    def simulate_maintenance(self, name: str, workers: list[int]) -> Operation:
        """The workers' metadata servers announce a maintenance; nothing else happens to them here."""
        operation = self.cloud.maintenance(name, workers)
        self.save()
        return operation

    def set_project_metadata(self, project: str, metadata: dict[str, str]) -> None:
        self.cloud.projects[project] = metadata
        self.save()

    def host_keys(self, name: str) -> list[str | None]:
        """The hosts' public keys by worker; None while a host has not booted."""
        node = self.cloud.node(name)
        return list(node.host_keys) if node.host_keys else [None] * node.accelerator.hosts

    def change_settings(self, settings: Settings) -> None:
        self.settings.path = settings.path
        self.settings.create_seconds = settings.create_seconds
        self.settings.manual = settings.manual
        if not settings.manual:
            self.steps.step_all()
        self._machines.refresh()

    def step(self, name: str) -> bool:
        """With the setting `manual`: the node or queued resource `name` (in full) goes on to its next state.

        A queued resource that waits for its nodes steps them. False when there is nothing to go on with.
        """
        if self.steps.step(name):
            return True
        nodes = self.cloud.queued[name].nodes if name in self.cloud.queued else []
        stepped = [self.steps.step(node) for node in nodes]
        return any(stepped)

    # Faults: these return when it has happened.

    async def preempt(self, name: str) -> None:
        """Takes a READY node away: nothing on it runs, nothing but `delete` is possible."""
        node = self.cloud.node(name)
        if node.state != "READY":
            raise bad_request(f"preempt is not supported while in state {node.state}")
        node.resource["state"] = "PREEMPTED"
        await self._do(node, self._take_down, node, "PREEMPTED")
        self.queue.lost(node, "SERVICE")

    async def crash(self, host_name: str) -> None:
        """The host is off: nothing listens, nothing runs; its files stay."""
        node, worker = self._find_host(host_name)
        await self._do(node, self._machines.host(node, worker).halt)

    async def revive(self, host_name: str, *, new_address: bool = False) -> None:
        """The host boots (again), at another address if wanted; a host key that was changed is published now."""
        node, worker = self._find_host(host_name)
        await self._do(node, self._reboot, node, worker, new_address)

    async def move(self, host_name: str) -> None:
        """The host is at another address from now on, without a reboot."""
        node, worker = self._find_host(host_name)
        await self._do(node, self._move, node, worker)

    async def vanish(self, name: str) -> None:
        """The node is gone, with all that ran on it, and the API knows nothing of it."""
        node = self.cloud.node(name)
        self.turns.interrupt(name)
        await self._do(node, self._remove, node, not_found(name))
        self.queue.lost(node, "SERVICE")

    def host(self, name: str) -> Host | None:
        """The host `name` of a READY node."""
        try:
            return self._machines.host(*self._find_host(name))
        except ApiError:
            return None

    def host_names(self) -> list[str]:
        """The hosts of all READY nodes."""
        ready = (node for node in self.cloud.nodes.values() if node.state == "READY")
        return [node.host_name(worker) for node in ready for worker in range(node.accelerator.hosts)]

    async def resume(self) -> None:
        """After a start of the daemon: no process of an earlier one is left, and every node goes on."""
        await self._machines.clear(self.cloud.nodes.values())
        await together([self._do(node, self._resume, node) for node in self.cloud.nodes.values()])
        self.queue.resume()

    async def shut_down(self) -> None:
        """Ends every process on every host and all work in progress; the nodes stay recorded."""
        await self.turns.end()
        await self._machines.halt_all()
        self.save()

    def save(self) -> None:
        self._store.save({"cloud": self.cloud.stored(), "book": self.book.stored()})

    # The work itself.

    async def _resume(self, node: NodeRecord) -> None:
        match node.state:
            case "CREATING" | "STARTING" | "RESTARTING" | "READY":
                await self._boot(node)
            case "DELETING":
                await self._remove(node)
            case "STOPPING":
                await self._take_down(node, "STOPPED")
            case _:
                pass

    async def _bring_up(self, node: NodeRecord) -> None:
        try:
            self.cloud.allocate([node])
        except ApiError as error:
            self._give_up(node, error)
            return
        await self.steps.pause(node.name, self.settings.create_seconds)
        await self._boot(node)

    def _give_up(self, node: NodeRecord, error: ApiError) -> None:
        """There is no room: a new node disappears, a stopped one stays stopped."""
        if node.state == "STARTING":
            self.cloud.failed_to_start(node.name, error)
        else:
            self.book.deleted(node.resource["id"], self.clock.now())
            self.cloud.removed(node.name, error)
        self.save()

    async def _restart(self, node: NodeRecord) -> None:
        await self._machines.halt(node)
        await self._boot(node)

    async def _boot(self, node: NodeRecord) -> None:
        """All hosts up and the node READY; a node without addresses is given up."""
        try:
            await self._machines.boot(node)
        except (ApiError, OSError) as error:
            log.warning("%s does not come up: %s", node.name, error)
            await self._machines.discard(node)
            self.book.deleted(node.resource["id"], self.clock.now())
            self.cloud.removed(node.name, error if isinstance(error, ApiError) else _internal(error))
        else:
            self.book.billing_starts(node.resource["id"], self.clock.now())
            self.cloud.became(node.name, "READY")
        self.save()

    async def _stop(self, node: NodeRecord) -> None:
        await self.steps.pause(node.name, 0)
        await self._take_down(node, "STOPPED")

    async def _take_down(self, node: NodeRecord, state: str) -> None:
        self.book.billing_stops(node.resource["id"], self.clock.now())
        await self._machines.halt(node)
        self.cloud.became(node.name, state)
        self.save()

    async def _delete(self, node: NodeRecord) -> None:
        await self.steps.pause(node.name, 0)
        await self._remove(node)

    async def _remove(self, node: NodeRecord, error: ApiError | None = None) -> None:
        await self._machines.discard(node)
        self.book.deleted(node.resource["id"], self.clock.now())
        self.cloud.removed(node.name, error)
        self.save()

    async def _reboot(self, node: NodeRecord, worker: int, new_address: bool) -> None:
        await self._machines.reboot(node, worker, new_address)
        self.save()

    async def _move(self, node: NodeRecord, worker: int) -> None:
        await self._machines.move(node, worker)
        self.save()

    def _numbers(self) -> set[int]:
        return {node.number for node in self.cloud.nodes.values() if node.number is not None}

    def _view(self, node: NodeRecord, worker: int) -> View:
        name = node.host_name(worker)

        return View(
            users=lambda: users(node.metadata, self._project_metadata(node), self.clock.now()),
            metadata=lambda: values_of(node, name, worker, self._project_metadata(node)),
            process_started=lambda: self.book.process_started(name),
        )

    def _project_metadata(self, node: NodeRecord) -> dict[str, str]:
        return self.cloud.projects.get(node.project, {})

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
        return self.turns.do(node.name, work, *args)


def _internal(error: OSError) -> ApiError:
    return ApiError("INTERNAL", f"Internal error: {error}")
