"""What a host does by itself: its startup script at each boot, with its node's identity and the way to the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .rig import PARENT, Rig, Shell, is_alive, until

METADATA = "http://$GCE_METADATA_HOST/computeMetadata/v1"
CURL = 'curl -s -H "Metadata-Flavor: Google"'
SCOPE = "https://www.googleapis.com/auth/cloud-platform"

# Prints what it sees, then stays; python's own urllib is what every TPU VM has.
SCRIPT = """#!/usr/bin/env python3
import json, os, time, urllib.error, urllib.request

def ask(url, **headers):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10).read().decode()
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["error"]["message"]

account = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/service-accounts/default"
token = json.loads(ask(f"{account}/token", **{"Metadata-Flavor": "Google"}))["access_token"]
api = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"]
node = ask(f"{api}v2/NAME", Authorization=f"Bearer {token}")
names = ("USER", "HOME", "TPUFLEET_HOST_ROOT", "SSH_CONNECTION")
print(json.dumps({"pid": os.getpid(), "node": node, **{name: os.environ.get(name) for name in names}}), flush=True)
time.sleep(1000)
"""


def started(shared: Rig, name: str, boot: int = 0) -> dict[str, str]:
    """What the startup script of `name`'s first host said at its n-th boot."""
    log = shared.root(f"{name}-w0") / "var/log/startup-script.log"

    def lines() -> list[str]:
        return log.read_text().splitlines(keepends=True) if log.exists() else []

    until(lambda: len(lines()) > boot and lines()[boot].endswith("\n"), "the startup script speaks")
    return dict(json.loads(lines()[boot]))


def script(name: str) -> str:
    return SCRIPT.replace("NAME", f"{PARENT}/nodes/{name}")


def test_a_startup_script_runs_as_root_at_each_boot_and_dies_with_its_host(shared: Rig, name: str) -> None:
    shared.create(name, metadata={"startup-script": script(name)})
    first = started(shared, name)
    root = shared.root(f"{name}-w0")
    assert (first["USER"], first["TPUFLEET_HOST_ROOT"], first["SSH_CONNECTION"]) == ("root", str(root), None)
    assert Path(first["HOME"]).is_relative_to(root)
    assert is_alive(int(first["pid"]))
    assert shared.http("POST", f"/emulator/faults/reboot/{name}-w0")[0] == 200
    assert not is_alive(int(first["pid"]))
    second = started(shared, name, boot=1)
    shared.delete(name)
    assert not is_alive(int(second["pid"]))


@pytest.mark.parametrize(
    ("scopes", "says"),
    [([SCOPE], '"acceleratorType":"v2-8"'), ([], "Request had insufficient authentication scopes.")],
)
def test_a_host_may_call_the_api_when_its_scopes_reach_it(shared: Rig, name: str, scopes: list[str], says: str) -> None:
    metadata = {"startup-script": script(name)}
    shared.create(name, metadata=metadata, service_account={"scope": scopes})
    assert says in started(shared, name)["node"]


def test_a_script_without_a_first_line_is_the_shells_and_a_broken_one_does_not_hinder_the_boot(
    shared: Rig, name: str
) -> None:
    keys = {"ssh-keys": shared.ssh_keys()}
    shared.create(name, metadata=keys | {"startup-script": 'echo "I am $USER"; exit 3'})
    log = shared.root(f"{name}-w0") / "var/log/startup-script.log"
    until(lambda: log.exists() and log.read_text() == "I am root\n", "the script has run")
    broken = shared.create(f"{name}-b", metadata=keys | {"startup-script": "#!/no/such/program\n"})
    assert Shell(shared.config(broken)).ssh("true").returncode == 0


def test_the_metadata_server_knows_the_host_as_googles_does(shared: Rig, name: str) -> None:
    node = shared.create(
        name, metadata={"ssh-keys": shared.ssh_keys(), "colour": "blue"}, scheduling_config={"spot": True}
    )
    shell = Shell(shared.config(node))

    def ask(path: str) -> str:
        return shell.output(f'{CURL} -w "%{{http_code}}" "{METADATA}/{path}"')

    account = "instance/service-accounts/default"
    assert ask(f"{account}/email").endswith("-compute@developer.gserviceaccount.com200")
    assert "auth/devstorage.read_only" in ask(f"{account}/scopes")
    token = json.loads(ask(f"{account}/token").removesuffix("200"))
    assert set(token) == {"access_token", "expires_in", "token_type"}
    assert token["access_token"] not in ask("instance/?recursive=true")
    interface = "instance/network-interfaces/0"
    assert ask(f"{interface}/ip") == f"{node.network_endpoints[0].ip_address}200"
    assert ask(f"{interface}/access-configs/0/external-ip") == f"{node.network_endpoints[0].ip_address}200"
    assert ask("instance/attributes/colour") == "blue200"
    assert ask("instance/scheduling/preemptible") == "TRUE200"
    assert ask("instance/preempted") == "FALSE200"
    assert ask("project/attributes/ssh-keys") == "404"


def test_a_host_hears_of_a_maintenance_while_it_waits_for_one(shared: Rig, name: str) -> None:
    node = shared.create(name)
    shell = Shell(shared.config(node))
    event = f"{METADATA}/instance/maintenance-event"
    assert shell.output(f'{CURL} "{event}"') == "NONE"
    waiting = f'touch waiting; {CURL} "{event}?wait_for_change=true" > event.new; mv event.new event'
    shell.output(f"({waiting}) </dev/null >/dev/null 2>&1 &")
    until(lambda: shell.ssh("test -e waiting").returncode == 0, "the host waits")
    body = {"workerIds": ["0"]}
    assert shared.http("POST", f"/v2alpha1/{node.name}:simulateMaintenanceEvent", body)[0] == 200
    assert until(lambda: shell.ssh("cat event").stdout, "the host has heard") == b"TERMINATE_ON_HOST_MAINTENANCE"
    assert shared.client.get_node(name=node.name, timeout=10).health.name == "UNHEALTHY_MAINTENANCE"
