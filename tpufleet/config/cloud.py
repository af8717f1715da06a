"""Pure: what a fleet file may have wrong in `cloud` and `nodes`, for each provider what it needs and can't use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tpufleet.accelerators import lookup
from tpufleet.config.lists import twins
from tpufleet.config.marks import Finding, Path
from tpufleet.config.scopes import SHORT, full_scope
from tpufleet.errors import UsageError
from tpufleet.model import CloudSpec, InventoryHost, NodePool, Provider, Spec
from tpufleet.names import NodeName, shown

MAX_COUNT = 500  # nodes of one pool: more than any project's quota
MAX_CREATE_S = 600.0
LABEL_OWNERS = {"tpufleet": "tpufleet", "goog": "Google"}
MAX_LABELS = 60  # Google Cloud takes 64, of which some are ours
RUNTIME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
HOST_KEY = re.compile(r"(?:ssh-ed25519|ecdsa-sha2-nistp(?:256|384|521)|ssh-rsa) AAAA[A-Za-z0-9+/]+={0,2}(?: [^\n]*)?")
ZONE_OF = re.compile(r"(?:.*/)?zones/([^/]+)/disks/[^/]+")
GOOGLES_OWN = ("project", "network", "subnetwork", "external_ips", "service_account", "scopes", "trc")


def findings_about_cloud(spec: Spec) -> Iterator[Finding]:
    """What is wrong with `cloud` and `nodes`, each by itself and both together."""
    if spec.cloud.provider is Provider.INVENTORY:
        yield from _inventory(spec)
    else:
        yield from _made(spec)
    yield from twins(("cloud", "zones"), spec.cloud.zones)
    yield from _emulator(spec.cloud)
    for index, pool in enumerate(spec.nodes):
        yield from _pool(("nodes", index), pool)
        yield from _disk(("nodes", index, "data_disk"), pool, spec.cloud)
    yield from twins(("nodes",), [pool.name for pool in spec.nodes], "name")


# ----------------------------------------------------------------------------------------------------------- cloud


def _made(spec: Spec) -> Iterator[Finding]:
    """A cloud whose nodes tpufleet makes."""
    cloud = spec.cloud
    if cloud.provider is Provider.GCP and cloud.project is None:
        yield Finding(("cloud", "provider"), "the provider gcp needs a `project`", "gcloud projects list shows yours")
    if cloud.provider is Provider.GCP and not cloud.zones:
        path = ("cloud", "zones") if cloud.project else ("cloud", "provider")
        yield Finding(path, "the provider gcp needs `zones`", "for v2-8: zones: [us-central1-b, us-central1-c]")
    if cloud.hosts:
        yield Finding(("cloud", "hosts"), "`hosts` are for `provider: inventory`", at_key=True)
    if not spec.nodes and not cloud.hosts:
        yield Finding(("nodes",), "the fleet file needs `nodes`, at least one", "- {name: tpu, accelerator: v2-8}")
    for index, scope in enumerate(cloud.scopes):
        try:
            full_scope(scope)
        except ValueError as error:
            hint = f"use {', '.join(list(SHORT)[:2])}, storage-rw … or an address in full"
            yield Finding(("cloud", "scopes", index), str(error), hint)
    yield from twins(("cloud", "scopes"), cloud.scopes)


def _emulator(cloud: CloudSpec) -> Iterator[Finding]:
    for index, directory in enumerate(cloud.emulator.path):
        if not directory or ":" in directory or "\n" in directory:
            yield Finding(("cloud", "emulator", "path", index), f"{shown(directory)} can't be a directory on PATH")
    if not 0 <= cloud.emulator.create_seconds <= MAX_CREATE_S:
        yield Finding(("cloud", "emulator", "create_seconds"), f"`create_seconds` must be from 0 to {MAX_CREATE_S:g}")


# ------------------------------------------------------------------------------------------------------- inventory


def _inventory(spec: Spec) -> Iterator[Finding]:
    """Hosts that are there already: nothing is made, so whatever says how to make it can't be meant."""
    cloud, nothing = spec.cloud, CloudSpec()
    for key in ("zones", *GOOGLES_OWN):
        if getattr(cloud, key) != getattr(nothing, key):
            yield Finding(("cloud", key), f"`{key}` is of no use with the provider inventory", "leave it out", True)
    if spec.nodes:
        hint = "list the hosts in `cloud.hosts`"
        yield Finding(("nodes",), "the provider inventory makes no `nodes`", hint, at_key=True)
    if not cloud.hosts and not spec.nodes:
        hint = "hosts: [{name: tpu-0, address: 192.0.2.7, accelerator: v3-8}]"
        yield Finding(("cloud", "provider"), "the provider inventory needs `cloud.hosts`", hint)
    for index, host in enumerate(cloud.hosts):
        yield from _host(("cloud", "hosts", index), host)
    yield from twins(("cloud", "hosts"), [host.name for host in cloud.hosts], "name")
    places = [f"{host.address}:{host.port}" for host in cloud.hosts]
    yield from twins(("cloud", "hosts"), places, "address")


