"""Google's Cloud TPU API v2 behind `cloud.port`, for Google Cloud and the rehearsal cloud alike.

Google's own client over REST makes the calls; only endpoint and credentials differ. Every call has a time-out and is
retried here (`retry`), since the client's own default for both is "none". The API is in maintenance mode (v2 to v6e),
which is why it stays behind a port.
"""

# Google's client is only partly typed: what comes out of it is `Any` until `wire` names it.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from google.auth.exceptions import GoogleAuthError
from google.cloud import tpu_v2
from google.rpc import code_pb2

from tpufleet.cloud import wire
from tpufleet.cloud.bucket import TokenBucket
from tpufleet.cloud.calls import Caller, answered, credential_trouble
from tpufleet.cloud.classify import classify, timed_out
from tpufleet.cloud.port import NodeRequest, Pending
from tpufleet.cloud.retry import Patience, Time, persistently
from tpufleet.cloud.transport import Anonymous, Transport
from tpufleet.errors import AlreadyExists, CloudUnreachable, Conflict, NotFound
from tpufleet.model import Node, Queued

T = TypeVar("T")

TIMEOUT_S = 30.0
GOOGLE = "https://tpu.googleapis.com"
GOOGLES_PATIENCE = Patience(rate_s=120, transient_s=30)  # a quota "per minute" is free again after a minute
REHEARSALS_PATIENCE = Patience(rate_s=5, transient_s=5)
# Google allows about 91 creations a minute and project (marin #6198)
CREATIONS_PER_MINUTE, CREATIONS_AT_ONCE = 60, 10
LIVES = 50  # how often one name may be made and deleted while Google remembers request ids


@dataclass(frozen=True)
class Access:
    """A transport, and the member it speaks for, as IAM names it, if that is known."""

    transport: Transport
    member: str | None = None


def google(project: str) -> TpuCloud:
    """The real thing. Application-default credentials are looked for at the first call, not here."""
    bucket = TokenBucket(CREATIONS_PER_MINUTE, CREATIONS_AT_ONCE)
    return TpuCloud(project, _google_access, ssh_port=22, patience=GOOGLES_PATIENCE, bucket=bucket)


def rehearsal(project: str, url: str, ssh_port: int) -> TpuCloud:
    """The emulator at `url` (http://127.0.0.1:PORT)."""

    def access() -> Access:
        return Access(Transport(Anonymous(), url, direct=True))

    return TpuCloud(project, access, ssh_port=ssh_port, patience=REHEARSALS_PATIENCE)


def _google_access() -> Access:
    """Raises PermissionDenied where there are no credentials."""
    import google.auth
    from google.auth.credentials import Credentials

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing quota project: where it matters the API says so
            found = google.auth.default(scopes=wire.SCOPES)
    except GoogleAuthError as error:
        raise credential_trouble(error) from error
    credentials = cast("Credentials", found[0])
    robot = getattr(credentials, "service_account_email", None)
    person = getattr(credentials, "account", None)
    member = f"serviceAccount:{robot}" if robot else f"user:{person}" if person else None
    return Access(Transport(credentials, GOOGLE), member)


