"""The fleet file: what each provider needs, what it can't use, and what says how a node is made and reached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.test_config_errors import BASE, refusal
from tpufleet.config.load import MAX_SCRIPT_BYTES, load
from tpufleet.config.scopes import SHORT, full_scope
from tpufleet.model import Provider, Spec
from tpufleet.names import LabelKey

GOOGLE = BASE + "cloud: {provider: gcp, project: my-project, zones: [us-central1-b]}\n"  # line 5
HOSTS = """\
fleet: sherlock
cloud:
  provider: inventory
  hosts:
    - name: tpu-0
      accelerator: v3-8
      address: 192.0.2.7
"""  # seven lines
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def loaded(directory: Path, text: str) -> Spec:
    (directory / "tpufleet.yaml").write_text(text)
    return load(directory / "tpufleet.yaml")


CASES = {
    "no nodes": ("fleet: x\n", "1:1", "the fleet file needs `nodes`, at least one"),
    "no nodes for google": (
        "fleet: x\ncloud: {provider: gcp, project: my-project, zones: [us-central1-b]}\n",
        "1:1",
        "needs `nodes`",
    ),
    "hosts in a cloud": (HOSTS.replace("inventory", "emulator"), "4:3", "`hosts` are for `provider: inventory`"),
    "an inventory of nothing": ("fleet: x\ncloud: {provider: inventory}\n", "2:19", "needs `cloud.hosts`"),
    "an inventory with nodes": (
        HOSTS + "nodes: [{name: a, accelerator: v2-8}]\n",
        "8:1",
        "makes no `nodes` → list the hosts in `cloud.hosts`",
    ),
    "an inventory in a project": (HOSTS + "  project: my-project\n", "8:3", "`project` is of no use with the provider"),
    "an inventory in a zone": (HOSTS + "  zones: [us-central1-b]\n", "8:3", "`zones` is of no use"),
    "an inventory under a grant": (HOSTS + "  trc: true\n", "8:3", "`trc` is of no use"),
    "an inventory without external addresses": (HOSTS + "  external_ips: false\n", "8:3", "is of no use"),
    "a key of a host misspelt": (
        HOSTS + "      usr: me\n",
        "8:7",
        "not a key of a host of `cloud.hosts` → did you mean",
    ),
    "a host's address": (HOSTS.replace("192.0.2.7", "-oProxyCommand=x"), "7:16", "must be a host's name or its IP"),
    "a host's type": (HOSTS.replace("v3-8", "v9"), "6:20", "there is no accelerator type 'v9'"),
    "a host's user": (HOSTS + "      user: A B\n", "8:13", "`user`: 'A B' must be a Linux user name"),
    "a host's port": (HOSTS + "      port: 70000\n", "8:13", "`port` must be from 1 to 65535, not 70000"),
    "a host key of another type": (HOSTS + "      host_key: ssh-dss AAAA\n", "8:17", "is not a public SSH key"),
    "a private key as host key": (HOSTS + "      host_key: '-----BEGIN'\n", "8:17", "is not a public SSH key"),
    "a host twice": (HOSTS + "    - {name: tpu-0, address: b, accelerator: v3-8}\n", "8:14", "'tpu-0' is here twice"),
    "an address twice": (
        HOSTS + "    - {name: tpu-1, address: 192.0.2.7, accelerator: v3-8}\n",
        "8:30",
        "'192.0.2.7:22' is here twice",
    ),
    "more chips than a listed host has": (
        HOSTS + "jobs: {a: {command: [x], chips: 8}}\n",
        "8:33",
        "more than the fleet's hosts have (4)",
    ),
    "a scope": (
        BASE + "cloud: {scopes: [cloud-platform, all]}\n",
        "5:34",
        "'all' is not a scope → use bigquery, cloud-platform, storage-rw",
    ),
    "a scope elsewhere": (BASE + "cloud: {scopes: ['https://evil/auth/x']}\n", "5:18", "is not a scope"),
    "a time to wait without a queue": (BASE + "    valid_until: 2h\n", "5:5", "is for queued nodes → add queued: true"),
    "a queue for no time": (BASE + "    queued: true\n    valid_until: 0s\n", "6:18", "must be longer than nothing"),
    "a life of no time": (BASE + "    ttl: 0h\n", "5:10", "`ttl` must be longer than nothing"),
    "a label of ours": (BASE + "    labels: {tpufleet: x}\n", "5:14", "the label tpufleet is tpufleet's own"),
    "a label of Google's": (BASE + "    labels: {goog-x: a}\n", "5:14", "the label goog-x is Google's own"),
    "labels without end": (
        BASE + "    labels: {" + ", ".join(f"l{n}: a" for n in range(61)) + "}\n",
        "5:13",
        "a node can have 60 labels, not 61",
    ),
    "a disk in one of several zones": (
        BASE + "    data_disk: text\ncloud: {zones: [us-central1-b, us-central1-c]}\n",
        "5:16",
        "a disk is in one zone, and `cloud.zones` has several",
    ),
    "a disk in another zone": (
        BASE + "    data_disk: projects/p/zones/us-east1-d/disks/text\ncloud: {zones: [us-central1-b]}\n",
        "5:16",
        "the disk is in us-east1-d → it needs the one zone there: zones: [us-east1-d]",
    ),
    "a disk that is none": (BASE + "    data_disk: a/b\n", "5:16", "'a/b' is not a disk's name"),
    "a script elsewhere": (BASE + "    startup_script: ../x.sh\n", "5:21", "must be beside the fleet file or below"),
    "a script that is not there": (BASE + "    startup_script: x.sh\n", "5:21", "'x.sh' is not there"),
    "a script that is a directory": (BASE + "    startup_script: .\n", "5:21", "'.' is not a file"),
    "a key that is no path": (BASE + 'ssh: {key: "a\\nb"}\n', "5:12", "must be the path of a private key"),
    "a jump host that is an option": (BASE + "ssh: {jump: -oProxyCommand=x}\n", "5:13", "not a host to jump through"),
    "a jump host and a command": (BASE + "ssh: {jump: 'a b'}\n", "5:13", "'a b' is not a host to jump through"),
    "a jump host for a shell": (BASE + "ssh: {jump: 'a;id'}\n", "5:13", "not a host to jump through"),
    "two jump hosts": (BASE + "ssh: {jump: 'a,b'}\n", "5:13", "not a host to jump through"),
    "a user that is an option": (BASE + "ssh: {jump: -l@a}\n", "5:13", "not a host to jump through"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_with_a_cloud_is_told_with_its_place(tmp_path: Path, case: str) -> None:
    text, place, words = CASES[case]
    error = refusal(tmp_path, text)
    said = f"{error.message} → {error.hint}"
    assert (error.where, words in said) == (f"{tmp_path}/tpufleet.yaml:{place}", True), said


def test_hosts_are_all_an_inventory_needs(tmp_path: Path) -> None:
    text = (
        HOSTS
        + f"      user: ubuntu\n      port: 2222\n      host_key: {ED25519} root@tpu\nssh: {{jump: me@bastion:22}}\n"
    )
    spec = loaded(tmp_path, text)
    (host,) = spec.cloud.hosts
    assert (host.name, host.address, host.user, host.port) == ("tpu-0", "192.0.2.7", "ubuntu", 2222)
    assert host.host_key == f"{ED25519} root@tpu"
    assert (spec.cloud.provider, spec.cloud.zones, spec.nodes) == (Provider.INVENTORY, ("inventory",), ())


@pytest.mark.parametrize("address", ["tpu.example.org", "192.0.2.7", "2001:db8::7"])
def test_an_address_may_be_a_name_or_of_either_kind(tmp_path: Path, address: str) -> None:
    assert loaded(tmp_path, HOSTS.replace("192.0.2.7", f"'{address}'")).cloud.hosts[0].address == address


def test_two_hosts_may_share_an_address_by_their_ports(tmp_path: Path) -> None:
    text = HOSTS + "    - {name: tpu-1, address: 192.0.2.7, port: 2222, accelerator: v3-8}\n"
    assert [host.port for host in loaded(tmp_path, text).cloud.hosts] == [22, 2222]


def test_the_key_of_every_kind_of_host_can_be_written(tmp_path: Path) -> None:
    for kind in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"):
        text = HOSTS + f"      host_key: {kind} AAAAB3Nz/+9=\n"
        assert loaded(tmp_path, text).cloud.hosts[0].host_key


def test_a_node_says_how_it_is_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("#!/bin/sh\n")
    more = """\
    queued: true
    valid_until: 90m
    ttl: 2d
    labels: {team: nlp, empty: ""}
    data_disk: projects/my-project/zones/us-central1-b/disks/text
    startup_script: setup.sh
