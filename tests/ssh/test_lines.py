"""Bad lines to a real sshd and the real agent: cut at any byte, silent from any byte on, late, narrow, turned away."""

from __future__ import annotations

import dataclasses
import io
import os
import random
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.proxy import End, Line, Proxy, Way, proxied
from tests.project import until
from tests.ssh.servers import PATIENT, QUICK, SSHD, OpenSsh
from tpufleet.errors import Unreachable
from tpufleet.model import Host
from tpufleet.paths import remote_bundle
from tpufleet.ssh.agent import SHIP, Agent
from tpufleet.ssh.bundle import Bundle, bundle, pack
from tpufleet.ssh.client import ParamikoDialer
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.limits import DEFAULT, Limits
from tpufleet.ssh.port import Connection

# Writes down that it began, and waits to be let go.
WAITS = 'cd "$TPUFLEET_RUN_DIR"; echo "$TPUFLEET_ATTEMPT" >> starts; until [ -e go ]; do sleep 0.02; done'
NEAR, FAR = Line(delay_s=0.05, rate=250_000), Line(delay_s=0.3, rate=50_000)


@dataclasses.dataclass
class Far:
    """A host with four chips, and the line to it."""

    sshd: OpenSsh
    proxy: Proxy

    @property
    def host(self) -> Host:
        return dataclasses.replace(self.sshd.host, port=self.proxy.port)

    @property
    def base(self) -> Path:
        return self.sshd.root / "var/lib/tpufleet"

    def dialer(self, limits: Limits = PATIENT) -> ParamikoDialer:
        return self.sshd.dialer(limits=limits)

    def ask(
        self, verb: str, request: dict[str, Any], *, limits: Limits = PATIENT, shipped: Callable[[], Bundle] = bundle
    ) -> dict[str, Any]:
        """The agent's answer over a connection of its own, as another command has it."""
        with self.dialer(limits) as dialer:
            return Agent(dialer.connect(self.host), self.host, shipped=shipped).ask(verb, request)

    def launch(self, run: str, **options: Any) -> dict[str, Any]:
        spec = {"id": run, "job": "gpt", "fleet": "sherlock", "host": "tpu-0-w0", "command": ["sh", "-c", WAITS]}
        (state,) = self.ask("enqueue", {"runs": [{**spec, "submitted": "2026-11-21T04:00:00Z"}]}, **options)["runs"]
        return state

    def starts(self, run: str) -> int:
        path = self.base / "runs" / run / "starts"
        return len(path.read_text().split()) if path.exists() else 0

    def let_go(self, run: str) -> None:
        (self.base / "runs" / run / "go").touch()


@pytest.fixture
def far(sshd: OpenSsh) -> Iterator[Far]:
    (sshd.root / "dev").mkdir()
    for chip in range(4):
        (sshd.root / f"dev/accel{chip}").touch()
    with proxied(sshd.port) as (proxy,):
        yield Far(sshd, proxy)
    until(lambda: not _processes_of(sshd.root), "the host's processes to end")


def _processes_of(root: Path) -> list[str]:
    mark = f"TPUFLEET_HOST_ROOT={root}".encode()
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit() and mark in _environment(path)]


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------------------------------------------------- cuts


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.faults)])
def test_a_launch_that_is_cut_and_asked_again_starts_its_run_once(far: Far, count: int) -> None:
    far.launch("first")
    bare = far.proxy.wires[-1].passed  # with the agent's shipping
    far.launch("second")
    known = far.proxy.wires[-1].passed
    for run in ("first", "second"):
        far.let_go(run)
    answered = 0
    for seed in range(count):
        dice = random.Random(seed)  # noqa: S311 - a repeatable choice, no secret
        is_bare = dice.random() < 0.2
        shipped = another_version(seed) if is_bare else bundle()
        way = dice.choice(list(Way))
        at = dice.randrange(1, (bare if is_bare else known)[way])
        far.proxy.coming = [Line(end=dice.choice([End.RESET, End.CLOSED]), way=way, at=at)]
        before, run = len(far.proxy.wires), f"gpt-seed{seed}"
        try:
            far.launch(run, shipped=lambda shipped=shipped: shipped)
            answered += 1
        except Unreachable as lost:
            assert lost.message == "the connection was lost"
            assert lost.where == "tpu-0-w0"
        assert far.proxy.wires[before].happened.is_set(), f"seed {seed}: the line was not cut"
        again = far.launch(run, shipped=lambda shipped=shipped: shipped)
        assert (again["state"], len(again["attempts"])) == ("running", 1), f"seed {seed}"
        until(lambda run=run: far.starts(run), f"{run} to start")
        far.let_go(run)
    assert 0 < answered < count, "some are cut in the handshake, which is tried again, and some later"
    runs = until(lambda: _all_ended(far), "all runs to end")
    assert {run["state"] for run in runs} == {"done"}
    assert [far.starts(run["id"]) for run in runs] == [1] * (count + 2)


