"""The Cloud TPU API through Google's own client over REST; the only module that imports it.

The same code speaks to Google and to the rehearsal cloud; only endpoint and credentials differ. Every call has a
time-out and an explicit retry, since the client's own default for both is "none". The API is in maintenance mode
(v2 to v6e), which is why it stays behind `cloud.port`.
"""

# Google's client and its libraries are only partly typed: what comes out of them is `Any` until `_node` names it.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import requests.exceptions
from google.api_core import exceptions as google_errors
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports.rest import TpuRestTransport

from tpufleet.cloud.classify import classify
from tpufleet.cloud.port import FLEET_LABEL, NodeRequest, Pending
from tpufleet.errors import CloudError, CloudUnreachable, Conflict, NotFound, PermissionDenied
from tpufleet.model import Node, NodeState

TIMEOUT_S = 30.0
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]  # fixed at creation; the default can only read storage
TRANSIENT = (
    google_errors.TooManyRequests,
    google_errors.ServiceUnavailable,
    google_errors.BadGateway,
    google_errors.GatewayTimeout,
    google_errors.InternalServerError,
)
SPELLED_STATUS = {  # where the answer carries no google.rpc.Code of its own
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
RPC_CODES = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED"} | {
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
}


def google(project: str) -> TpuCloud:
    """The real thing, with application-default credentials; raises PermissionDenied when there are none."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        credentials, _ = cast("tuple[Credentials, str | None]", google.auth.default(scopes=SCOPES))
    except DefaultCredentialsError as error:
        raise PermissionDenied(
            "no Google credentials were found", hint="gcloud auth application-default login"
        ) from error
    return TpuCloud(project, TpuRestTransport(credentials=credentials), ssh_port=22, patience_s=60)


def rehearsal(project: str, url: str, ssh_port: int) -> TpuCloud:
    """The emulator at `url` (http://127.0.0.1:PORT)."""
    host = url.removeprefix("http://")
    transport = TpuRestTransport(host=host, url_scheme="http", credentials=AnonymousCredentials())
    return TpuCloud(project, transport, ssh_port=ssh_port, patience_s=5)


class TpuCloud:
    """`cloud.port.Cloud` over `TpuClient`. `patience_s` bounds the retries of one call."""

    def __init__(self, project: str, transport: TpuRestTransport, *, ssh_port: int, patience_s: float) -> None:
        self.ssh_port = ssh_port
        self._parent = f"projects/{project}/locations"
        self._client = tpu_v2.TpuClient(transport=transport)
        self._options: dict[str, Any] = {
            "timeout": TIMEOUT_S,
            "retry": Retry(
                predicate=lambda error: isinstance(error, TRANSIENT),
                initial=0.3,
                maximum=10.0,
                timeout=patience_s,
            ),
        }

    def nodes(self, zone: str) -> tuple[Node, ...]:
        def call() -> list[Any]:
            return list(self._client.list_nodes(parent=f"{self._parent}/{zone}", **self._options))

        return tuple(_node(raw, zone) for raw in _asked(call, zone))

    def create(self, request: NodeRequest) -> Pending | None:
        def call() -> Any:
            return self._client.create_node(
                parent=f"{self._parent}/{request.zone}",
                node=_wire(request),
                node_id=request.name,
                **self._options,
            )

        try:
            return self._pending(_asked(call, request.name), request.name)
        except Conflict:
            # CreateNode has no request id: a create whose answer was lost shows up here, as our own node.
            if not self._is_ours(request):
                raise
            return None

    def start(self, name: str, zone: str) -> Pending:
        request = tpu_v2.StartNodeRequest(name=self._name(zone, name))
        return self._pending(_asked(lambda: self._client.start_node(request, **self._options), name), name)

    def delete(self, name: str, zone: str) -> Pending | None:
        def call() -> Any:
            return self._client.delete_node(name=self._name(zone, name), **self._options)

        try:
            return self._pending(_asked(call, name), name)
        except NotFound:
            return None

    def host_keys(self, name: str, zone: str) -> Sequence[str | None]:
        request = tpu_v2.GetGuestAttributesRequest(name=self._name(zone, name), query_path="hostkeys/", worker_ids=[""])
        answer = _asked(lambda: self._client.get_guest_attributes(request, **self._options), name)
        return tuple(_host_key(worker) for worker in answer.guest_attributes)

    def queued_resources(self, zone: str) -> tuple[str, ...]:
        def call() -> list[Any]:
            return list(self._client.list_queued_resources(parent=f"{self._parent}/{zone}", **self._options))

        return tuple(str(raw.name).rpartition("/")[2] for raw in _asked(call, zone))

    def close(self) -> None:
        self._client.transport.close()

    def _name(self, zone: str, node: str) -> str:
        return f"{self._parent}/{zone}/nodes/{node}"

    def _pending(self, started: Any, subject: str) -> Operation:
        """The operation by its name, asked about with our own time-out and retry rather than the future's."""
        request = {"name": str(started.operation.name)}
        return Operation(lambda: self._client.get_operation(request, **self._options), subject)

    def _is_ours(self, request: NodeRequest) -> bool:
        found = next((node for node in self.nodes(request.zone) if node.name == request.name), None)
        return (
            found is not None
            and found.accelerator == request.accelerator
            and found.labels.get(FLEET_LABEL) == request.labels[FLEET_LABEL]
        )


class Operation:
    """A long-running operation; `look` asks the API for its present state."""

    def __init__(self, look: Callable[[], Any], subject: str) -> None:
        self._look = look
        self._subject = subject

    def finished(self) -> bool:
        state = _asked(self._look, self._subject)
        if not state.done:
            return False
        if state.error.code:
            raise classify(RPC_CODES.get(state.error.code, "UNKNOWN"), state.error.message, self._subject)
        return True


def _asked(call: Callable[[], Any], subject: str) -> Any:
    """`call()`, its failure turned into one of ours; both families of errors surface over REST."""
    try:
        return call()
    except google_errors.RetryError as error:
        cause = error.cause
        if isinstance(cause, google_errors.GoogleAPICallError):
            raise _meaning(cause, subject) from error
        raise CloudUnreachable(str(error), where=subject, hint="run the same command again") from error
    except google_errors.GoogleAPICallError as error:
        raise _meaning(error, subject) from error
    except requests.exceptions.RequestException as error:
        raise CloudUnreachable("the Cloud TPU API does not answer", where=subject, hint="tpufleet doctor") from error


def _meaning(error: google_errors.GoogleAPICallError, subject: str) -> CloudError:
    """By the answer's body where it has one, since 409 alone can be two things; else by the HTTP code."""
    response: Any = error.response
    try:
        said = response.json()["error"]
        return classify(str(said["status"]), str(said["message"]), subject)
    except (AttributeError, KeyError, TypeError, ValueError):
        return classify(SPELLED_STATUS.get(int(error.code or 0), "UNKNOWN"), error.message or str(error), subject)


def _wire(request: NodeRequest) -> tpu_v2.Node:
    return tpu_v2.Node(
        accelerator_type=request.accelerator,
        runtime_version=request.runtime,
        labels=dict(request.labels),
        metadata=dict(request.metadata),
        network_config=tpu_v2.NetworkConfig(enable_external_ips=True),
        scheduling_config=tpu_v2.SchedulingConfig(spot=request.spot),
        service_account=tpu_v2.ServiceAccount(scope=SCOPES),
    )


def _node(raw: Any, zone: str) -> Node:
    state = str(raw.state.name)
    return Node(
        name=str(raw.name).rpartition("/")[2],
        zone=zone,
        accelerator=str(raw.accelerator_type),
        state=NodeState(state) if state in NodeState.__members__ else NodeState.UNKNOWN,
        health=str(raw.health.name),
        uid=str(raw.id),
        addresses=tuple(str(end.access_config.external_ip or end.ip_address) for end in raw.network_endpoints),
        labels=dict(raw.labels),
        created=raw.create_time.rfc3339() if raw.create_time else None,
        spot=bool(raw.scheduling_config.spot or raw.scheduling_config.preemptible),
    )


def _host_key(worker: Any) -> str | None:
    keys = {str(item.key): str(item.value) for item in worker.query_value.items}
    return f"ssh-ed25519 {keys['ssh-ed25519']}" if "ssh-ed25519" in keys else None