"""
    (pool,) = loaded(tmp_path, GOOGLE.replace("cloud:", more + "cloud:")).nodes
    assert pool.valid_until is not None and pool.ttl is not None
    assert (pool.queued, pool.valid_until.seconds, pool.ttl.seconds) == (True, 5400, 172800)
    assert (pool.labels[LabelKey("team")], pool.labels[LabelKey("empty")]) == ("nlp", "")
    assert (pool.data_disk, pool.startup_script) == ("projects/my-project/zones/us-central1-b/disks/text", "setup.sh")


def test_short_scopes_arrive_in_full_and_there_is_always_one(tmp_path: Path) -> None:
    prefix = "https://www.googleapis.com/auth/"
    text = GOOGLE.replace("]}", f"], scopes: [storage-rw, {prefix}bigquery]}}")
    assert loaded(tmp_path, text).cloud.scopes == (f"{prefix}devstorage.read_write", f"{prefix}bigquery")
    assert loaded(tmp_path, GOOGLE).cloud.scopes == (f"{prefix}cloud-platform",)
    assert all(full_scope(full_scope(short)) == full_scope(short) for short in SHORT)


def test_the_rehearsal_cloud_takes_what_google_takes(tmp_path: Path) -> None:
    keys = "network: default, subnetwork: projects/p/regions/r/subnetworks/s, external_ips: false, trc: true"
    cloud = loaded(tmp_path, BASE + f"cloud: {{{keys}, service_account: a@p.iam.gserviceaccount.com}}\n").cloud
    assert (cloud.network, cloud.external_ips, cloud.trc) == ("default", False, True)


def test_a_script_below_is_found_from_the_fleet_files_directory_and_not_from_here(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "x.sh").write_text("echo ü\n")
    assert loaded(tmp_path, BASE + "    startup_script: scripts/x.sh\n").nodes[0].startup_script == "scripts/x.sh"


@pytest.mark.parametrize(
    ("content", "words"), [(b"\xff", "not UTF-8 text"), (b"#" * (MAX_SCRIPT_BYTES + 1), "larger than 256 KiB")]
)
def test_a_script_that_metadata_cannot_hold_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.sh").write_bytes(content)
    assert words in refusal(tmp_path, BASE + "    startup_script: x.sh\n").message


def test_a_script_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "x.sh").write_text("")
    (tmp_path / "fleet" / "x.sh").symlink_to(tmp_path / "x.sh")
    assert "leads out of" in refusal(tmp_path / "fleet", BASE + "    startup_script: x.sh\n").message


def test_a_script_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.sh")
    assert "is not a file" in refusal(tmp_path, BASE + "    startup_script: x.sh\n").message
