"""A host that others use too: leases that nobody can break, who holds a chip, what is cleared and what isn't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tpufleet.host import files, holders, leases, locks, people, processes
from tpufleet.host.places import Places

from .harness import PYTHON, Host, wait_until
from .waiting import WAITS

ALICE, BOB = 61001, 61002
TOOLS = all(shutil.which(tool) for tool in ("flock", "setpriv"))


@pytest.fixture
def shared() -> Iterator[Places]:
    """A root that every user can look into."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield Places(root)
    shutil.rmtree(root)


def as_user(uid: int, *command: str) -> subprocess.Popen[bytes]:
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")


def can(uid: int, *command: str) -> bool:
    with as_user(uid, *command) as process:
        process.communicate()
    return process.returncode == 0


@pytest.mark.skipif(os.getuid() != 0 or not TOOLS, reason="needs root, to be two other users")
def test_any_user_can_lock_a_chip_and_none_can_break_another_s_lock(shared: Places) -> None:
    leases.prepare(shared)
    lease = str(shared.lease(0))
    with as_user(ALICE, "flock", lease, "sh", "-c", "echo held; read word") as alice:
        assert alice.stdout
        assert alice.stdout.readline() == b"held\n"
        for attack in (
            ["rm", "-f", lease],
            ["mv", lease, f"{lease}.old"],
            ["ln", "-sf", "/dev/null", lease],
            ["touch", f"{shared.leases}/chip-99.lock"],
            ["chmod", "600", lease],
            ["chmod", "777", str(shared.leases)],
            ["rm", "-rf", str(shared.leases)],
        ):
            assert not can(BOB, *attack), attack
            assert not can(ALICE, *attack), attack
        assert not can(BOB, "flock", "--nonblock", lease, "true")
        leases.prepare(shared)
        assert not can(BOB, "flock", "--nonblock", lease, "true")
        alice.communicate(b"bye\n")
    assert can(BOB, "flock", "--nonblock", lease, "true")


@pytest.mark.skipif(os.getuid() != 0 or not TOOLS, reason="needs root, to be two other users")
def test_a_directory_that_was_open_to_all_is_closed_and_its_files_taken_over(shared: Places) -> None:
    shared.leases.mkdir(parents=True)
    shared.leases.chmod(0o1777)
    assert can(ALICE, "touch", str(shared.lease(0)))
    assert can(ALICE, "ln", "-s", "/etc/passwd", str(shared.lease(1)))
    subprocess.run(
        ["sh", "-c", leases.MAKE, "sh", str(shared.leases), "chip-0.lock", "chip-1.lock"], check=True, umask=0o077
    )
    assert not can(ALICE, "rm", "-f", str(shared.lease(0)))
    assert not shared.lease(1).is_symlink()
    assert can(BOB, "flock", "--nonblock", str(shared.lease(1)), "true")
    assert Path("/etc/passwd").stat().st_mode & 0o777 == 0o644


def holding(path: Path, *, lock: bool = False) -> subprocess.Popen[bytes]:
    script = f"import fcntl, time\nfile = open({str(path)!r}, 'r+')\n"
    script += "fcntl.lockf(file, fcntl.LOCK_EX)\n" if lock else ""
    process = subprocess.Popen([PYTHON, "-c", script + "print('up', flush=True)\ntime.sleep(600)"], stdout=-1)
    assert process.stdout
    process.stdout.readline()
    return process


def test_a_run_that_waits_says_who_has_the_chip(make_host: Callable[..., Host]) -> None:
    host = make_host(chips=1)
    with holding(host.root / "dev/accel0") as other:
        (state,) = host.enqueue(host.spec("gpt", "pass"))
        assert (state["state"], state["reason"]) == ("queued", "no free chip")
        assert state["why"].startswith(f"chip 0: root, pid {other.pid}, " if os.getuid() == 0 else "chip 0: ")
        (chip,) = host.call("probe")["chips"]
        assert (chip["state"], chip["pid"]) == ("busy", other.pid)
        assert chip["user"]
        other.kill()
    assert host.wait_for("gpt", "done")["why"] is None


def test_the_driver_tells_who_has_a_chip_where_other_peoples_files_can_t_be_seen(
    make_host: Callable[..., Host],
) -> None:
    host = make_host(chips=2)
    for chip, owner in enumerate((os.getpid(), 0)):
        told = host.root / f"sys/class/accel/accel{chip}/device_owner"
        told.parent.mkdir(parents=True)
        told.write_text(f"{owner}\n")
    busy, free = host.call("probe")["chips"]
    assert (busy["state"], busy["pid"]) == ("busy", os.getpid())
    assert busy["command"]
    assert free["state"] == "free"


