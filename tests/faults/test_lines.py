"""Bad lines under whole commands: two real hosts that are there already, each behind a line that can be cut or die."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.proxy import End, Line, Proxy, Way, proxied
from tests.project import Project, missing, until
from tests.ssh.servers import SSHD, OpenSsh
from tpufleet.ssh.keys import ensure_key

pytestmark = pytest.mark.skipif(SSHD is None or missing("ssh") is not None, reason="OpenSSH is not installed")

# Writes down each start where no host's fate reaches it, leaves a checkpoint of 1 MB, and waits to be let go.
JOB = """\
import hashlib, json, os, pathlib, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
print("begun", flush=True)
with (pathlib.Path(os.environ["STARTS"]) / os.environ["TPUFLEET_RUN_ID"]).open("a") as file:
    file.write(os.environ["TPUFLEET_ATTEMPT"] + "\\n")
if os.environ.get("SAVES") and not os.environ.get("TPUFLEET_RESUME"):
    aside = run / "checkpoints/.step-00000010"
    aside.mkdir(parents=True)
    data = os.urandom(1_000_000)
    (aside / "model.bin").write_bytes(data)
    files = [{"path": "model.bin", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}]
    (aside / "manifest.json").write_text(json.dumps({"step": 10, "files": files}))
    aside.rename(run / "checkpoints/step-00000010")
deadline = time.monotonic() + 300
while not pathlib.Path(os.environ["GATE"]).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
print("let go", flush=True)
"""

JOBS = """\
  job: {{command: [python3, lines.py, "{{seed}}"], grid: {{seed: [0]}}, env: {{STARTS: "{top}", GATE: "{top}/gate"}}}}
  saves: {{command: [python3, lines.py, "{{seed}}"], grid: {{seed: [0, 1]}},
    env: {{STARTS: "{top}", GATE: "{top}/gate", SAVES: "1"}}}}
"""

HASTY = """\
import tpufleet.ssh.limits as limits
limits.DEFAULT = limits.Limits(connect_s=4, quiet_s=2, probe_s=2, tick_s=0.1)
"""


@dataclass
class Far:
    """A project whose two hosts are reached through `lines`."""

    project: Project
    servers: list[OpenSsh]
    lines: list[Proxy]

    @property
    def top(self) -> Path:
        return self.project.directory.parent

    def starts(self, run: str) -> list[str]:
        path = self.top / run
        return path.read_text().split() if path.exists() else []

    def use(self, *hosts: int) -> None:
        """Write the fleet file with these hosts."""
        listed = "".join(
            f"    - {{name: tpu-{index}, address: 127.0.0.1, port: {self.lines[index].port}, accelerator: v2-8,"
            f" user: {self.servers[index].user}, host_key: {self.servers[index].host_line}}}\n"
            for index in hosts
        )
        (self.project.directory / "tpufleet.yaml").write_text(
            f"fleet: sherlock\ncloud:\n  provider: inventory\n  hosts:\n{listed}"
            f"ssh: {{key: key}}\ncode: {{repo: code}}\njobs:\n{JOBS.format(top=self.top)}"
        )

    def hasten(self) -> None:
        """The command's limits are shorter from now on, as those of a test must be."""
        (self.top / "hasty").mkdir()
        (self.top / "hasty/sitecustomize.py").write_text(HASTY)
        self.project.env["PYTHONPATH"] = str(self.top / "hasty")


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    project = Project.make(tmp_path / "project")
    project.env = {"HOME": str(tmp_path)}
    (project.directory / "code/lines.py").write_text(JOB)
    project.commit("A job that leaves a checkpoint")
    line = ensure_key(project.directory / "key")
    with contextlib.ExitStack() as stack:
        servers: list[OpenSsh] = []
        for index in range(2):
            (tmp_path / f"server-{index}").mkdir()
            server = OpenSsh(tmp_path / f"server-{index}")
            stack.callback(server.stop)
            server.authorized.write_text(line + "\n")
            (server.root / "dev").mkdir()
            for chip in range(4):
                (server.root / f"dev/accel{chip}").touch()
            servers.append(server)
        stack.callback(_end_runs, tmp_path, servers)
        lines = stack.enter_context(proxied(*(server.port for server in servers)))
        far = Far(project, servers, lines)
        far.use(0, 1)
        yield far


