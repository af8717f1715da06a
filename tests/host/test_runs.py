"""Runs on a host, from the queue to their start, and who survives whom: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from .harness import PYTHON, Host, alive, environment_of, kill, wait_until
from .test_checkpoints import write_checkpoint
from .waiting import WAITS, let_go, starts, wait_for_start


def test_a_run_is_answered_as_running_with_its_chip_and_ends_done(host: Host) -> None:
    (state,) = host.enqueue(host.spec("gpt-seed0", WAITS, params={"seed": 0}))
    assert (state["state"], state["chips"], state["reason"]) == ("running", ["tpu-0-w0:0"], None)
    assert alive(state["pid"])
    let_go(host, "gpt-seed0")
    ended = host.wait_for("gpt-seed0", "done")
    assert ended["pid"] is None
    assert ended["params"] == {"seed": 0}
    (attempt,) = ended["attempts"]
    assert (attempt["n"], attempt["exit_code"], attempt["reason"]) == (1, 0, None)
    assert attempt["chips"] == ["tpu-0-w0:0"]
    assert attempt["started"] < attempt["ended"]
    wait_until(lambda: not host.processes(), "everything to go when nothing is left to do")
    assert list((host.root / "tmp").iterdir()) == []


def test_two_launches_at_once_start_one_process(host: Host) -> None:

    request = json.dumps({"runs": [host.spec("twice", WAITS)]}).encode()
    launches = [host.start("enqueue") for _ in range(4)]
    for launch in launches:
        assert launch.stdin
        launch.stdin.write(request)
        launch.stdin.close()
    for launch in launches:
        with launch:
            assert launch.stdout
            assert json.loads(launch.stdout.read())["runs"][0]["state"] == "running"
    let_go(host, "twice")
    host.wait_for("twice", "done")
    assert starts(host, "twice") == ["1 0"]


def test_enqueueing_again_leaves_queued_running_and_done_runs_alone(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=1)
    specs = [host.spec("a", WAITS), host.spec("b", WAITS)]
    host.enqueue(*specs)
    a, b = host.enqueue(*specs)
    assert (a["state"], b["state"], b["reason"]) == ("running", "queued", "no free chip")
    let_go(host, "a")
    let_go(host, "b")
    host.wait_for("b", "done")
    (again,) = host.enqueue(specs[0])
    assert again["state"] == "done"
    assert starts(host, "a") == ["1 0"]


def test_eight_runs_are_worked_off_on_four_chips_with_nobody_connected(host: Host, tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    # each training owns a file named after its chip, and fails if another has it
    script = """
import os, pathlib, sys
mine = pathlib.Path(sys.argv[1]) / os.environ["TPU_VISIBLE_CHIPS"]
os.close(os.open(mine, os.O_CREAT | os.O_EXCL))
for _ in range(200_000):
    pass