def test_a_note_that_no_parser_can_follow_to_its_end_is_none(host: Host) -> None:
    leases.prepare(Places(host.root))
    lease = Places(host.root).lease(0)
    held = locks.try_lock(lease)
    assert held is not None
    lease.write_bytes(b"[" * 4096)
    assert host.call("probe")["chips"][0]["state"] == "person"
    os.close(held)
    lease.write_bytes(b"[" * 100_000)
    assert files.read_json(lease) is None


@pytest.mark.parametrize("known", [True, False])
def test_the_owner_of_the_process_is_believed_before_the_note(tmp_path: Path, *, known: bool) -> None:
    places, me = Places(tmp_path), processes.user_name(os.getuid())
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/accel0").touch()
    leases.prepare(places)
    places.people.parent.mkdir(parents=True)
    names = ("eve", me) if known else ("eve",)
    everybody = {name: people.Person(name, 20_000, (), "", people.HERE, None, share=False) for name in names}
    people.write(places, people.Known("sherlock", "tpu-0-w0", "operator", everybody))
    held = locks.try_lock(places.lease(0))
    assert held is not None
    places.lease(0).write_text('{"person": "eve"}')
    (holder,) = holders.look(places, [])
    os.close(held)
    assert (holder.state, holder.person) == ("person", me if known else "eve")


def test_what_a_process_calls_itself_can_do_nothing_to_a_terminal(host: Host) -> None:
    script = f"import time\nfile = open({str(host.root / 'dev/accel0')!r})\nprint('up', flush=True)\ntime.sleep(600)"
    with subprocess.Popen([PYTHON, "-c", script, "\x1b]52;c;evil\x07"], stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert "\x1b" not in host.call("probe")["chips"][0]["command"]
        other.kill()


def test_a_lock_file_that_a_run_left_behind_is_removed_and_a_held_one_is_not(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.libtpu_lock.parent.mkdir()
    holders.clear_lockfile(places)
    places.libtpu_lock.touch()
    with holding(places.libtpu_lock, lock=True) as other:
        holders.clear_lockfile(places)
        found = holders.lockfile(places)
        assert found
        assert found["pid"] == other.pid
        other.kill()
    holders.clear_lockfile(places)
    assert not places.libtpu_lock.exists()
    places.libtpu_lock.symlink_to(sys.executable)
    holders.clear_lockfile(places)
    assert places.libtpu_lock.is_symlink()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to make another user's file")
def test_another_user_s_lock_file_is_left_alone(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.libtpu_lock.parent.mkdir()
    places.libtpu_lock.touch()
    os.chown(places.libtpu_lock, ALICE, ALICE)
    holders.clear_lockfile(places)
    assert places.libtpu_lock.exists()


TPU_INFO = """
from collections import namedtuple
Usage = namedtuple("Usage", "device_id memory_usage total_memory duty_cycle_pct")
def get_local_chips():
    return "v2", 4
def get_chip_usage(kind, addr):
    if not addr.endswith(":8431"):
        raise RuntimeError("nobody listens")
    return [Usage(0, 5, 10, 40.0), Usage(1, 6, 10, 60.0)]
"""


def test_memory_and_duty_of_the_chips_are_shown_where_the_library_is(host: Host, tmp_path: Path) -> None:
    (tmp_path / "lib/tpu_info").mkdir(parents=True)
    for name in ("__init__", "device", "metrics"):
        (tmp_path / f"lib/tpu_info/{name}.py").write_text(TPU_INFO)
    host.env["PYTHONPATH"] = str(tmp_path / "lib")
    host.enqueue(host.spec("a", WAITS), host.spec("b", WAITS))
    wait_until((host.base / "usage.json").exists, "a sample")
    first, second, *_ = host.call("probe")["chips"]
    assert (first["hbm_used"], first["hbm_total"], first["duty_pct"]) == (11, 20, 50.0)
    assert "hbm_used" not in second


def test_a_probe_shows_when_a_run_was_last_heard(host: Host) -> None:
    host.enqueue(host.spec("gpt", "print('up', flush=True)\n" + WAITS))
    wait_until(lambda: host.log("gpt"))
    (run,) = host.call("probe")["runs"]
    assert run["attempts"][0]["started"][:10] <= run["heard"]
