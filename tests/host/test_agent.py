"""The agent as a program: requests, errors, the probe."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable

import pytest

from .harness import Host


def test_a_probe_of_a_bare_host_shows_it_and_leaves_no_trace(host: Host) -> None:
    found = host.call("probe")
    assert list(found) == [
        "boot_id", "now", "uptime_s", "python", "cpus", "load", "memory", "disk", "chips", "lockfile", "suspect",
        "runs", "code", "ttl", "people",
    ]  # fmt: skip
    assert found["boot_id"] == (host.root / "proc/sys/kernel/random/boot_id").read_text().strip()
    assert found["memory"]["total"] >= found["memory"]["available"] > 0
    assert [(chip["index"], chip["device"], chip["state"]) for chip in found["chips"]] == [
        (n, f"accel{n}", "free") for n in range(4)
    ]
    assert not (host.root / "var").exists()
    assert not (host.root / "run").exists()


def test_vfio_chips_are_counted_in_the_order_of_their_groups(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=0)
    (host.root / "dev/vfio").mkdir()
    for name in ("vfio", "10", "9", "2"):
        (host.root / "dev/vfio" / name).touch()
    assert [(chip["index"], chip["device"]) for chip in host.call("probe")["chips"]] == [
        (0, "vfio/2"), (1, "vfio/9"), (2, "vfio/10"),
    ]  # fmt: skip


def test_leases_can_be_taken_by_everybody_and_removed_by_nobody_else(host: Host) -> None:
    host.enqueue(host.spec("gpt", "pass"))
    leases = host.root / "run/tpufleet/leases"
    assert stat.S_IMODE(leases.stat().st_mode) == 0o755
    assert stat.S_IMODE((leases / "chip-0.lock").stat().st_mode) == 0o666
    assert stat.S_IMODE((host.base / "control").stat().st_mode) == 0o700


@pytest.mark.parametrize("sent", [b"not json", b"[1]", b"{", b"[" * 100_000, b"\xff", b'"x"'])
def test_a_request_that_is_no_object_is_a_bad_request(host: Host, sent: bytes) -> None:
    with host.start("enqueue") as process:
        out, err = process.communicate(sent)
    assert (process.returncode, err) == (1, b"")
    assert json.loads(out)["error"]["kind"] == "bad-request"


def test_a_request_may_stand_on_several_lines(host: Host) -> None:
    with host.start("manifest") as process:
        out, _ = process.communicate(b'{\n "runs":\n null\n}\n')
    assert json.loads(out) == {"runs": []}


def test_an_unknown_verb_names_those_there_are(host: Host) -> None:
    error = host.error("dance")
    assert error["kind"] == "bad-request"
    assert "enqueue" in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"command": []},
        {"command": [""]},
        {"command": ["a\0b"]},
        {"command": "rm -rf /"},
        {"chips": 3},
        {"chips": 0},
        {"chips": True},
        {"chips": 8},
        {"device": "gpu"},
        {"env": {"A=B": "x"}},
        {"env": {"TPUFLEET_RUN_ID": "x"}},
        {"env": {"A": 1}},
        {"workdir": "../x"},
        {"workdir": "/etc"},
        {"workdir": "a/../../x"},
        {"repo": "abcdef0123"},
        {"repo": "../..", "commit": "0" * 40},
        {"retries": -1},
        {"host": "../x"},
        {"artifacts": [1]},
        {"job": None},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_with_run_and_field(host: Host, fields: dict[str, object]) -> None:
    error = host.error("enqueue", runs=[host.spec("good"), host.spec("gpt", **fields)])
    assert error["kind"] == "bad-request"
    assert "run gpt" in error["message"]
    assert not host.base.exists()


def test_a_secret_is_not_shown_in_the_error_that_refuses_it(host: Host) -> None:
    error = host.error("enqueue", runs=[host.spec("gpt", secrets={"KEY": "swordfish\0"})])
    assert "KEY" in error["message"]
    assert "swordfish" not in error["message"]


def test_a_host_whose_directories_cannot_be_made_says_so(host: Host) -> None:
    (host.root / "var").write_text("in the way")
    error = host.error("enqueue", runs=[host.spec("gpt")])
    assert error["kind"] == "internal"
    assert "Traceback" not in error["message"]


def test_directories_that_need_root_are_made_with_sudo(host: Host) -> None:
    import os

    if os.getuid() == 0:
        pytest.skip("root needs no sudo")
    (host.root / "bin").mkdir()
    sudo = host.root / "bin/sudo"
    sudo.write_text(f'#!/bin/sh\nchmod 0755 "{host.root}"\nshift\nexec "$@"\n')
    sudo.chmod(0o755)
    host.env["PATH"] = f"{host.root}/bin:{host.env['PATH']}"
    host.root.chmod(0o555)
    host.enqueue(host.spec("gpt", "pass"))
    host.wait_for("gpt", "done")


def test_cpu_runs_without_a_chip_need_no_chip(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=0)
    script = (
        "import os; print(os.environ['PJRT_DEVICE'], os.environ['JAX_PLATFORMS'], 'TPU_VISIBLE_CHIPS' in os.environ)"
    )
    host.enqueue(host.spec("gpt", script, chips=0, device="cpu"))
    assert host.wait_for("gpt", "done")["chips"] == []
    assert host.log("gpt") == "CPU cpu False\n"
