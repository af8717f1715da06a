"""The hosts of all nodes: made when they are first needed, booted, halted, and forgotten with their node.

What a node's state is, is none of this module's business; `keeper.py` calls it in turn.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable

from tpufleet.emulator import addresses, processes
from tpufleet.emulator.hosts import Host, Place, View, remove_tree
from tpufleet.emulator.nodes import NodeRecord
from tpufleet.emulator.store import Store
from tpufleet.emulator.turns import together

HostMaker = Callable[[Place, View], Host]


class Machines:
    """`view` gives what a worker of a node may ask the cloud for; `make_host` makes hosts of the kind in use.

    `numbers` are those of all nodes there are, also of those whose hosts are down: their addresses stay theirs.
    """

    def __init__(
        self,
        store: Store,
        ssh_port: int,
        view: Callable[[NodeRecord, int], View],
        make_host: HostMaker,
        numbers: Callable[[], set[int]],
    ) -> None:
        self._numbers = numbers
        self._store = store
        self._ssh_port = ssh_port
        self._view = view
        self._make_host = make_host
        self._hosts: dict[str, Host] = {}

    def host(self, node: NodeRecord, worker: int) -> Host:
        name = node.host_name(worker)
        if name not in self._hosts:
            self._hosts[name] = self._make_host(self._place(node, worker), self._view(node, worker))
        return self._hosts[name]

    def _all(self, node: NodeRecord) -> list[Host]:
        return [self.host(node, worker) for worker in range(node.accelerator.hosts)]

    def _place(self, node: NodeRecord, worker: int) -> Place:
        accelerator = node.accelerator
        name = node.host_name(worker)
        devices = tuple(f"{accelerator.device_prefix}{chip}" for chip in range(accelerator.chips_per_host))
        return Place(name, self._store.hosts / name, node.address(worker), devices)

    def refresh(self) -> None:
        """The settings have changed."""
        for host in self._hosts.values():
            host.refresh()

    async def clear(self, nodes: Iterable[NodeRecord]) -> None:
        """After a start of the daemon: ends every process of an earlier one; removes what is not of `nodes`."""
        await processes.kill_below(self._store.hosts)
        wanted = {node.host_name(worker) for node in nodes for worker in range(node.accelerator.hosts)}
        for directory in self._store.hosts.iterdir():
            if directory.name not in wanted:
                await asyncio.to_thread(remove_tree, directory)

    async def boot(self, node: NodeRecord) -> None:
        """All hosts of the node, which gets addresses and host keys by it. Raises ApiError or OSError."""
        listening = self._listen(node)
        hosts = self._all(node)
        await together(host.boot(one) for host, one in zip(hosts, listening, strict=True))
        node.host_keys = [host.host_key() for host in hosts]

    def _listen(self, node: NodeRecord) -> list[socket.socket]:
        """Sockets on the node's addresses: those it began with if they are free, else new ones."""
        count = node.accelerator.hosts
        node.moved = {}
        sockets = addresses.claim_number(node.number, count, self._ssh_port) if node.number else []
        if not sockets:
            self._forget(node)
            node.number, sockets = addresses.claim(self._store.directory, count, self._ssh_port, self._numbers())
        return sockets

    async def halt(self, node: NodeRecord) -> None:
        await together(host.halt() for host in self._all(node))

    async def halt_all(self) -> None:
        await together(host.halt() for host in self._hosts.values())

    async def discard(self, node: NodeRecord) -> None:
        """Halts the node's hosts and removes their files."""
        await self.halt(node)
        await together(host.wipe() for host in self._all(node))
        self._forget(node)

    def _forget(self, node: NodeRecord) -> None:
        for worker in range(node.accelerator.hosts):
            self._hosts.pop(node.host_name(worker), None)

    async def reboot(self, node: NodeRecord, worker: int, new_address: bool) -> None:
        host = self.host(node, worker)
        await host.halt()
        if new_address:
            await host.boot(self._another_address(node, worker))
        else:
            await host.boot(addresses.listen(node.address(worker), self._ssh_port))
        node.host_keys[worker] = host.host_key()

    async def move(self, node: NodeRecord, worker: int) -> None:
        """The host is at another address from now on, without a reboot."""
        await self.host(node, worker).move(self._another_address(node, worker))

    def _another_address(self, node: NodeRecord, worker: int) -> socket.socket:
        hosts = node.accelerator.hosts
        taken = [node.address(one) for one in range(hosts)]
        address, listening = addresses.another(node.number or 0, hosts, taken, self._ssh_port)
        node.moved[str(worker)] = address
        return listening