mine.unlink()
print("on chip", os.environ["TPU_VISIBLE_CHIPS"])
"""
    specs = [host.spec(f"gpt-seed{n}", script) for n in range(8)]
    for spec in specs:
        spec["command"].append(str(used))
    states = host.enqueue(*specs)
    assert [state["state"] for state in states[:4]] == ["running"] * 4 or "done" in {s["state"] for s in states}
    ended = [host.wait_for(spec["id"], "done", "failed") for spec in specs]
    assert {state["state"] for state in ended} == {"done"}
    assert {chip for state in ended for chip in state["chips"]} == {f"tpu-0-w0:{n}" for n in range(4)}
    for state in ended:
        assert host.log(state["id"]) == f"on chip {state['chips'][0][-1]}\n"


def test_the_queue_goes_by_priority_then_age_then_name(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=1)
    host.enqueue(host.spec("first", WAITS))
    order = host.root / "order"
    script = f"import os; open({str(order)!r}, 'a').write(os.environ['TPUFLEET_RUN_ID'] + ' ')"
    host.enqueue(
        host.spec("z-old", script, submitted="2026-11-20T00:00:00Z"),
        host.spec("b", script),
        host.spec("a", script),
        host.spec("urgent", script, priority=5, submitted="2026-11-22T00:00:00Z"),
    )
    let_go(host, "first")
    host.wait_for("b", "done")
    assert order.read_text().split() == ["urgent", "z-old", "a", "b"]


def test_a_killed_worker_leaves_trainings_alone_and_the_next_probe_brings_another(
    make_host: Callable[..., Host],
) -> None:
    host = make_host(chips=1)
    host.enqueue(host.spec("a", WAITS), host.spec("b", WAITS))
    worker = host.worker()
    assert worker
    kill(worker)
    wait_until(lambda: not alive(worker))
    let_go(host, "b")
    assert {run["id"]: run["state"] for run in host.call("probe")["runs"]} == {"a": "running", "b": "queued"}
    wait_until(host.worker, "a new worker")
    let_go(host, "a")
    host.wait_for("b", "done")
    assert starts(host, "a") == ["1 0"]
    assert starts(host, "b") == ["1 0"]


def test_a_supervisor_that_ends_wakes_the_queue_even_without_a_worker(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=1)
    host.enqueue(host.spec("a", WAITS), host.spec("b", "print('b')"))
    worker = host.worker()
    assert worker
    kill(worker)
    let_go(host, "a")
    host.wait_for("b", "done")


def test_a_run_whose_supervisor_was_killed_goes_on_running_and_keeps_its_chip(host: Host) -> None:
    host.enqueue(host.spec("orphan", WAITS))
    wait_for_start(host, "orphan")
    handle = host.handle("orphan")
    kill(handle["supervisor"])
    wait_until(lambda: not alive(handle["supervisor"]))
    (state,) = host.enqueue(host.spec("orphan", WAITS))
    assert (state["state"], state["pid"]) == ("running", handle["pid"])
    (other,) = host.enqueue(host.spec("other", WAITS))
    assert other["chips"] == ["tpu-0-w0:1"]
    worker = host.worker()
    assert worker
    kill(worker)  # the lease is the training's own: it holds with nobody else left
    chip = host.call("probe")["chips"][0]
    assert (chip["state"], chip["run"]) == ("run", "orphan")


def test_a_run_that_vanishes_unseen_was_lost_and_is_started_again_without_costing_a_retry(host: Host) -> None:
    host.enqueue(host.spec("orphan", WAITS, retries=0))
    wait_for_start(host, "orphan")
    handle = host.handle("orphan")
    kill(handle["supervisor"])
    kill(handle["pid"])
    wait_for_start(host, "orphan", 2)
    let_go(host, "orphan")
    ended = host.wait_for("orphan", "done")
    assert [attempt["reason"] for attempt in ended["attempts"]] == ["lost", None]
    assert starts(host, "orphan") == ["1 0", "2 0"]


def test_a_rebooted_host_goes_on_with_its_runs_at_the_next_probe(host: Host) -> None:
    host.enqueue(host.spec("a", WAITS))
    wait_for_start(host, "a")
    host.reboot()
    host.call("probe")
    wait_for_start(host, "a", 2)
    let_go(host, "a")
    ended = host.wait_for("a", "done")
    assert [attempt["reason"] for attempt in ended["attempts"]] == ["host rebooted", None]


def test_a_supervisor_that_is_ended_with_its_training_does_not_count_it_as_a_failure(host: Host) -> None:
    host.enqueue(host.spec("a", WAITS))
    wait_for_start(host, "a")
    handle = host.handle("a")
    kill(handle["pid"], signal.SIGTERM)
    kill(handle["supervisor"], signal.SIGTERM)
    wait_for_start(host, "a", 2)
    let_go(host, "a")
    assert host.wait_for("a", "done")["attempts"][0]["reason"] == "lost"


def test_secrets_reach_the_training_and_no_file_but_their_own(host: Host) -> None:
    value = "swordfish-4711"
    show = "import os; os.environ['WANDB_API_KEY'] == 'swordfish-4711' and print('has it', flush=True)\n"
    (state,) = host.enqueue(host.spec("gpt", show.replace("swordfish-4711", "swordfish-'+'4711") + WAITS,
                                      secrets={"WANDB_API_KEY": value}))  # fmt: skip
    wait_until(lambda: host.log("gpt") == "has it\n")
    holding = [path for path in host.base.rglob("*") if path.is_file() and value in path.read_text(errors="replace")]
    assert holding == [host.control("gpt") / "secrets.json"]
    assert holding[0].stat().st_mode & 0o777 == 0o600
    assert f"WANDB_API_KEY={value}".encode() in environment_of(state["pid"])
    for pid in host.processes():
        assert value.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    let_go(host, "gpt")
    host.wait_for("gpt", "done")
    wait_until(lambda: not holding[0].exists(), "the secrets to go when the run has ended")


def test_a_training_sees_the_run_contract_and_not_the_session(host: Host) -> None:
    host.env |= {"SSH_CONNECTION": "1 2 3 4", "LD_PRELOAD": "", "TPU_PROCESS_PORT": "1", "LANG": "C.UTF-8"}
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    host.enqueue(host.spec("gpt", script, env={"LIBTPU_INIT_ARGS": "--x=1", "TPU_VISIBLE_CHIPS": "9"}))
    host.wait_for("gpt", "done")

    seen = json.loads(host.log("gpt"))
    assert seen["TPUFLEET_RUN_ID"] == "gpt"
    assert seen["TPUFLEET_ATTEMPT"] == "1"
    assert seen["TPUFLEET_RUN_DIR"] == str(host.run_dir("gpt"))
    assert seen["TPU_VISIBLE_CHIPS"] == seen["TPU_VISIBLE_DEVICES"] == "0"
    assert seen["LIBTPU_INIT_ARGS"] == "--x=1 --runtime_metric_service_port=8431"
    assert seen["TMPDIR"].startswith(str(host.root / "tmp"))
    assert not {"SSH_CONNECTION", "TPUFLEET_RESUME", "TPU_PROCESS_PORT"} & seen.keys()


def test_a_worker_killed_after_it_took_the_leases_and_before_the_start_leaves_nothing_behind(host: Host) -> None:
    host.enqueue(host.spec("gpt", WAITS))
    let_go(host, "gpt")
    ended = host.wait_for("gpt", "done")
    # the same records and locks as at that moment: a queued run, its lock and a lease held by a process that dies
    queued = {**ended, "state": "queued", "attempts": [], "chips": []}

    wait_until(lambda: not host.processes())
    (host.control("gpt") / "state.json").write_text(json.dumps(queued))
    lease = host.root / "run/tpufleet/leases/chip-0.lock"
    hold = (
        "import fcntl, sys, time\nfiles = [open(path, 'r+') for path in sys.argv[1:]]\n"
        "[fcntl.flock(file, fcntl.LOCK_EX) for file in files]\nprint('held', flush=True)\ntime.sleep(600)"
    )
    dying = [PYTHON, "-c", hold, str(host.control("gpt") / "lock"), str(lease)]
    with subprocess.Popen(dying, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert host.call("probe")["chips"][0]["state"] == "run"
        process.kill()
    host.call("probe")
    assert host.wait_for("gpt", "done")["attempts"][0]["n"] == 1


def test_a_gate_that_falls_shut_starts_nothing(tmp_path: Path) -> None:
    from tpufleet.host import launch

    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    gated = launch.fork_at_gate(["touch", str(tmp_path / "started")], {"PATH": os.environ["PATH"]}, tmp_path, log, [])
    gated.abandon()
    assert not (tmp_path / "started").exists()


def test_a_busy_chip_and_a_person_s_chip_are_left_alone(host: Host) -> None:

    host.call("probe")
    host.enqueue(host.spec("warm", "pass"))
    host.wait_for("warm", "done")
    lease = host.root / "run/tpufleet/leases/chip-1.lock"
    script = (
        f"import fcntl, time\ndevice = open({str(host.root / 'dev/accel0')!r})\n"
        f"lease = open({str(lease)!r}, 'w')\nfcntl.flock(lease, fcntl.LOCK_EX)\n"
        "lease.write('{\"person\": \"alice\"}'); lease.flush()\nprint('held', flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        busy, person, free, _ = host.call("probe")["chips"]
        assert (busy["state"], busy["pid"]) == ("busy", process.pid)
        assert (person["state"], person["person"], person["pid"]) == ("person", "alice", process.pid)
        assert free["state"] == "free"
        (state,) = host.enqueue(host.spec("gpt", WAITS))
        assert state["chips"] == ["tpu-0-w0:2"]
        process.kill()


def test_a_run_that_waits_for_a_person_s_chip_starts_when_it_is_given_back(make_host: Callable[..., Host]) -> None:

    host = make_host(chips=1)
    script = (
        f"import time; device = open({str(host.root / 'dev/accel0')!r}); print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        (state,) = host.enqueue(host.spec("gpt", "pass"))
        assert (state["state"], state["reason"]) == ("queued", "no free chip")
        process.kill()
    host.wait_for("gpt", "done")


def test_a_run_is_told_the_newest_checkpoint_that_is_whole(host: Host) -> None:
    checkpoints = host.run_dir("gpt") / "checkpoints"
    write_checkpoint(checkpoints, 100)
    flawed = write_checkpoint(checkpoints, 200)
    (flawed / "model.bin").write_bytes(b"flipped!")
    host.enqueue(host.spec("gpt", "import os; print(os.environ['TPUFLEET_RESUME'])"))
    ended = host.wait_for("gpt", "done")
    assert ended["resumed_from"] == "step-00000100"
    assert host.log("gpt") == f"{checkpoints}/step-00000100\n"
