"""A node's way out: deleted with its queued resource, and awaited until neither is there."""

from __future__ import annotations

import time

from tpufleet.actions import DeleteNode
from tpufleet.cloud.port import Pending
from tpufleet.errors import CloudError, Conflict, RateLimited, StuckOperation, TpufleetError
from tpufleet.model import NodeState, QueuedState
from tpufleet.ops.errands import Errand
from tpufleet.ops.fleet import Fleet
from tpufleet.plan import Claim
from tpufleet.text import lasted

AGAIN_S = 2.0  # another operation is at work on it, or the queue's half went first: ask again


class Removing(Errand):
    """One name in one zone."""

    def __init__(self, fleet: Fleet, action: DeleteNode) -> None:
        super().__init__(fleet, action.name, action.zone)
        self._queued = action.queued
        self._asked_at = 0.0
        self._refusal: TpufleetError | None = None
        self.say(f"deleting ({action.why})")

    def ask(self) -> None:
        self.due = None
        self._asked_at = time.monotonic()
        try:
            with self.fleet.journal.intent(self.fleet.command, "delete-node", self.name, zone=self.zone):
                self._delete()
        except (Conflict, RateLimited) as error:
            self._refusal = error
        except CloudError as error:
            self.fail(error)

    def look(self, claim: Claim | None) -> None:
        if claim is None:
            self.done("gone")
        elif not _is_going(claim) and time.monotonic() - self._asked_at > AGAIN_S:
            self._queued = claim.queued.name if claim.queued else None
            self.due = time.monotonic()

    def late(self, waited_s: float) -> None:
        said = f"still there in {self.zone} after {lasted(waited_s)}"
        self.fail(self._refusal or StuckOperation(said, where=self.name, hint="run the same command again"))

    def _delete(self) -> Pending | None:
        if self._queued:
            return self.fleet.cloud.delete_queued(self._queued, self.zone)
        return self.fleet.cloud.delete(self.name, self.zone)


def _is_going(claim: Claim) -> bool:
    """Whether it is on its way out; a queued resource that goes takes its node along."""
    if claim.queued:
        return claim.queued.state is QueuedState.DELETING
    return claim.node is not None and claim.node.state is NodeState.DELETING
