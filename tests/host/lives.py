"""Lives of a run for the crash tests: what a client asks for from its queueing to its end, again when it is cut off."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .harness import DEADLINE_S, PYTHON, Host, wait_until

RUN = "gpt"
STEPS = 3
SECRET = "swordfish"
NEVER_BEGAN = ("lost", "signal", "host rebooted", "stopped by a person")  # killed between the record and the gate
LOSS = {"loss": r"loss: ([\d.]+)"}

# A training with everything to lose: says that it began, holds a lock named after its run and one named after its
# chip, prints a number and saves a checkpoint per step, goes on from the newest. `doom/wait` and `doom/fail` are asked
# for by a life: to wait there after the first step, to fail once.
TRAINING = """
import fcntl, hashlib, json, os, pathlib, sys, time
root, run = (pathlib.Path(os.environ[name]) for name in ("TPUFLEET_HOST_ROOT", "TPUFLEET_RUN_DIR"))
with (root / "begun").open("a") as begun:
    begun.write(os.environ["TPUFLEET_RUN_ID"] + " " + os.environ["TPUFLEET_ATTEMPT"] + "\\n")
held = []
for name in ("run-" + os.environ["TPUFLEET_RUN_ID"], "chip-" + os.environ["TPU_VISIBLE_CHIPS"]):
    held.append((root / name).open("a"))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (root / "violations").open("a").write(name + "\\n")
assert os.environ["TOKEN"] == "swordfish"
resume = os.environ.get("TPUFLEET_RESUME")
model = (pathlib.Path(resume) / "model").read_text() if resume else ""
for step in range(len(model) + 1, 4):
    model += str(step)
    print("step", step, "loss:", 1 / step, *["\\nand more of it"] * 150, flush=True)
    aside = run / f"checkpoints/.step-{step:08d}"
    aside.mkdir(parents=True, exist_ok=True)
    (aside / "model").write_text(model)
    file = {"path": "model", "size": len(model), "sha256": hashlib.sha256(model.encode()).hexdigest()}
    (aside / "manifest.json").write_text(json.dumps({"step": step, "files": [file]}))
    aside.rename(run / f"checkpoints/step-{step:08d}")
    while step == 1 and (root / "doom/wait").exists():
        time.sleep(0.01)
    if step == 2 and (root / "doom/fail").exists():
        (root / "doom/fail").unlink()
        sys.exit(3)
"""


class Client:
    """Somebody at home: asks, asks again when no answer came, and looks now and then."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.doom = host.root / "doom"
        self.doom.mkdir()

    def doomed_at(self, point: str, passing: int) -> None:
        (self.doom / "plan").write_text(json.dumps([point, passing]))

    def passed(self) -> list[tuple[str, int]]:
        """The effects so far as (name, which passing), in order."""
        seen: Counter[str] = Counter()
        found: list[tuple[str, int]] = []
        for name in (self.doom / "passed").read_text().splitlines():
            seen[name] += 1
            found.append((name, seen[name]))
        return found

    def killed(self) -> list[str]:
        path = self.doom / "killed"
        return path.read_text().splitlines() if path.exists() else []

    def ask(self, verb: str, **request: object) -> dict[str, Any]:
        """The verb's answer; a call that was killed is made again."""
        code, out = self.host.raw(verb, request)
        if code == -signal.SIGKILL:
            assert self.killed(), "killed by somebody else"
            code, out = self.host.raw(verb, request)
        assert code == 0, out.decode()
        return json.loads(out)

    def spec(self, **fields: Any) -> dict[str, Any]:
        return self.host.spec(
            RUN, TRAINING, retries=3, secrets={"TOKEN": SECRET}, metrics=LOSS | {"step": r"step (\d+)"}, **fields
        )

    def enqueue(self, spec: dict[str, Any] | None = None, **request: object) -> dict[str, Any]:
        return self.ask("enqueue", runs=[spec or self.spec()], **request)["runs"][0]

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Looks at the host (as a status or a watch does) until `condition` holds."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self.ask("probe")
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                if condition():
                    return
                time.sleep(0.02)
        raise AssertionError(f"not within {DEADLINE_S:.0f} s: {what}; {self.host.state(RUN)}")

    def until_state(self, *states: str) -> None:
        self.until(lambda: self.host.state(RUN)["state"] in states, f"{RUN} to be {states}")

    def until_saved(self, step: int) -> None:
        saved = self.host.run_dir(RUN) / f"checkpoints/step-{step:08d}"
        self.until(saved.exists, f"step {step} to be saved")


def plain(client: Client) -> None:
    """Queued, trained, done."""
    client.enqueue()
    client.until_state("done")


def retried(client: Client) -> None:
    """It fails once and goes on; its log is cut meanwhile."""
    (client.doom / "fail").touch()
    client.enqueue(client.spec(log_limit=4096))
    client.until_state("done")


def stopped(client: Client) -> None:
    """Stopped by a person after its first step; asked for again, it goes on."""
    wait = client.doom / "wait"
    wait.touch()
    client.enqueue()
    client.until_saved(1)
    (state,) = client.ask("stop", runs=[RUN])["runs"]
    assert state["state"] == "stopped"
    wait.unlink()
    client.enqueue()
    client.until_state("done")


