"""What a host's metadata server tells it of itself: its node, its place in it, its service account.

Source: Google's "Predefined VM metadata keys", and the attributes that Cloud TPU sets on its VMs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tpufleet.emulator.metadata import Document, Tree
from tpufleet.emulator.nodes import TPU_PORT, NodeRecord
from tpufleet.emulator.wire import Json, project_number

TOKEN_S = 3599
TOKEN_PREFIX = "rehearsal-"  # noqa: S105 - says whose a token is, opens nothing


def values_of(node: NodeRecord, host: str, worker: int, project_metadata: Mapping[str, str]) -> Tree:
    """The tree of one host of `node`."""
    resource = node.wire()
    return {
        "instance": {
            "id": resource["id"],
            "name": host,
            "hostname": f"{host}.{node.zone}.c.{node.project}.internal",
            "zone": f"projects/{project_number(node.project)}/zones/{node.zone}",
            "attributes": _attributes(node, worker),
            "tags": json.dumps(resource.get("tags", [])),
            "network-interfaces": {"0": _interface(resource, worker)},
            "service-accounts": _service_accounts(node),
            "maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE" if worker in node.maintenance else "NONE",
            "preempted": _flag(node.state == "PREEMPTED"),
            "scheduling": {
                "automatic-restart": _flag(not node.use.spot),
                "on-host-maintenance": "TERMINATE",
                "preemptible": _flag(node.use.spot),
            },
        },
        "project": {
            "project-id": node.project,
            "numeric-project-id": project_number(node.project),
            "attributes": dict(project_metadata),
        },
    }


def _flag(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _attributes(node: NodeRecord, worker: int) -> dict[str, str]:
    """The node's metadata, and what Cloud TPU adds for each worker."""
    config = node.resource["acceleratorConfig"]
    node_id = node.name.rpartition("/")[2]
    environment = {
        "ACCELERATOR_TYPE": node.accelerator.name,
        "TYPE": config["type"],
        "TOPOLOGY": config["topology"],
        "WORKER_ID": str(worker),
        "NODE_ID": node_id,
        "ZONE": node.zone,
        "CONSUMER_PROJECT_ID": node.project,
        "RUNTIME_VERSION": node.resource["runtimeVersion"],
    }
    addresses = [node.address(one) for one in range(node.accelerator.hosts)] if node.number else []
    return {
        **node.metadata,
        "accelerator-type": node.accelerator.name,
        "agent-worker-number": str(worker),
        "instance-id": node_id,
        "tpu-env": "".join(f"{name}: '{value}'\n" for name, value in environment.items()),
        "worker-network-endpoints": ",".join(f"{ip}:{TPU_PORT}:{ip}" for ip in addresses),
    }


def _interface(resource: Json, worker: int) -> Tree:
    """The first network interface; one without an external address has an empty one, as on Compute Engine."""
    networks = len(resource.get("networkConfigs", [])) or 1
    ends: list[Json] = resource.get("networkEndpoints", [])[worker * networks :][:1]
    address = ends[0]["ipAddress"] if ends else ""
    external = ends[0].get("accessConfig", {}).get("externalIp", "") if ends else ""
    return {"ip": address, "access-configs": {"0": {"external-ip": external, "type": "ONE_TO_ONE_NAT"}}}


def _service_accounts(node: NodeRecord) -> Tree:
    """The account under its address and as `default`; empty (so 404 below it) for a node without one."""
    account: Json | None = node.resource.get("serviceAccount")
    if not account:
        return {}
    token = {"access_token": token_of(node), "expires_in": TOKEN_S, "token_type": "Bearer"}
    entry = {
        "aliases": "default\n",
        "email": account["email"],
        "scopes": "".join(f"{scope}\n" for scope in account["scope"]),
        "token": Document(token),
    }
    return {"default": entry, account["email"]: entry}


def token_of(node: NodeRecord) -> str:
    """The access token of a node's hosts; the API knows by it which scopes the caller has. Worth nothing elsewhere."""
    return f"{TOKEN_PREFIX}{node.resource['id']}"