def another_version(seed: int) -> Bundle:
    """The agent as of another release: a host that has this one's is bare of it."""
    with tarfile.open(fileobj=io.BytesIO(bundle().tar)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        return pack({**{name: file.read() for name, file in files.items() if file}, "release": str(seed).encode()})


def test_an_agent_that_was_cut_between_two_of_its_files_is_none(tmp_path: Path) -> None:
    """tar takes such an archive for a whole one."""
    digest, tar = bundle()
    ship = SHIP.format(base=tmp_path, digest=digest, size=len(tar))
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        cuts = [entry.offset for entry in archive.getmembers()]
    for cut in [*cuts, len(tar)]:
        done = subprocess.run(["sh", "-c", ship], input=tar[:cut], capture_output=True, check=False)
        there = cut == len(tar)
        assert (done.returncode == 0) == there
        assert [path.name for path in (tmp_path / "lib").iterdir()] == ([digest] if there else [])


def _all_ended(far: Far) -> list[dict[str, Any]]:
    runs = far.ask("probe", {})["runs"]
    return runs if all(run["state"] in ("done", "failed", "stopped") for run in runs) else []


def test_an_upload_that_is_cut_leaves_no_file_and_is_whole_when_asked_again(far: Far, tmp_path: Path) -> None:
    path = tmp_path / "code.bundle"
    path.write_bytes(os.urandom(2_000_000))
    there = far.base / "code/abc/bundles" / f"{'0' * 40}.bundle"
    for end in (End.RESET, End.CLOSED):
        far.proxy.coming = [Line(end=end, way=Way.UP, at=1_000_000)]
        with far.dialer() as dialer, pytest.raises(Unreachable):
            Agent(dialer.connect(far.host), far.host).upload(path, remote_bundle("abc", "0" * 40))
    with far.dialer() as dialer:
        Agent(dialer.connect(far.host), far.host).upload(path, remote_bundle("abc", "0" * 40))
    assert there.read_bytes() == path.read_bytes()
    until(lambda: list(there.parent.iterdir()) == [there], "the parts to be cleared away")


# ---------------------------------------------------------------------------------------------------------- silence


def _launches(connection: Connection, far: Far, _tmp: Path) -> None:
    Agent(connection, far.host).ask("probe", {})


def _uploads(connection: Connection, far: Far, tmp: Path) -> None:
    path = tmp / "file"
    path.write_bytes(os.urandom(2_000_000))
    Agent(connection, far.host).upload(path, remote_bundle("abc", "0" * 40))


def _fetches(connection: Connection, _far: Far, _tmp: Path) -> None:
    connection.run("head -c 2000000 /dev/urandom")


WORK = {"answer": _launches, "upload": _uploads, "fetch": _fetches}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(1, 20))])
@pytest.mark.parametrize("work", WORK)
def test_a_line_that_goes_silent_anywhere_is_unreachable_soon(far: Far, tmp_path: Path, work: str, seed: int) -> None:
    limits = dataclasses.replace(QUICK, connect_s=1.0)

    def do() -> None:
        with far.dialer(limits) as dialer:
            WORK[work](dialer.connect(far.host), far, tmp_path)

    for _ in range(2):  # the second time the agent is there
        do()
    dice = random.Random(f"{work} {seed}")  # noqa: S311 - a repeatable choice, no secret
    way = dice.choice(list(Way))
    whole = far.proxy.wires[-1].passed[way]
    far.proxy.line = Line(end=End.SILENT, way=way, at=dice.randrange(whole * 4 // 5))  # the last bytes only say goodbye
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"doesn't go on|stopped answering"):
        do()
    assert time.monotonic() - begun < 5
    assert far.proxy.wires[-1].happened.is_set()
    far.proxy.heal()
    do()


@pytest.mark.faults
@pytest.mark.parametrize("moment", [0.5, 0.97])
def test_with_the_limits_that_people_have_it_is_unreachable_within_30_seconds(far: Far, moment: float) -> None:
    for _ in range(2):  # the second time the agent is there
        far.ask("probe", {})
    for way in Way:
        far.proxy.line = Line(end=End.SILENT, way=way, at=round(moment * far.proxy.wires[1].passed[way]))
        begun = time.monotonic()
        with pytest.raises(Unreachable):
            far.ask("probe", {}, limits=DEFAULT)
        assert time.monotonic() - begun < 30
        assert far.proxy.wires[-1].happened.is_set()


def test_the_limits_that_people_have_add_up_to_less_than_30_seconds() -> None:
    """With a few left for what a command does before and after."""
    assert DEFAULT.quiet_s + DEFAULT.probe_s + DEFAULT.tick_s < 25
    assert DEFAULT.connect_s < 25


def test_a_silent_line_holds_up_nobody_elses(far: Far) -> None:
    with proxied(far.sshd.port) as (other,):
        hosts = [far.host, *(_as(far, worker, other.port) for worker in (1, 2))]
        far.proxy.line = Line(end=End.SILENT, at=0)
        served = threading.Barrier(2)

        def work(host: Host) -> bytes:
            with far.dialer(dataclasses.replace(QUICK, connect_s=20.0)) as dialer:
                said = dialer.connect(host).run("echo here").stdout
                served.wait(20)  # the two meet while the first one is still being waited for
                far.proxy.stop()
                return said

        first, *others = gather(hosts, work)
        assert isinstance(first.error, Unreachable)
        assert [outcome.unwrap() for outcome in others] == [b"here\n"] * 2


def _as(far: Far, worker: int, port: int, address: str = "127.0.0.1") -> Host:
    """Another host of the fleet, by its pinned name; the same sshd serves it."""
    host = dataclasses.replace(far.sshd.host, worker=worker, identity=f"4711-w{worker}", port=port, address=address)
    far.sshd.trust.pin(host.identity, far.sshd.host_line)
    return host


# -------------------------------------------------------------------------------------------------- late and narrow


@pytest.mark.parametrize("line", [NEAR, pytest.param(FAR, marks=pytest.mark.faults)])
def test_a_late_and_narrow_line_is_only_slow(far: Far, line: Line) -> None:
    """With the limits that people have: the agent is shipped, and a run started."""
    far.proxy.line = line
    assert far.launch("far", limits=DEFAULT)["state"] == "running"
    assert far.proxy.wires[0].passed[Way.UP] > 100_000, "the agent went over that line"
    far.let_go("far")


def test_a_question_beside_a_bulk_transfer_on_a_narrow_line_waits_for_its_turn(far: Far) -> None:
    """What the host sent before lies in the line's buffers, for longer than a silence may last."""
    far.proxy.line = dataclasses.replace(NEAR, rate=1_000_000)
    limits = dataclasses.replace(DEFAULT, quiet_s=0.7, probe_s=0.7, tick_s=0.1)
    with far.dialer(limits) as dialer:
        connection = dialer.connect(far.host)
        with connection.stream("head -c 4000000 /dev/zero") as bulk:
            assert bulk.read(1) == b"\0"
            taking = threading.Thread(target=_drain, args=(bulk.read,))
            taking.start()
            begun = time.monotonic()
            assert connection.run("echo here").stdout == b"here\n"
            assert time.monotonic() - begun > limits.quiet_s + limits.probe_s
            taking.join()
            assert bulk.wait() == 0


def _drain(read: Callable[[int], bytes]) -> None:
    while read(1 << 16):
        pass


# ------------------------------------------------------------------------------------------------------ turned away


@pytest.fixture
def daemon(far: Far) -> Iterator[Callable[[str], tuple[str, int, Path]]]:
    """Starts an sshd that listens by itself, with the MaxStartups that are given; its address, port and log."""
    started: list[subprocess.Popen[bytes]] = []

    def start(startups: str) -> tuple[str, int, Path]:
        address = f"127.99.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # nobody else chooses a port on this one
        with socket.create_server((address, 0)) as listener:
            port = listener.getsockname()[1]
        config, log = far.sshd.directory / "daemon_config", far.sshd.directory / "daemon.log"
        more = f"ListenAddress {address}:{port}\nMaxStartups {startups}\nLogLevel VERBOSE\n"
        config.write_text(far.sshd.config.read_text() + more)
        with log.open("wb") as file:
            started.append(subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=file))
        until(lambda: "Server listening" in log.read_text(), "sshd to listen")
        return address, port, log

    yield start
    for process in started:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("startups", ["1:100:1", pytest.param("4:100:4", marks=pytest.mark.faults)])
def test_twenty_at_once_get_in_where_sshd_turns_most_away(
    far: Far, daemon: Callable[[str], tuple[str, int, Path]], startups: str
) -> None:
    address, port, log = daemon(startups)
    hosts = [_as(far, worker, port, address) for worker in range(20)]
    patient = dataclasses.replace(DEFAULT, connect_s=120.0)  # one after the other, on a machine that may be busy
    with far.dialer(patient) as dialer, socket.create_connection((address, port)) as slow:
        # somebody who doesn't say who they are has one of the places, until enough were turned away
        until(lambda: slow.recv(1), "sshd's greeting")
        leaving = threading.Thread(target=_leave_when, args=(slow, lambda: _refusals(log) >= 10))
        leaving.start()
        outcomes = gather(hosts, lambda host: dialer.connect(host).run("echo in").stdout, limit=20)
        leaving.join()
    assert [outcome.unwrap() for outcome in outcomes] == [b"in\n"] * 20
    assert _refusals(log) >= 10


def _refusals(log: Path) -> int:
    return log.read_text().count("drop connection")


def _leave_when(connection: socket.socket, condition: Callable[[], bool]) -> None:
    until(condition, "enough to be turned away", 60)
    connection.close()
