"""Going on after a reboot with nobody at home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tpufleet.host import autostart
from tpufleet.host.places import Places

from .harness import Host
from .waiting import WAITS, let_go, starts, wait_for_start


def woken(host: Host, env: dict[str, str]) -> dict[str, object]:
    """What `wake` says at boot: the agent as `lib/current` points at it, in an environment of almost nothing."""
    current = host.base / "lib/current"
    done = subprocess.run(
        ["python3", "-ES", current, "wake"], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return json.loads(done.stdout)


def test_a_host_that_is_woken_at_boot_goes_on_as_before(host: Host) -> None:
    host.env["LANG"] = "C.UTF-8"
    host.enqueue(host.spec("gpt", "import os; print(os.environ['LANG'], os.environ['HOME'], flush=True)\n" + WAITS))
    wait_for_start(host, "gpt")
    host.reboot()
    bare = {"PATH": os.environ["PATH"], "TPUFLEET_HOST_ROOT": str(host.root)}
    assert woken(host, bare) == {"woken": True}
    wait_for_start(host, "gpt", 2)
    let_go(host, "gpt")
    ended = host.wait_for("gpt", "done")
    assert [attempt["reason"] for attempt in ended["attempts"]] == ["host rebooted", None]
    assert host.log("gpt") == f"C.UTF-8 {host.root}/home\n" * 2
    assert starts(host, "gpt") == ["1 0", "2 0"]
    assert woken(host, bare) == {"woken": False}


def test_the_unit_is_installed_once_and_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    for name, script in (("sudo", 'shift; exec "$@"'), ("systemctl", f'echo "$*" >>{log}')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    unit = tmp_path / "tpufleet.service"
    for _ in range(2):
        autostart.install(unit, autostart.unit(Places(Path("/")), "operator"))
    assert log.read_text() == "daemon-reload\nenable --quiet tpufleet.service\n"
    assert "ExecStart=/usr/bin/env python3 -ES /var/lib/tpufleet/lib/current wake\n" in unit.read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "tpufleet.service"
    unit.write_text(autostart.unit(Places(Path("/")), "operator"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "tpufleet" in line] == []