def rebooted(client: Client) -> None:
    """The host reboots after its first step, and is woken."""
    wait = client.doom / "wait"
    wait.touch()
    client.enqueue()
    client.until_saved(1)
    client.host.reboot()
    wait.unlink()
    client.ask("wake")
    client.until_state("done")


def moved(client: Client) -> None:
    """It comes from another host with its first checkpoint and its attempts."""
    from .test_restore import ENDED, offer  # they send it as home does

    home = client.host.root / "home/sent"
    aside = home / "checkpoints/step-00000001"
    aside.mkdir(parents=True)
    (aside / "model").write_text("1")
    record = {"path": "model", "size": 1, "sha256": hashlib.sha256(b"1").hexdigest()}
    (aside / "manifest.json").write_text(json.dumps({"step": 1, "files": [record]}))
    (home / "log.txt").write_text("step 1 loss: 1.0\n")
    (home / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    code, _ = client.host.raw("restore", {"run": RUN, "files": offer(client.host, home, RUN)})
    if code:  # home sends everything again
        client.ask("restore", run=RUN, files=offer(client.host, home, RUN))
    client.enqueue(client.spec() | {"attempts": [ENDED], "began": "2026-11-20T00:00:00Z"})
    client.until_state("done")


def again(client: Client) -> None:
    """Done, and done again from the start."""
    client.enqueue()
    client.until_state("done")
    (client.host.root / "begun").rename(client.host.root / "begun-before")
    anew = client.spec() | {"submitted": "2026-11-22T00:00:00Z"}
    code, _ = client.host.raw("enqueue", {"runs": [anew], "restart": True})
    if code:  # typed again: what has begun anew isn't restarted once more
        state = client.host.state(RUN)
        client.enqueue(anew, restart=state["began"] != anew["submitted"])
    client.until_state("done")


def coded(client: Client) -> None:
    """Its repository comes as a bundle and is set up; a bundle that is missed is sent again."""
    from .test_code import REPO, commit, git

    host = client.host
    repository = host.root / "home/work"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet")
    (repository / "train.py").write_text(TRAINING)
    head = commit(repository, "first")
    asked = {"repo": REPO, "commit": head, "bundle": True, "setup": [f"echo set up >>{host.root}/set-up"]}
    for _ in range(3):
        answer = client.ask("code", **asked)
        if not answer.get("missing"):
            break
        git(repository, "bundle", "create", "--quiet", answer["upload"], "HEAD")
    assert (answer["commit"], answer["dirty"]) == (head, False)
    assert git(Path(answer["tree"]), "status", "--porcelain") == ""
    assert client.ask("code", **asked)["setup"] == "cached"
    assert (host.root / "set-up").read_text() in ("set up\n", "set up\n" * 2)
    assert sorted(path.name for path in (host.base / "code" / REPO / "trees").iterdir()) == [head]
    client.enqueue(client.spec() | {"command": [PYTHON, "train.py"], "repo": REPO, "commit": head})
    client.until_state("done")
    assert not host.state(RUN)["dirty"]


LIVES = {life.__name__: life for life in (plain, retried, stopped, rebooted, moved, again, coded)}


def judge(client: Client, life: str) -> None:
    """What must be so at the end, wherever something was killed."""
    host = client.host
    wait_until(lambda: not host.processes(), "every process to go")
    state = host.state(RUN)
    assert state["state"] == "done"
    attempts = state["attempts"]
    assert [attempt["n"] for attempt in attempts] == list(range(1, len(attempts) + 1))
    began = Counter((host.root / "begun").read_text().split()[1::2])
    assert not (host.root / "violations").exists()
    for attempt in attempts:
        elsewhere = attempt["host"] != state["host"]
        earlier = life == "again" and attempt["n"] <= state["forgiven"]
        if elsewhere or earlier:
            continue
        starts, reason = began.pop(str(attempt["n"]), 0), attempt["reason"]
        assert starts == 1 or (starts == 0 and reason in NEVER_BEGAN), attempt
    assert not began, "a training began that no attempt tells of"
    _nothing_left(host)
    _nothing_lost(host, whole_log=life != "retried")


def _nothing_left(host: Host) -> None:
    held = [path for path in host.root.rglob("*lock") if path.is_file() and not _is_free(path)]
    assert held == [], "locks that somebody holds"
    for path in host.base.rglob("*.json"):
        if not path.name.startswith("."):
            json.loads(path.read_text())
    assert not (host.control(RUN) / "secrets.json").exists(), "the secrets of a run that has ended"
    for log in ("queue.log", "agent.log"):
        assert not (host.base / log).exists() or (host.base / log).read_text() == ""
    assert list((host.root / "tmp").iterdir()) == [], "temporary files"


def _is_free(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _nothing_lost(host: Host, *, whole_log: bool) -> None:
    """All steps are in the model, and each number that was printed is in the metrics, once."""
    assert (host.run_dir(RUN) / f"checkpoints/step-{STEPS:08d}/model").read_text() == "123"
    records = [json.loads(line) for line in (host.run_dir(RUN) / "metrics.jsonl").read_text().splitlines()]
    said = [record["step"] for record in records]
    printed = [int(line.split()[1]) for line in host.log(RUN).splitlines() if line.startswith("step ")]
    assert {1, 2, 3} == set(said)
    if whole_log:
        assert said == printed
    else:
        assert said == sorted(said)
