"""Each fault, provoked and looked at with real clients."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import requests.exceptions
from google.api_core import exceptions as google_errors
from google.cloud import tpu_v2

from tpufleet.emulator.remote import Faults, Remote
from tpufleet.errors import NotFound, UsageError

from .rig import PARENT, ZONE, Rig, Shell, is_alive, until

BOOT_ID = 'cat "$TPUFLEET_HOST_ROOT/proc/sys/kernel/random/boot_id"'
METADATA = "curl -s -H Metadata-Flavor:Google http://$GCE_METADATA_HOST/computeMetadata/v1/instance"
# Adds a byte to a file each time it is asked to, and says how that went.
WRITER = """\
import sys
with open('grows', 'ab', 0) as file:
    for _ in sys.stdin:
        try:
            file.write(b'x')
            print('ok', flush=True)
        except OSError as error:
            print(error.errno, flush=True)
"""


@pytest.fixture
def faults(shared: Rig) -> Iterator[Faults]:
    found = Faults(Remote(shared.running.url))
    yield found
    found.clear()


def talking(shell: Shell, command: str) -> subprocess.Popen[bytes]:
    """A command on the host that is talked with; its first line (`ready`) has come."""
    line = ["ssh", "-F", str(shell.config), "w0", f"echo ready; {command}"]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    return process


def asked(process: subprocess.Popen[bytes], line: bytes = b"go\n") -> bytes:
    """What the command answers to a line."""
    assert process.stdin and process.stdout
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def finish(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


# Hosts.


def test_a_partitioned_host_runs_on_while_connections_stall_and_new_ones_get_no_answer(
    faults: Faults, shared: Rig, shell: Shell, name: str
) -> None:
    process = talking(shell, "cat; touch ended")
    ticks = shared.root(f"{name}-w0") / "home/tpufleet/ticks"
    shell.output("(while sleep 0.02; do echo >> ticks; done) >/dev/null 2>&1 &")
    partition = faults.partition(f"{name}-w0")
    assert process.stdin and process.stdout
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    done = shell.ssh("true", options=["-o", "ConnectTimeout=1"])
    assert b"timed out" in done.stderr
    before = ticks.stat().st_size
    until(lambda: ticks.stat().st_size > before, "the host runs on")
    assert process.poll() is None
    partition.end()
    assert process.stdout.readline() == b"hello\n"
    assert shell.output("echo back") == "back"
    finish(process)


def test_a_cut_lasts_over_a_reboot_of_the_host(faults: Faults, shell: Shell, name: str) -> None:
    with faults.partition(f"{name}-w0"):
        faults.reboot(f"{name}-w0")
        assert b"timed out" in shell.ssh("true", options=["-o", "ConnectTimeout=1"]).stderr
    assert shell.ssh("true").returncode == 0


def test_a_slow_host_takes_its_time_in_both_directions_and_loses_nothing(
    faults: Faults, shell: Shell, name: str
) -> None:
    data = bytes(range(256)) * 160  # 40 kB: 0.8 s at 400 kbps
    with faults.slow(f"{name}-w0", kbps=400):
        started = time.monotonic()
        done = shell.ssh("cat", stdin=data)
        assert (done.returncode, done.stdout == data) == (0, True)
        assert time.monotonic() - started > 1.4
    with faults.slow(f"{name}-w0", delay_ms=150):
        started = time.monotonic()
        assert shell.ssh("true").returncode == 0
        assert time.monotonic() - started > 1.2  # at least four round trips
    started = time.monotonic()
    assert shell.ssh("cat", stdin=data).stdout == data
    assert time.monotonic() - started < 1.4


def test_an_open_connection_becomes_slow_and_fast_again(faults: Faults, shell: Shell, name: str) -> None:
    process = talking(shell, "cat")
    slow = faults.slow(f"{name}-w0", kbps=0.1)  # a minute for a line
    assert process.stdin and process.stdout
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    slow.end()
    assert process.stdout.readline() == b"hello\n"
    finish(process)


def test_nothing_can_be_written_on_a_full_disk_until_there_is_room(
    faults: Faults, shell: Shell, name: str, tmp_path: Any
) -> None:
    shell.output("echo here > old")
    process = talking(shell, f'exec python3 -c "{WRITER}"')
    assert asked(process) == b"ok\n"
    (tmp_path / "new").write_bytes(b"data")
    with faults.disk_full(f"{name}-w0"):
        assert asked(process) == b"27\n"  # EFBIG
        assert shell.output("cat old; echo to a pipe | cat; : > empty; rm empty") == "here\nto a pipe"
        done = shell.ssh("echo more > new")
        assert done.returncode != 0
        assert b"File too large" in done.stderr
        assert shell.ssh(f'python3 -c "{WRITER}"', stdin=b"go\n").stdout == b"27\n"
        put = shell.run("scp", str(tmp_path / "new"), "w0:sent")
        assert put.returncode != 0
        assert b"write remote" in put.stderr
        faults.reboot(f"{name}-w0")
        assert shell.ssh("echo more > new").returncode != 0
    finish(process)
    process = talking(shell, f'exec python3 -c "{WRITER}"')
    assert asked(process) == b"ok\n"
    finish(process)
    assert shell.output("echo more > new; cat new") == "more"


def test_a_process_that_outlived_a_full_disk_can_write_again(faults: Faults, shell: Shell, name: str) -> None:
    process = talking(shell, f'exec python3 -c "{WRITER}"')
    with faults.disk_full(f"{name}-w0"):
        assert asked(process) == b"27\n"
    assert asked(process) == b"ok\n"
    finish(process)


def test_a_changed_host_key_stops_who_pinned_it_and_is_published_at_the_next_boot(
    faults: Faults, shared: Rig, shell: Shell, name: str
) -> None:
    def published() -> str:
        request = tpu_v2.GetGuestAttributesRequest(name=f"{PARENT}/nodes/{name}", query_path="hostkeys/")
        answer = shared.client.get_guest_attributes(request, timeout=10)
        return answer.guest_attributes[0].query_value.items[0].value

    before = published()
    process = talking(shell, "cat")
    faults.change_host_key(f"{name}-w0")
    assert asked(process) == b"go\n"
    assert b"REMOTE HOST IDENTIFICATION HAS CHANGED" in shell.ssh("true").stderr
    assert published() == before
    faults.reboot(f"{name}-w0")
    assert published() != before
    again = Shell(shared.config(shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10)))
    assert again.ssh("true").returncode == 0
    finish(process)


@pytest.mark.parametrize("reboots", [False, True])
def test_a_host_with_a_new_address_is_found_there_and_not_at_the_old_one(
    faults: Faults, shared: Rig, shell: Shell, name: str, reboots: bool
) -> None:
    def node() -> tpu_v2.Node:
        return shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10)

    before, boot_id = node(), shell.output(BOOT_ID)
    shell.output("sleep 1000 >/dev/null 2>&1 & echo $! > pid")
    pid = int(shell.output("cat pid"))
    if reboots:
        faults.reboot(f"{name}-w0", new_ip=True)
    else:
        faults.change_ip(f"{name}-w0")
    now = node()
    old, new = (one.network_endpoints[0].access_config.external_ip for one in (before, now))
    assert old != new
    assert b"refused" in shell.ssh("true").stderr
    moved = Shell(shared.config(now))
    assert (moved.output(BOOT_ID) == boot_id) == is_alive(pid) == (not reboots)
    assert "true" in moved.output(f"{METADATA}/name >/dev/null && echo true")


@pytest.mark.usefixtures("shell")
def test_hosts_that_are_not_there_are_named_with_those_that_are(faults: Faults, name: str) -> None:
    with pytest.raises(NotFound, match=rf"no host 'nobody-w0'; there are .*{name}-w0"):
        faults.partition("nobody-w0")
    with pytest.raises(NotFound, match=rf"no node 'nobody'; there are .*{name}"):
        faults.preempt("nobody")
    with pytest.raises(NotFound, match="no queued resource"):
        faults.suspend("nobody")


# Nodes.


def test_a_vanished_node_is_dead_and_unknown_and_can_be_made_again(faults: Faults, shared: Rig, name: str) -> None:
    shell = Shell(shared.config(shared.create(name)))
    shell.output("sleep 1000 >/dev/null 2>&1 & echo $! > pid")
    pid = int(shell.output("cat pid"))
    faults.vanish(name)
    assert name not in shared.names()
    assert not is_alive(pid)
    assert shell.ssh("true").returncode == 255
    shared.create(name)
    shared.delete(name)


def test_an_operation_hangs_until_it_is_let_go(faults: Faults, shared: Rig, name: str) -> None:
    hang = faults.hang_operation(name)
    started = shared.client.create_node(parent=PARENT, node=shared.wanted(), node_id=name, timeout=10)
    until(lambda: state(shared, name) == "CREATING", "it is being created")
    assert not shared.client.get_operation({"name": started.operation.name}, timeout=10).done
    assert {"kind": "hang-operation", "target": name} in faults.in_force()
    hang.end()
    shared.await_state(f"{PARENT}/nodes/{name}", "READY")
    assert faults.in_force() == []
    shared.delete(name)


def test_a_create_that_hangs_is_interrupted_by_a_delete_that_ends(faults: Faults, shared: Rig, name: str) -> None:
    faults.hang_operation(f"{PARENT}/nodes/{name}")
    shared.client.create_node(parent=PARENT, node=shared.wanted(), node_id=name, timeout=10)
    until(lambda: state(shared, name) == "CREATING", "it is being created")
    shared.delete(name)
    assert faults.in_force() == []


def state(rig: Rig, name: str) -> str:
    return rig.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10).state.name


def test_a_maintenance_is_announced_then_the_node_reboots(faults: Faults, shared: Rig, shell: Shell, name: str) -> None:
    before = shell.output(f"touch kept; {BOOT_ID}")
    maintenance = faults.maintenance(name)
    health = shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10).health.name
    assert health == "UNHEALTHY_MAINTENANCE"
    assert shell.output(f"{METADATA}/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE"
    maintenance.end()
    assert shared.client.get_node(name=f"{PARENT}/nodes/{name}", timeout=10).health.name == "HEALTHY"
    assert shell.output(f"{METADATA}/maintenance-event") == "NONE"
    assert shell.output(f"ls kept; {BOOT_ID}").splitlines()[0] == "kept"
    assert shell.output(BOOT_ID) != before


def test_a_queued_resource_is_suspended_by_the_service(faults: Faults, shared: Rig, name: str) -> None:
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id=name, node=shared.wanted())
    wanted = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    shared.client.create_queued_resource(
        parent=PARENT, queued_resource=wanted, queued_resource_id=f"q-{name}", timeout=10
    )
    full = f"{PARENT}/queuedResources/q-{name}"

    def queued() -> tuple[str, str]:
        found = shared.client.get_queued_resource(name=full, timeout=10).state
        return found.state.name, found.state_initiator.name

    until(lambda: queued()[0] == "ACTIVE", "the queued resource is active")
    faults.suspend(f"q-{name}")
    assert queued() == ("SUSPENDED", "SERVICE")
    assert name not in shared.names()


# Capacity and quota.


def test_a_stockout_ends_the_operation_with_googles_words_until_it_is_over(rig: Rig) -> None:
    faults = Faults(Remote(rig.running.url))

    def create(name: str) -> Any:
        started = rig.client.create_node(parent=PARENT, node=rig.wanted(), node_id=name, timeout=10)

        def done() -> Any:
            operation = rig.client.get_operation({"name": started.operation.name}, timeout=10)
            return operation if operation.done else None

        return until(done, "the operation is done")

    stockout = faults.stockout(ZONE, "v2-8", chips=4)
    assert not create("fits").error.message
    error = create("too-many").error
    assert (error.code, "no more capacity in the zone" in error.message) == (8, True)
    rig.stop()
    rig.start()
    again = Faults(Remote(rig.running.url))
    assert again.in_force() == [{"kind": "stockout", "target": f"{ZONE}/v2-8", "chips": 4}]
    assert again.clear() == [{"kind": "stockout", "target": f"{ZONE}/v2-8", "chips": 4}]
    assert not create("fits-again").error.message
    with pytest.raises(NotFound, match="no fault"):
        Remote(rig.running.url).end(stockout.kind, stockout.target)


def test_a_small_quota_refuses_the_call_with_its_name_limit_and_region(rig: Rig) -> None:
    with Faults(Remote(rig.running.url)).quota("v2-8", "us-central1", 8):
        rig.create("fits")
        with pytest.raises(google_errors.TooManyRequests, match=r"TPUV2s\w*PerRegion\w*.* 8 in region us-central1"):
            rig.create("too-many")
    rig.create("fits-now")


# The API.


@pytest.mark.parametrize(
    ("word", "code", "status", "text"),
    [
        ("401", 401, "UNAUTHENTICATED", "invalid authentication credentials"),
        ("403", 403, "PERMISSION_DENIED", f"Permission 'tpu.nodes.list' denied on '{PARENT}'"),
        ("409", 409, "ABORTED", "aborted"),
        ("ALREADY_EXISTS", 409, "ALREADY_EXISTS", "already exists"),
        ("429", 429, "RESOURCE_EXHAUSTED", "Quota exceeded for ListNodes requests per minute."),
        ("500", 500, "INTERNAL", "Internal error encountered."),
        ("503", 503, "UNAVAILABLE", "The service is currently unavailable."),
    ],
)
def test_the_next_call_is_answered_with_googles_error_and_the_one_after_with_the_truth(
    faults: Faults, shared: Rig, *, word: str, code: int, status: str, text: str
) -> None:
    faults.api(word)
    answer, body = shared.http("GET", f"/v2/{PARENT}/nodes")
    assert (answer, body["error"]["code"], body["error"]["status"]) == (code, code, status)
    assert text in body["error"]["message"]
    assert shared.http("GET", f"/v2/{PARENT}/nodes")[0] == 200
    assert faults.in_force() == []


def test_the_nth_call_of_a_method_fails_and_others_do_not_count(faults: Faults, shared: Rig) -> None:
    faults.api(503, method="ListNodes", at=2, count=2, text="Not today.")

    def nodes() -> int:
        return shared.http("GET", f"/v2/{PARENT}/nodes")[0]

    assert shared.http("GET", f"/v2/{PARENT}/operations")[0] == 200
    assert [nodes() for _ in range(4)] == [200, 503, 503, 200]


def test_a_rate_limit_says_when_to_come_back_and_the_book_counts_the_call(faults: Faults, shared: Rig) -> None:
    before = shared.http("GET", "/emulator/book")[1]["calls"].get("ListLocations", 0)
    faults.api(429, retry_after=7, method="ListLocations")
    answer = requests.get(f"{shared.running.url}/v2/projects/p/locations", timeout=10)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert shared.http("GET", "/emulator/book")[1]["calls"]["ListLocations"] == before + 1


def test_a_create_whose_answer_is_lost_has_happened(faults: Faults, shared: Rig, name: str) -> None:
    faults.lose_answer(method="CreateNode")
    with pytest.raises(requests.exceptions.ConnectionError):
        shared.client.create_node(parent=PARENT, node=shared.wanted(), node_id=name, timeout=10)
    shared.await_state(f"{PARENT}/nodes/{name}", "READY")
    shared.delete(name)


def test_a_slow_api_runs_into_the_clients_time_out(faults: Faults, shared: Rig) -> None:
    with faults.slow_api(5000), pytest.raises(requests.exceptions.ReadTimeout):
        shared.client.list_nodes(parent=PARENT, timeout=0.2)
    assert shared.names() is not None


def test_faults_of_the_api_spare_the_way_to_end_them(faults: Faults, shared: Rig) -> None:
    faults.api(500, count=1000)
    assert [one["kind"] for one in faults.in_force()] == ["api"]
    assert [one["kind"] for one in faults.clear()] == ["api"]
    assert shared.http("GET", f"/v2/{PARENT}/nodes")[0] == 200


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (lambda faults: faults.api(299), "no error of the API"),
        (lambda faults: faults.api(500, method="MakeNode"), "no method 'MakeNode'; there are .*CreateNode"),
        (lambda faults: faults.api(500, count=0), "count from 1"),
        (lambda faults: faults.slow_api(0), "above 0"),
        (lambda faults: faults.quota("v9-8", "us-central1", 8), "v9-8"),
        (lambda faults: faults.stockout(ZONE, "v9-8"), "v9-8"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(faults: Faults, begin: Callable[[Faults], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        begin(faults)
    assert faults.in_force() == []
