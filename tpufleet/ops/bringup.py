"""A node's way from the wish to READY, over stock-outs, lost zones and answers that never came."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tpufleet import provision
from tpufleet.actions import AwaitNode, CreateNode, StartNode
from tpufleet.cloud.port import Pending
from tpufleet.errors import CapacityError, CloudError, Conflict, RateLimited, StuckOperation, TpufleetError
from tpufleet.model import Node, NodeState
from tpufleet.ops.errands import Errand
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.mend import EXPIRES
from tpufleet.ops.request import node_request
from tpufleet.plan import Claim
from tpufleet.text import lasted

OPERATION_LOOK_S = 20.0  # a node that stays CREATING: ask its operation now and then whether it has failed
CLEAR_AGAIN_S = 2.0  # another operation is at work on what is to be cleared away
VANISHED_LOOKS = 3  # a node just asked for may be missing from a list or two

OnReady = Callable[[Node], None]


class _Way(Errand):
    """What all ways to READY have in common."""

    def __init__(self, fleet: Fleet, name: str, zone: str, on_ready: OnReady) -> None:
        super().__init__(fleet, name, zone)
        self._on_ready = on_ready
        self._pending: Pending | None = None

    def _arrived(self, claim: Claim | None) -> bool:
        if not (claim and claim.node and claim.node.state is NodeState.READY):
            return False
        if claim.node.expires is not None:  # known from now on, also when it is over before a watch looks
            self.fleet.journal.mark(self.name, EXPIRES, f"{claim.node.expires:.0f}")
        self.done(f"ready in {self.zone}")
        self._on_ready(claim.node)
        return True

    def late(self, waited_s: float) -> None:
        self._stuck("not ready", waited_s)

    def _stuck(self, state: str, waited_s: float) -> None:
        operation = f" (operation {self._pending.name.rpartition('/')[2]})" if self._pending else ""
        self.fail(
            StuckOperation(
                f"still {state} in {self.zone} after {lasted(waited_s)}{operation}",
                where=self.name,
                hint=f"tpufleet create goes on waiting; tpufleet delete {self.name} gives it up",
            )
        )


class Waking(_Way):
    """A node that is there, stopped or on its way."""

    def __init__(self, fleet: Fleet, action: StartNode | AwaitNode, on_ready: OnReady) -> None:
        super().__init__(fleet, action.name, action.zone, on_ready)
        self._action = action

    def ask(self) -> None:
        self.due = None
        match self._action:
            case StartNode(name, zone):
                self.say("starting")
                try:
                    with self.fleet.journal.intent(self.fleet.command, "start-node", name, zone=zone):
                        self._pending = self.fleet.cloud.start(name, zone)
                except CloudError as error:
                    self.fail(error)
            case AwaitNode(name, _, queued):
                self.say("waits in the queue" if queued else "waiting: somebody asked for it already")

    def look(self, claim: Claim | None) -> None:
        if self._arrived(claim):
            return
        if claim is None or claim.ended:
            why = f": {claim.ended}" if claim else " of the cloud's list"
            self.fail(CapacityError(f"went away{why}", where=self.name, hint="run the same command again"))


class Making(_Way):
    """A node that has to be made, in the first zone that has room for it."""

    def __init__(self, fleet: Fleet, action: CreateNode, key_line: str, on_ready: OnReady) -> None:
        super().__init__(fleet, action.name, action.zone, on_ready)
        self._action = action
        self._key_line = key_line
        self._search = provision.begin(action)
        self._leftover: Claim | None = None  # what a refused attempt left behind; it goes before the next is made
        self._clearing = False
        self._again = 0.0
        self._absent = 0
        self._asked_at = self._asked_operation = 0.0
        self._state = "CREATING"

    def ask(self) -> None:
        self.due = None
        self._clearing = self._leftover is not None
        if self._leftover:
            self._clear(self._leftover)
            return
        self.zone = str(self._search.zone)
        pool = self._action.pool
        self.say(f"{'queueing for' if pool.queued else 'creating'} {pool.accelerator} in {self.zone}")
        request = node_request(self.fleet, self._action, self.zone, self._key_line)
        try:
            with self.fleet.journal.intent(
                self.fleet.command, "create-node", self.name, zone=self.zone, accelerator=pool.accelerator
            ):
                self._pending = self.fleet.cloud.create(request)
        except CloudError as error:
            self._refused(error)
        else:
            self._absent = 0
            self._asked_at = self._asked_operation = time.monotonic()

    def look(self, claim: Claim | None) -> None:
        if self._clearing:
            if claim is None:
                self._clearing, self._leftover = False, None
                self.due = self._again
        elif self._arrived(claim):
            pass
        elif claim and claim.ended:
            self._leftover = claim
            why = f": {claim.queued.why}" if claim.queued and claim.queued.why else ""
            self._refused(CapacityError(f"{claim.ended} before it was ready{why}", where=self.name))
        elif error := self._operation_error(claim):
            self._leftover = claim
            self._refused(error)
        elif claim:
            self._notice(claim)

    def late(self, waited_s: float) -> None:
        if self.due is not None and self._search.refusals:
            self.fail(provision.too_late(self._search, self._action.pool.accelerator, waited_s))
        elif self._action.pool.queued:
            self._still_queued(waited_s)
        else:
            self._stuck(self._state, waited_s)

    def _still_queued(self, waited_s: float) -> None:
        self.fail(
            CapacityError(
                f"waits in the queue of {self.zone} ({self._state}) for {lasted(waited_s)}; it goes on without us",
                where=self.name,
                hint=f"tpufleet create looks again; tpufleet delete {self.name} gives it up",
            )
        )

    def _operation_error(self, claim: Claim | None) -> CloudError | None:
        """Why it will not come: by its operation, or because it is gone from the list for good."""
        now = time.monotonic()
        if claim is None:
            self._absent += 1
        elif now - self._asked_operation < OPERATION_LOOK_S:
            return None
        self._asked_operation = now
        try:
            over = self._pending is None or self._pending.finished()
        except CloudError as error:
            return error
        if over and claim is None and self._absent >= VANISHED_LOOKS:
            ttl = self._action.pool.ttl
            if ttl and now - self._asked_at > ttl.seconds:
                text = f"its ttl ({ttl}) was over before it was ready"
                return CloudError(text, where=self.name, hint="a longer ttl in the fleet file")
            return CapacityError("vanished before it was ready", where=self.name)
        return None

    def _notice(self, claim: Claim) -> None:
        state = claim.node.state if claim.node else claim.queued.state if claim.queued else self._state
        if state != self._state:
            self._state = state
            self.say(f"{state} in {self.zone}")

    def _refused(self, error: TpufleetError) -> None:
        step = provision.after_refusal(self._search, error, random.random())  # noqa: S311 - jitter, no secret
        if isinstance(step, provision.GiveUp):
            self.fail(step.error)
            return
        tried, self._search = self.zone, step.search
        self._again = time.monotonic() + step.after_s
        self.due = time.monotonic() if self._leftover else self._again
        then = f"trying {self._search.zone}"
        if step.after_s:
            then += f" in {lasted(step.after_s)} (try {len(self._search.refusals) + 1}, {self.waited()} so far)"
        self.say(f"{tried}: {provision.in_short(error)}; {then}")

    def _clear(self, leftover: Claim) -> None:
        """Ask for the end of what a refused attempt left; `look` sees when it is gone."""
        doomed = leftover.deletion("refused")
        try:
            with self.fleet.journal.intent(self.fleet.command, "delete-node", self.name, zone=doomed.zone):
                if doomed.queued:
                    self.fleet.cloud.delete_queued(doomed.queued, doomed.zone)
                else:
                    self.fleet.cloud.delete(doomed.name, doomed.zone)
        except (Conflict, RateLimited):
            self.due = time.monotonic() + CLEAR_AGAIN_S
        except CloudError as error:
            self.fail(error)
