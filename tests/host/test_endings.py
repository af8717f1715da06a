"""How runs on a host end: by themselves, by a person, by a failure; and what is tried again."""

from __future__ import annotations

import signal
from collections.abc import Callable

from .harness import Host, alive, kill, wait_until
from .waiting import WAITS, let_go


def test_a_failing_run_is_tried_again_as_often_as_it_may(host: Host) -> None:
    host.enqueue(host.spec("flaky", "import sys; print('oh no'); sys.exit(3)", retries=1))
    ended = host.wait_for("flaky", "failed")
    assert ended["reason"] == "exit nonzero"
    assert [(attempt["n"], attempt["exit_code"]) for attempt in ended["attempts"]] == [(1, 3), (2, 3)]
    assert host.log("flaky") == "oh no\noh no\n"


def test_a_failed_run_that_is_asked_for_again_is_its_next_attempt_with_the_new_spec(host: Host) -> None:
    host.enqueue(host.spec("gpt", "raise SystemExit(1)"))
    host.wait_for("gpt", "failed")
    host.enqueue(host.spec("gpt", "print('better')"))
    ended = host.wait_for("gpt", "done")
    assert [attempt["n"] for attempt in ended["attempts"]] == [1, 2]


def test_restart_does_a_done_run_again_from_nothing(host: Host) -> None:
    host.enqueue(host.spec("gpt", "print('once')"))
    host.wait_for("gpt", "done")
    (host.run_dir("gpt") / "checkpoints").mkdir()
    host.enqueue(host.spec("gpt", "print('again')"), restart=True)
    ended = host.wait_for("gpt", "done")
    wait_until(lambda: len(host.wait_for("gpt", "done")["attempts"]) == 2)
    assert ended["id"] == "gpt"
    assert host.log("gpt") == "again\n"
    assert not (host.run_dir("gpt") / "checkpoints").exists()


def test_a_signal_is_told_from_an_exit_code(host: Host) -> None:
    host.enqueue(host.spec("gpt", "import os; os.abort()"))
    ended = host.wait_for("gpt", "failed")
    assert (ended["reason"], ended["attempts"][0]["exit_code"]) == ("signal", 128 + signal.SIGABRT)


def test_an_unknown_program_fails_at_once_and_says_what_was_looked_for(host: Host) -> None:
    host.enqueue(host.spec("gpt", command=["no-such-program", "x"], retries=5))
    ended = host.wait_for("gpt", "failed")
    assert (ended["reason"], ended["attempts"][0]["exit_code"]) == ("command not found", 127)
    assert len(ended["attempts"]) == 1
    assert host.log("gpt").startswith("tpufleet: no-such-program: command not found on PATH=")


def test_a_full_disk_is_told_from_what_the_run_said_last(host: Host) -> None:
    host.enqueue(host.spec("gpt", "raise OSError(28, 'No space left on device')"))
    assert host.wait_for("gpt", "failed")["reason"] == "disk full"
    host.enqueue(host.spec("later", "raise OSError(28, 'No space left on device')", retries=1))
    assert host.wait_for("later", "recovering")["reason"] == "disk full"
    host.call("stop", runs=["later"])


def test_stopping_ends_the_whole_tree_even_where_it_ignores_sigterm(host: Host) -> None:
    # a child that ignores SIGTERM, and a daemon with a session of its own, no locks and no environment
    script = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
sleeper = [sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"]
child = subprocess.Popen(sleeper)
daemon = subprocess.Popen(["sh", "-c", "setsid env -i sleep 600 & echo $!"], stdout=subprocess.PIPE)
print(child.pid, int(daemon.stdout.readline()), flush=True)
time.sleep(600)
"""
    (state,) = host.enqueue(host.spec("stubborn", script))
    wait_until(lambda: host.log("stubborn").endswith("\n"))
    pids = [state["pid"], *map(int, host.log("stubborn").split())]
    assert all(alive(pid) for pid in pids)
    (stopped,) = host.call("stop", runs=["stubborn"], grace_s=0.2)["runs"]
    assert (stopped["state"], stopped["reason"]) == ("stopped", "stopped by a person")
    assert not any(alive(pid) for pid in pids)
    (again,) = host.call("stop", runs=["stubborn"], grace_s=0.2)["runs"]
    assert again == stopped


def test_a_stopped_run_that_takes_its_leave_politely_is_stopped_all_the_same(host: Host) -> None:
    polite = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(99)"
    )
    host.enqueue(host.spec("gpt", polite, retries=3))
    wait_until(lambda: host.log("gpt"))
    (stopped,) = host.call("stop", runs=["gpt"])["runs"]
    assert (stopped["state"], stopped["attempts"][0]["exit_code"]) == ("stopped", 0)


def test_a_queued_run_is_stopped_before_it_starts_and_a_retry_before_it_comes(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=1)
    host.enqueue(host.spec("a", WAITS), host.spec("b", WAITS))
    (b,) = host.call("stop", runs=["b"])["runs"]
    assert (b["state"], b["attempts"]) == ("stopped", [])
    host.enqueue(host.spec("b", "raise SystemExit(1)", retries=9))
    let_go(host, "a")
    host.wait_for("b", "recovering")
    assert host.call("stop", runs=["b"])["runs"][0]["state"] == "stopped"


def test_a_run_without_supervisor_can_be_stopped(host: Host) -> None:
    host.enqueue(host.spec("orphan", WAITS))
    handle = host.handle("orphan")
    kill(handle["supervisor"])
    wait_until(lambda: not alive(handle["supervisor"]))
    (state,) = host.call("stop", runs=["orphan"], grace_s=1)["runs"]
    assert (state["state"], state["attempts"][0]["reason"]) == ("stopped", "stopped by a person")
    assert not alive(handle["pid"])


def test_what_a_training_leaves_running_is_ended_before_the_run_has_ended(host: Host) -> None:
    script = "import subprocess; print(subprocess.Popen(['setsid', 'sleep', '600']).pid, flush=True)"
    host.enqueue(host.spec("gpt", script))
    host.wait_for("gpt", "done")
    assert not alive(int(host.log("gpt")))
