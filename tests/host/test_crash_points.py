"""SIGKILL before each effect that the agent's processes have on a host: asked again, the run ends as it should.

The effects aren't listed here: a life is lived once undisturbed, which names them (`doomed.py`), then again for each.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .harness import DEADLINE_S, Host, wait_until
from .lives import LIVES, Client, judge
from .test_code import REPO, commit, git, send

VERBS = ("enqueue", "work", "supervise", "training", "stop", "wake", "restore", "code", "probe")
PASSINGS = 4  # of one name: after these the same things come round again
TRIES = 3  # to meet a point that is passed only now and then


@pytest.fixture(scope="session")
def doomed_library(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped directory, which names its effects and may be told to die before one."""
    copy = tmp_path_factory.mktemp("doomed") / library.name
    shutil.copytree(library, copy)
    shutil.copy(Path(__file__).with_name("doomed.py"), copy / "__main__.py")
    return copy


@pytest.fixture
def new_client(doomed_library: Path, tmp_path: Path):
    hosts: list[Host] = []

    def make() -> Client:
        hosts.append(Host(tmp_path / f"host-{len(hosts)}", doomed_library, chips=1))
        return Client(hosts[-1])

    yield make
    for host in hosts:
        host.kill_everything()


def undisturbed(new_client: Callable[[], Client], life: str) -> list[tuple[str, int]]:
    """The points of a life, each with its first passings."""
    client = new_client()
    LIVES[life](client)
    judge(client, life)
    return [(name, passing) for name, passing in client.passed() if passing <= PASSINGS]


def killed_at(new_client: Callable[[], Client], life: str, point: str, passing: int) -> bool:
    """Lives the life, dies at that point, and is judged; False when it didn't come by there."""
    client = new_client()
    client.doomed_at(point, passing)
    try:
        LIVES[life](client)
        judge(client, life)
    except Exception as error:
        raise AssertionError(f"{life}, killed at passing {passing} of {point!r}") from error
    finally:
        client.host.kill_everything()
    return client.killed() == [point]


TELLING = [
    ("plain", "enqueue: rename control/gpt/state.json", 1),
    ("plain", "enqueue: run work", 1),
    ("plain", "enqueue: answer", 1),
    ("plain", "work: started supervise", 1),
    ("plain", "supervise: rename control/gpt/state.json", 1),
    ("plain", "supervise: write pipe", 1),
    ("plain", "training: exec", 1),
    ("plain", "supervise: open runs/gpt/metrics.jsonl", 1),
    ("plain", "supervise: rename control/gpt/state.json", 2),
    ("plain", "supervise: remove control/gpt/secrets.json", 1),
    ("retried", "supervise: pwrite runs/gpt/log.txt", 1),
    ("stopped", "stop: rename control/gpt/stop.json", 1),
    ("rebooted", "wake: run work", 1),
    ("moved", "restore: rename runs/gpt", 1),
    ("again", "enqueue: rename runs/.gpt.before", 1),
    ("coded", "code: started git clone", 1),
]


@pytest.mark.parametrize(("life", "point", "passing"), TELLING)
def test_killed_at_a_telling_point_a_run_ends_as_if_nothing_had_happened(
    new_client: Callable[[], Client], life: str, point: str, passing: int
) -> None:
    assert killed_at(new_client, life, point, passing), "it did not come by there"


def test_a_git_whose_caller_was_killed_is_waited_for(new_client: Callable[[], Client]) -> None:
    host = new_client().host
    slow, real = host.root / "home/bin/git", shutil.which("git")
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *checkout*)\n  echo . >>{host.root}/checkouts\n'
        f'  while [ ! -e {host.root}/go ]; do sleep 0.02; done;;\nesac\nexec {real} "$@"\n'
    )
    slow.chmod(0o755)
    repository = host.root / "home/work"
    repository.mkdir()
    git(repository, "init", "--quiet")
    head = commit(repository, "first")
    send(host, repository, head)
    host.env["PATH"] = f"{slow.parent}:{host.env['PATH']}"
    request = json.dumps({"repo": REPO, "commit": head}).encode() + b"\n"
    killed, again = host.start("code"), host.start("code")
    with killed, again:
        assert killed.stdin
        killed.stdin.write(request)
        killed.stdin.flush()
        checkouts = host.root / "checkouts"
        wait_until(checkouts.exists, "the first checkout")
        killed.kill()
        killed.wait()
        assert again.stdin
        again.stdin.write(request)
        again.stdin.flush()
        lock = host.base / "code" / REPO / "lock"
        wait_until(lambda: str(lock) in opened_by(again.pid), "the second to come to the lock")
        (host.root / "go").touch()
        answer = json.loads(again.communicate(timeout=DEADLINE_S)[0])
    assert answer["commit"] == head, answer
    assert git(Path(answer["tree"]), "status", "--porcelain") == ""


def opened_by(pid: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found


@pytest.mark.faults
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("life", LIVES)
def test_killed_before_any_of_its_effects_a_verb_loses_and_doubles_nothing(
    new_client: Callable[[], Client], life: str, verb: str
) -> None:
    same = undisturbed(new_client, "plain") if life != "plain" else []
    points = [
        point for point in undisturbed(new_client, life) if point[0].startswith(f"{verb}: ") and point not in same
    ]
    if not points:
        pytest.skip(f"{verb} does nothing in this life")
    missed = [point for point in points if not any(killed_at(new_client, life, *point) for _ in range(TRIES))]
    assert missed == []