class TpuCloud:
    """`cloud.port.Cloud` over `TpuClient`; `access` is called once, before the first call."""

    def __init__(
        self,
        project: str,
        access: Callable[[], Access],
        *,
        ssh_port: int,
        patience: Patience,
        bucket: TokenBucket | None = None,
        at: Time | None = None,
    ) -> None:
        self.ssh_port = ssh_port
        self._project = project
        self._access = access
        self._patience = patience
        self._bucket = bucket
        self._at = at
        self._opening = threading.Lock()
        self._opened: tuple[tpu_v2.TpuClient, Caller] | None = None

    # ------------------------------------------------------------------------------------------------- looking

    def nodes(self, zone: str) -> tuple[Node, ...]:
        return tuple(wire.node_from(raw) for raw in self._list("list_nodes", "nodes", zone))

    def queued(self, zone: str) -> tuple[Queued, ...]:
        found = self._list("list_queued_resources", "queued_resources", zone)
        return tuple(wire.queued_from(raw) for raw in found)

    def host_keys(self, name: str, zone: str) -> Sequence[str | None]:
        query = {"name": self._node(zone, name), "query_path": "hostkeys/", "worker_ids": [""]}
        answer = self._call("get_guest_attributes", name, zone, query)
        return tuple(wire.host_key(worker) for worker in answer.guest_attributes)

    # ------------------------------------------------------------------------------------------------- changing

    def create(self, request: NodeRequest) -> Pending | None:
        ask = self._ask_queued if request.queued else self._ask_node
        asked = False

        def once() -> Pending | None:
            nonlocal asked
            if asked and self._is_there(request):
                return None  # the answer to the first asking was lost, not the asking
            if self._bucket:
                self._bucket.take()
            asked = True
            try:
                return ask(request)
            except AlreadyExists:
                if not self._is_there(request):
                    raise
                return None

        try:
            return self._persistently(once)
        except CloudUnreachable as error:
            if asked:
                error.hint = f"whether {request.name} was made is not known: run the same command again, which looks"
            raise

    def start(self, name: str, zone: str) -> Pending | None:
        try:
            raw = self._call("start_node", name, zone, {"name": self._node(zone, name)})
        except Conflict:
            if _state_of(self._find_node(name, zone)) in ("STARTING", "READY"):
                return None
            raise
        return self._pending(raw, name, zone)

    def delete(self, name: str, zone: str) -> Pending | None:
        return self._end("delete_node", {"name": self._node(zone, name)}, name, zone, self._find_node)

    def delete_queued(self, name: str, zone: str) -> Pending | None:
        asked = {"name": self._queued(zone, name), "force": True}
        return self._end("delete_queued_resource", asked, name, zone, self._find_queued)

    def update(
        self,
        name: str,
        zone: str,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Pending:
        asked = wire.changes(self._node(zone, name), labels, metadata)
        return self._pending(self._call("update_node", name, zone, asked), name, zone)

    def close(self) -> None:
        if self._opened:
            self._opened[0].transport.close()

    # --------------------------------------------------------------------------------------- one wish, one node

    def _ask_node(self, request: NodeRequest) -> Pending:
        asked = {
            "parent": self._zone(request.zone),
            "node_id": request.name,
            "node": wire.node_to_make(request, self._project),
        }
        return self._pending(self._once("create_node", request.name, request.zone, asked), request.name, request.zone)

    def _ask_queued(self, request: NodeRequest) -> Pending:
        """Google answers a request id that it knows with the operation of then, and makes nothing.

        So a name that was made, deleted, and is made anew within the hour needs another id: where the operation is
        done and the resource isn't there, this was an earlier life of the name, and the next id is tried. Should
        the resource only not be visible yet, the next id meets AlreadyExists: the name itself is never made twice.
        """
        for life in range(LIVES):
            asked = {
                "parent": self._zone(request.zone),
                "queued_resource_id": request.name,
                "queued_resource": wire.queued_to_make(request, self._project),
                "request_id": wire.request_id(request, self._project, life),
            }
            raw = self._once("create_queued_resource", request.name, request.zone, asked)
            if not raw.operation.done or self._is_there(request):
                return self._pending(raw, request.name, request.zone)
        raise Conflict(f"made and deleted {LIVES} times within the last hour", where=request.name, hint="wait an hour")

    def _is_there(self, request: NodeRequest) -> bool:
        """Whether what is asked for exists; raises AlreadyExists where another thing has its name."""
        if request.queued:
            return _same(self._find_queued(request.name, request.zone), request, wire.unlike_queued)
        return _same(self._find_node(request.name, request.zone), request, wire.unlike_node)

    def _end(
        self, method: str, asked: Mapping[str, Any], name: str, zone: str, find: Callable[[str, str], Any]
    ) -> Pending | None:
        """None when there is nothing to delete, or it is being deleted already (the first answer may be lost)."""
        try:
            return self._pending(self._call(method, name, zone, asked), name, zone)
        except NotFound:
            return None
        except Conflict:
            if _state_of(find(name, zone)) in (None, "DELETING"):
                return None
            raise

    # ------------------------------------------------------------------------------------------------- one call

    def _find_node(self, name: str, zone: str) -> Any:
        """The raw node, None where there is none. Asked once: who needs it to be sure tries the whole step again."""
        return self._find("get_node", name, zone, self._node(zone, name))

    def _find_queued(self, name: str, zone: str) -> Any:
        return self._find("get_queued_resource", name, zone, self._queued(zone, name))

    def _find(self, method: str, name: str, zone: str, full_name: str) -> Any:
        try:
            return self._once(method, name, zone, {"name": full_name})
        except NotFound:
            return None

    def _list(self, method: str, field: str, zone: str) -> list[Any]:
        """All pages. A zone that Google itself couldn't reach is an error: nothing is known of it."""

        def once() -> list[Any]:
            pages = list(self._once(method, zone, zone, {"parent": self._zone(zone)}, lambda pager: list(pager.pages)))
            if unheard := sorted({wire.short(one) for page in pages for one in page.unreachable}):
                raise CloudUnreachable(
                    f"Google does not reach {', '.join(unheard)}", where=zone, hint="try again later"
                )
            return [raw for page in pages for raw in getattr(page, field)]

        return self._persistently(once)

    def _call(self, method: str, subject: str, zone: str, asked: Mapping[str, Any]) -> Any:
        return self._persistently(lambda: self._once(method, subject, zone, asked))

    def _once(
        self, method: str, subject: str, zone: str, asked: Mapping[str, Any], then: Callable[[Any], Any] | None = None
    ) -> Any:
        client, caller = self._open()

        def call() -> Any:
            answer = getattr(client, method)(dict(asked), timeout=TIMEOUT_S, retry=None)
            return then(answer) if then else answer

        return answered(call, caller, subject, zone)

    def _persistently(self, call: Callable[[], T]) -> T:
        return persistently(call, self._patience, self._at)

    def _open(self) -> tuple[tpu_v2.TpuClient, Caller]:
        with self._opening:
            if self._opened is None:
                access = self._access()
                caller = Caller(self._project, access.member)
                self._opened = tpu_v2.TpuClient(transport=access.transport), caller
            return self._opened

    def _pending(self, started: Any, subject: str, zone: str) -> Operation:
        """The operation by its name, asked about with our own time-out and retry rather than the future's."""
        name = str(started.operation.name)
        look = functools.partial(self._call, "get_operation", subject, zone, {"name": name})
        return Operation(name, look, subject, self._project, zone)

    def _zone(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _node(self, zone: str, name: str) -> str:
        return f"{self._zone(zone)}/nodes/{name}"

    def _queued(self, zone: str, name: str) -> str:
        return f"{self._zone(zone)}/queuedResources/{name}"


class Operation:
    """A long-running operation; `look` asks the API for its present state."""

    def __init__(self, name: str, look: Callable[[], Any], subject: str, project: str, zone: str) -> None:
        self.name = name
        self._look = look
        self._subject = subject
        self._project = project
        self._zone = zone

    def finished(self) -> bool:
        state = self._look()
        if not state.done:
            return False
        code, text = int(state.error.code), str(state.error.message)
        if code == code_pb2.DEADLINE_EXCEEDED:
            raise timed_out(text, self._subject)
        if code:
            status = code_pb2.Code.Name(code) if code in code_pb2.Code.values() else "UNKNOWN"
            details = wire.details_of(state.error)
            raise classify(status, text, self._subject, details=details, project=self._project, zone=self._zone)
        return True


def _same(raw: Any, request: NodeRequest, unlike: Callable[[Any, NodeRequest], str | None]) -> bool:
    """Whether what is there is what is asked for; False when nothing is there, AlreadyExists when another is."""
    if raw is None:
        return False
    if difference := unlike(raw, request):
        raise AlreadyExists(
            f"there is one of this name already in {request.zone}: {difference}",
            where=request.name,
            hint="use another name in the file, or delete the other one",
        )
    return True


def _state_of(raw: Any) -> str | None:
    """The state's name of a node or queued resource; None where there is none."""
    state = getattr(raw, "state", None)
    state = getattr(state, "state", state)
    return None if state is None else str(getattr(state, "name", "UNKNOWN"))
