"""The wish for a node, with all that the file says of it, as the cloud gets it."""

from __future__ import annotations

from tpufleet import labels
from tpufleet.actions import CreateNode
from tpufleet.cloud.port import NodeRequest
from tpufleet.model import NodePool
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.startup import startup_script

SCOPE = "https://www.googleapis.com/auth/"
DEFAULT_SCOPES = ("cloud-platform",)  # fixed at creation; Google's default can only read storage


def node_request(fleet: Fleet, action: CreateNode, zone: str, key_line: str) -> NodeRequest:
    """`key_line` is the operator's public key; the node's hosts make an account with it. Raises UsageError."""
    pool, cloud = action.pool, fleet.spec.cloud
    return NodeRequest(
        name=action.name,
        zone=zone,
        accelerator=pool.accelerator,
        runtime=pool.runtime or pool.type.runtime,
        spot=pool.spot,
        labels=_labels(fleet, pool),
        metadata=_metadata(fleet, pool, key_line),
        network=cloud.network,
        subnetwork=cloud.subnetwork,
        external_ips=cloud.external_ips,
        service_account=cloud.service_account,
        scopes=tuple(word if "/" in word else SCOPE + word for word in cloud.scopes or DEFAULT_SCOPES),
        data_disk=_data_disk(pool, fleet, zone),
        disk_is_shared=pool.count > 1,
        queued=pool.queued,
        valid_s=pool.valid_until.seconds if pool.valid_until else None,
    )


def _labels(fleet: Fleet, pool: NodePool) -> dict[str, str]:
    ours = {labels.FLEET: str(fleet.spec.fleet), labels.POOL: str(pool.name)}
    if pool.ttl:
        ours[labels.TTL] = f"{pool.ttl.seconds:.0f}"
    return {**{str(key): str(value) for key, value in pool.labels.items()}, **ours}


def _metadata(fleet: Fleet, pool: NodePool, key_line: str) -> dict[str, str]:
    own = (fleet.paths.directory / pool.startup_script).read_bytes() if pool.startup_script else None
    return {
        "ssh-keys": f"{fleet.spec.ssh.user}:{key_line}",
        "enable-guest-attributes": "TRUE",
        "startup-script": startup_script(own, keeps_ttl=pool.ttl is not None),
    }


def _data_disk(pool: NodePool, fleet: Fleet, zone: str) -> str | None:
    if pool.data_disk is None or "/" in pool.data_disk:
        return pool.data_disk
    return f"projects/{fleet.spec.cloud.project}/zones/{zone}/disks/{pool.data_disk}"
