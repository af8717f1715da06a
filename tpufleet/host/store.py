"""The records of one run on disk. Reading needs nothing; writing is for whoever holds the run's lock."""

from __future__ import annotations

import contextlib
import json

from tpufleet.host import files, locks
from tpufleet.host.places import Places, RunPlaces
from tpufleet.host.records import Handle, RunState, handle_from, state_from
from tpufleet.host.specs import RunSpec, spec_from

# Others only ever hold a run's lock for a moment, unless a supervisor or a training is alive.
PATIENCE_S = 0.05


class RunStore:
    """Records of the run at `at`."""

    def __init__(self, at: RunPlaces) -> None:
        self.at = at

    def take(self, patience_s: float = PATIENCE_S) -> int | None:
        """A descriptor that holds the run's lock, or None: then a supervisor or a training lives."""
        try:
            return locks.try_lock(self.at.lock, patience_s)
        except FileNotFoundError:
            self.at.control.mkdir(mode=0o700, exist_ok=True)
            return locks.try_lock(self.at.lock, patience_s)

    def state(self) -> RunState | None:
        """None while the run is being made."""
        stored = files.read_json(self.at.state)
        return None if stored is None else state_from(stored)

    def spec(self) -> RunSpec:
        stored = files.read_json(self.at.spec)
        if stored is None:
            raise FileNotFoundError(self.at.spec)
        return spec_from(stored)

    def handle(self) -> Handle | None:
        return handle_from(files.read_json(self.at.handle))

    def secrets(self) -> dict[str, str]:
        return files.read_json(self.at.secrets) or {}

    def write_state(self, state: RunState) -> RunState:
        files.write_json(self.at.state, state.stored)
        return state

    def write_handle(self, handle: Handle) -> None:
        files.write_json(self.at.handle, handle._asdict())

    def write_request(self, spec: RunSpec, secrets: dict[str, str]) -> None:
        """What a run is to be; its secrets in a file of their own that only its owner can read."""
        if secrets:
            files.write_atomic(self.at.secrets, json.dumps(secrets).encode(), 0o600)
        else:
            self.forget_secrets()
        files.write_json(self.at.spec, spec._asdict())

    def forget_secrets(self) -> None:
        self.at.secrets.unlink(missing_ok=True)

    def ask_to_stop(self, grace_s: float) -> None:
        """Makes the wish to stop outlive us all; the one record that is written without the lock."""
        files.write_json(self.at.stop, {"grace_s": grace_s})

    def asked_to_stop(self) -> float | None:
        """The grace period in seconds if someone wants the run stopped."""
        asked = files.read_json(self.at.stop)
        return None if asked is None else float(asked["grace_s"])

    def forget_stop(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.at.stop.unlink()


def all_states(places: Places) -> list[RunState]:
    """The states of every run this host was given, by id."""
    found = (RunStore(places.run(run)).state() for run in places.runs())
    return [state for state in found if state is not None]
