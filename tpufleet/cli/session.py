"""One invocation: the global options, the fleet file, and the way to the cloud and the hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpufleet.cli.output import Output
from tpufleet.errors import UsageError
from tpufleet.model import Provider, Snapshot, Spec
from tpufleet.paths import LocalPaths

if TYPE_CHECKING:
    from tpufleet.cloud.port import Cloud
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ssh.access import Access

LOCK_WAIT_S = 600.0
WITHOUT_JOURNAL = frozenset({"delete", "status", "runs", "logs"})  # go on where its disk is full


@dataclass
class Session:
    """What the global options say; commands ask it for the file and the fleet."""

    config: Path
    out: Output

    def spec(self) -> Spec:
        from tpufleet.config.load import load

        return load(self.config)

    def paths(self, spec: Spec) -> LocalPaths:
        return LocalPaths(self.config.absolute(), spec.fleet)

    def access(self, spec: Spec) -> Access:
        """How the fleet's hosts are entered; raises UsageError when the file means a key that isn't there."""
        from tpufleet.ssh.access import access_to

        return access_to(spec, self.paths(spec))

    @contextlib.contextmanager
    def fleet(self, command: str, *, start: bool = False, dry_run: bool = False) -> Generator[Fleet]:
        """The fleet, connected; every connection is closed at the end. `start` starts the rehearsal cloud if needed."""
        from tpufleet.ops.fleet import Fleet
        from tpufleet.ssh.client import ParamikoDialer
        from tpufleet.ssh.trust import Trust
        from tpufleet.state.store import Journal

        spec = self.spec()
        paths = self.paths(spec)
        with contextlib.ExitStack() as stack:
            cloud = stack.enter_context(_cloud(spec, paths, start=start))
            paths.ensure_state()
            journal = Journal(paths.journal, spare=command in WITHOUT_JOURNAL)
            stack.callback(journal.close)
            if not journal.is_kept:
                self.out.note(f"going on without the journal: no room for {paths.journal}")
            access = self.access(spec)
            access.key_line()  # makes the fleet's own key, if it is that
            trust = Trust(paths.pins)
            dialer = stack.enter_context(ParamikoDialer(access, trust))
            emit = stack.enter_context(self.out.progress())
            yield Fleet(spec, paths, cloud, dialer, trust, journal, command, emit, dry_run)

    def survey(self, spec: Spec, *, everywhere: bool = False) -> Snapshot:
        """What the fleet holds, for a look that leaves no trace at home; a cloud that was never started has nothing."""
        from tpufleet.cloud.port import ALL_ZONES
        from tpufleet.ops.observe import survey

        paths = self.paths(spec)
        if spec.cloud.provider is Provider.EMULATOR and not paths.emulator.exists():
            return Snapshot()
        with _cloud(spec, paths, start=False) as cloud:
            return survey(spec, cloud, [ALL_ZONES] if everywhere else self._zones(spec, paths))

    def _zones(self, spec: Spec, paths: LocalPaths) -> tuple[str, ...]:
        """As `Fleet.zones`, where there may be no journal yet."""
        from tpufleet.state.store import Journal

        if not paths.journal.exists():
            return spec.cloud.zones
        with contextlib.closing(Journal(paths.journal)) as journal:
            return tuple(dict.fromkeys([*spec.cloud.zones, *journal.zones()]))

    @contextlib.contextmanager
    def changing(self, fleet: Fleet) -> Generator[None]:
        """Hold the fleet's lock: one command changes a fleet at a time, the next one waits and says for whom."""
        from tpufleet.state.lock import locked

        def waiting(holder: str) -> None:
            self.out.note(f"waiting for {holder}")

        with locked(fleet.paths.lock, fleet.command, wait_s=LOCK_WAIT_S, waiting=waiting):
            yield


@contextlib.contextmanager
def _cloud(spec: Spec, paths: LocalPaths, *, start: bool) -> Generator[Cloud]:
    """The cloud of the file; its connections are closed at the end."""
    cloud = _connected(spec, paths, start=start)
    try:
        yield cloud
    finally:
        cloud.close()


def _connected(spec: Spec, paths: LocalPaths, *, start: bool) -> Cloud:
    if spec.cloud.provider is Provider.GCP:
        if spec.cloud.project is None:
            raise UsageError("the file names no project", hint="add cloud.project to the fleet file")
        from tpufleet.cloud import tpu_api

        return tpu_api.google(spec.cloud.project)
    if spec.cloud.provider is Provider.INVENTORY:
        from tpufleet.cloud.inventory import Inventory
        from tpufleet.ssh.knownhosts import known_key

        return Inventory(spec, known_key)
    from tpufleet.cli import rehearsal

    return rehearsal.connect(spec, paths, start=start)