def _end_runs(top: Path, servers: list[OpenSsh]) -> None:
    """Let go what waits, and see that nothing of the hosts is left."""
    (top / "gate").touch()
    marks = [f"TPUFLEET_HOST_ROOT={server.root}".encode() for server in servers]

    def at_rest() -> bool:
        found = (_environment(path) for path in Path("/proc").iterdir() if path.name.isdigit())
        return not any(mark in environment for environment in found for mark in marks)

    until(at_rest, "the hosts to be at rest", 60)


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err, err
    return process.returncode, out, err


# ------------------------------------------------------------------------------------------------------------- cuts


@pytest.mark.faults
def test_a_run_whose_line_is_cut_and_that_is_typed_again_starts_once(far: Far) -> None:
    count = 12
    far.use(0)
    far.project.run("create")
    far.project.run("run", "job", "--set", "seed=1000")
    whole = far.lines[0].wires[-1].passed
    for seed in range(count):
        dice = random.Random(seed)  # noqa: S311 - a repeatable choice, no secret
        way = dice.choice(list(Way))
        at = dice.randrange(whole[way] // 3, whole[way])
        far.lines[0].coming = [Line(end=dice.choice([End.RESET, End.CLOSED]), way=way, at=at)]
        before = len(far.lines[0].wires)
        cut = far.project.run("run", "job", "--set", f"seed={seed}", ok=False)
        assert cut.exit_code in (0, 5), cut.stderr
        assert far.lines[0].wires[before].happened.is_set(), f"seed {seed}: the line was not cut"
        again = far.project.json("run", "job", "--set", f"seed={seed}")
        assert again["runs"][0]["state"] in ("running", "queued")
        if seed < 3:  # the chips are taken then, and the others wait
            until(lambda seed=seed: far.starts(f"job-seed{seed}"), "the run to start")
    (far.top / "gate").touch()
    far.project.run("run", "job", "--grid", f"seed={','.join(map(str, range(count)))}", "--follow")
    assert [far.starts(f"job-seed{seed}") for seed in range(count)] == [["1"]] * count


@pytest.mark.faults
def test_eight_times_run_at_once_start_each_run_once(far: Far) -> None:
    far.project.run("create")
    commands = [far.project.popen("run", "job", "--grid", "seed=0,1,2,3,4,5,6,7") for _ in range(8)]
    for command in commands:
        code, _, err = finish(command)
        assert code == 0, err
    until(lambda: all(far.starts(f"job-seed{seed}") for seed in range(8)), "all to start")
    (far.top / "gate").touch()
    far.project.run("run", "job", "--grid", "seed=0,1,2,3,4,5,6,7", "--follow")
    assert [far.starts(f"job-seed{seed}") for seed in range(8)] == [["1"]] * 8


# ---------------------------------------------------------------------------------------------------------- silence

LIMITS = ["short", pytest.param("real", marks=pytest.mark.faults)]


@pytest.fixture
def hurry(far: Far, request: pytest.FixtureRequest) -> Far:
    """The same with short limits, or the real ones."""
    if request.param == "short":
        far.hasten()
    return far


def goes_on_meanwhile(command: subprocess.Popen[str], line: Proxy, what: Callable[[], object], said: str) -> None:
    """`what` comes to pass while the command still waits for the host at the end of `line`, which is silent."""
    until(what, said)
    assert command.poll() is None, f"{said} only when the silent host was given up"
    assert line.wires[-1].happened.wait(30), "the line did not go silent"


def given_up(command: subprocess.Popen[str], since: float, *, exit_code: int) -> None:
    """The command has given up tpu-0 in time, and said so with the next step."""
    code, out, err = finish(command)
    assert time.monotonic() - since < 30
    assert code == exit_code, (code, out, err)
    assert "tpu-0-w0: stopped answering" in err
    assert "  → " in err


@pytest.mark.parametrize("hurry", LIMITS, indirect=True)
def test_a_host_that_goes_silent_while_it_gets_the_code_keeps_no_other_from_its_runs(hurry: Far) -> None:
    far = hurry
    far.project.run("create")
    (far.project.directory / "code/more").write_bytes(random.Random(0).randbytes(1_000_000))  # noqa: S311 - a file
    far.project.commit("Much to send")
    far.lines[0].coming = [Line(end=End.SILENT, way=Way.UP, at=300_000)]
    begun = time.monotonic()
    command = far.project.popen("run", "job", "--grid", "seed=0,1,2,3")
    goes_on_meanwhile(command, far.lines[0], lambda: _begun(far), "the other host's runs")
    given_up(command, begun, exit_code=6)
    assert len(_begun(far)) == 2
    far.project.run("run", "job", "--grid", "seed=0,1,2,3")
    until(lambda: len(_begun(far)) == 4, "all to start")
    assert [far.starts(f"job-seed{seed}") for seed in range(4)] == [["1"]] * 4


def _begun(far: Far) -> list[int]:
    return [seed for seed in range(4) if far.starts(f"job-seed{seed}")]


@pytest.mark.faults
def test_a_host_that_goes_silent_during_create_keeps_no_other_from_being_made_ready(far: Far) -> None:
    far.lines[0].coming = [Line(end=End.SILENT, way=Way.UP, at=100_000)]
    begun = time.monotonic()
    command = far.project.popen("create")
    trees = far.servers[1].root / "var/lib/tpufleet/code"
    goes_on_meanwhile(command, far.lines[0], lambda: list(trees.glob("*/trees/*/lines.py")), "the other host's code")
    given_up(command, begun, exit_code=6)
    far.project.run("create")


@pytest.mark.faults
def test_a_host_that_goes_silent_while_a_checkpoint_is_fetched_keeps_no_other_from_coming_home(far: Far) -> None:
    far.project.run("create")
    placed = {host: run for run, host in far.project.json("run", "saves")["placed"].items()}
    checkpoints = "var/lib/tpufleet/runs/*/checkpoints/step-00000010"
    until(lambda: all(list(server.root.glob(checkpoints)) for server in far.servers), "the checkpoints")
    far.lines[0].coming = [Line(end=End.SILENT, way=Way.DOWN, at=500_000)]
    home = far.project.directory / "artifacts/sherlock/runs"
    manifests = {host: home / run / "checkpoints/step-00000010/manifest.json" for host, run in placed.items()}
    begun = time.monotonic()
    command = far.project.popen("collect")
    goes_on_meanwhile(command, far.lines[0], manifests["tpu-1-w0"].exists, "the other host's checkpoint")
    given_up(command, begun, exit_code=6)
    assert not manifests["tpu-0-w0"].exists()
    again = far.project.json("collect")
    assert manifests["tpu-0-w0"].exists()
    assert again["bytes"] < 900_000, "what had come is not fetched again"


@pytest.mark.faults
def test_a_log_that_is_followed_goes_on_when_its_silent_host_is_heard_again(far: Far) -> None:
    far.use(0)
    far.project.run("create")
    far.project.run("run", "job")
    command = far.project.popen("logs", "-f", "job-seed0")
    assert command.stdout
    assert command.stdout.readline() == "begun\n"
    far.lines[0].go_silent()
    _lines_until(command, "job-seed0: stopped answering; looking where it goes on")
    far.lines[0].heal()
    (far.top / "gate").touch()
    code, out, err = finish(command)
    assert (code, out.splitlines()) == (0, ["let go"]), err


@pytest.mark.faults
def test_runs_that_are_followed_are_said_to_be_silent_and_waited_for(far: Far) -> None:
    far.project.run("create")
    command = far.project.popen("run", "saves", "--follow")
    assert command.stderr
    begun = {line.split(":")[0] for line in _lines_until(command, "saves-seed0: running", "saves-seed1: running")}
    assert {"saves-seed0", "saves-seed1"} <= begun
    since = time.monotonic()
    far.lines[0].go_silent()
    _lines_until(command, "tpu-0-w0: silent, waiting for it: stopped answering")
    assert time.monotonic() - since < 30
    far.lines[0].heal()
    _lines_until(command, "tpu-0-w0: heard again")
    (far.top / "gate").touch()
    assert finish(command)[0] == 0


def _lines_until(command: subprocess.Popen[str], *said: str) -> list[str]:
    """The lines of the command's stderr until each of `said` was in one."""
    assert command.stderr
    lines: list[str] = []
    while not all(any(word in line for line in lines) for word in said):
        lines.append(line := command.stderr.readline().removeprefix("· "))
        assert line, f"it ended after {lines}"
    return lines


# -------------------------------------------------------------------------------------------------- late and narrow


@pytest.mark.faults
def test_on_a_late_and_narrow_line_everything_works_and_nobody_is_called_unreachable(far: Far) -> None:
    far.use(0)
    far.lines[0].line = Line(delay_s=0.3, rate=50_000)
    (far.top / "gate").touch()
    said = far.project.run("create", timeout=300).stderr
    said += far.project.run("run", "saves", "--follow", timeout=300).stderr
    said += far.project.run("collect", timeout=300).stderr
    for word in ("unreachable", "silent", "stopped", "lost", "waiting for SSH"):
        assert word not in said
    home = far.project.directory / "artifacts/sherlock/runs"
    assert len(list(home.glob("saves-*/checkpoints/step-00000010/model.bin"))) == 2