def _host(path: Path, host: InventoryHost) -> Iterator[Finding]:
    try:
        lookup(host.accelerator)
    except UsageError as error:
        yield Finding((*path, "accelerator"), error.message, error.hint)
    if not 1 <= host.port <= 65535:
        yield Finding((*path, "port"), f"`port` must be from 1 to 65535, not {host.port}")
    if host.host_key is not None and not HOST_KEY.fullmatch(host.host_key):
        hint = "a line such as ssh-ed25519 AAAA…; the host has it in /etc/ssh/ssh_host_ed25519_key.pub"
        yield Finding((*path, "host_key"), f"{shown(host.host_key)} is not a public SSH key", hint)


# ----------------------------------------------------------------------------------------------------------- nodes


def _pool(path: Path, pool: NodePool) -> Iterator[Finding]:
    try:
        lookup(pool.accelerator)
    except UsageError as error:
        yield Finding((*path, "accelerator"), error.message, error.hint)
    if not 1 <= pool.count <= MAX_COUNT:
        yield Finding((*path, "count"), f"`count` must be from 1 to {MAX_COUNT}, not {pool.count}")
    elif not NodeName.pattern.fullmatch(f"{pool.name}-{pool.count - 1}"):
        yield Finding(
            (*path, "name"), f"`name`: with its numbers {shown(pool.name)} is longer than a node's name can be"
        )
    if pool.runtime is not None and not RUNTIME.fullmatch(pool.runtime):
        yield Finding(
            (*path, "runtime"), f"{shown(pool.runtime)} is not a runtime version", "such as tpu-ubuntu2204-base"
        )
    yield from _times(path, pool)
    yield from _labels((*path, "labels"), pool)
    if pool.startup_script is not None and not is_inside(pool.startup_script):
        sentence = f"`startup_script` must be beside the fleet file or below, unlike {shown(pool.startup_script)}"
        yield Finding((*path, "startup_script"), sentence)


def _times(path: Path, pool: NodePool) -> Iterator[Finding]:
    for key, duration in (("valid_until", pool.valid_until), ("ttl", pool.ttl)):
        if duration is not None and not duration.seconds:
            yield Finding((*path, key), f"`{key}` must be longer than nothing", "such as 8h")
    if pool.valid_until is not None and not pool.queued:
        yield Finding((*path, "valid_until"), "`valid_until` is for queued nodes", "add queued: true", at_key=True)


def _labels(path: Path, pool: NodePool) -> Iterator[Finding]:
    for key in pool.labels:
        owner = next((owner for prefix, owner in LABEL_OWNERS.items() if key.startswith(prefix)), None)
        if owner:
            yield Finding(
                (*path, key), f"the label {key} is {owner}'s own", "choose one that begins otherwise", at_key=True
            )
    if len(pool.labels) > MAX_LABELS:
        yield Finding(path, f"a node can have {MAX_LABELS} labels, not {len(pool.labels)}")


def _disk(path: Path, pool: NodePool, cloud: CloudSpec) -> Iterator[Finding]:
    """A disk is in one zone, and so are the nodes that it can be attached to."""
    if pool.data_disk is None:
        return
    zones = set(cloud.zones)
    in_full = ZONE_OF.fullmatch(pool.data_disk)
    if "/" in pool.data_disk and not in_full:
        sentence = f"{shown(pool.data_disk)} is not a disk's name"
        yield Finding(path, sentence, "text, or projects/my-project/zones/us-central1-b/disks/text")
    elif in_full and zones != {in_full[1]}:
        yield Finding(path, f"the disk is in {in_full[1]}", f"it needs the one zone there: zones: [{in_full[1]}]")
    elif len(zones) > 1:
        yield Finding(path, "a disk is in one zone, and `cloud.zones` has several", "leave only the disk's")


def is_inside(path: str) -> bool:
    """Whether a relative path, or a pattern of paths, stays below where it starts."""
    return (
        bool(path)
        and not path.startswith(("/", "~", "-"))
        and not any(ord(character) < 32 for character in path)
        and ".." not in PurePosixPath(path).parts
    )


def largest_host(spec: Spec) -> int | None:
    """The chips of the largest host; None when there is none or a type is unknown, which is told elsewhere."""
    names = [item.accelerator for item in (*spec.nodes, *spec.cloud.hosts)]
    try:
        return max((lookup(name).chips_per_host for name in names), default=None)
    except UsageError:
        return None
