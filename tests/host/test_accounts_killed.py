"""SIGKILL before each effect of the verb `accounts`: asked again, the accounts are as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .harness import Host, wait_until
from .lives import Client
from .people import apply, furnish, home, key_of, keys, line_of, mode, person, request, written
from .test_code import REPO, commit, git, send

PASSINGS = 2  # of one name: with two people everything has come round
SECOND = [person("bob", 0, key=key_of("new"), share=True), person("cyd", 1)]
TELLING = [
    ("accounts: rename people.json", 1),
    ("accounts: started useradd", 1),
    ("training: rename authorized_keys", 1),
    ("accounts: answer", 1),
]


@pytest.fixture(scope="session")
def doomed_library(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped directory, which names its effects and may be told to die before one."""
    copy = tmp_path_factory.mktemp("doomed-accounts") / library.name
    shutil.copytree(library, copy)
    shutil.copy(Path(__file__).with_name("doomed.py"), copy / "__main__.py")
    return copy


@pytest.fixture
def new_client(doomed_library: Path, library: Path, tmp_path: Path) -> Iterator[Callable[[], Client]]:
    """Makes hosts on which ada and bob have accounts, and the next call may be doomed."""
    hosts: list[Host] = []

    def make() -> Client:
        hosts.append(furnish(Host(tmp_path / f"host-{len(hosts)}", library, chips=2)))
        repository = tmp_path / f"work-{len(hosts)}"
        repository.mkdir()
        git(repository, "init", "--quiet")
        head = commit(repository, "first")
        send(hosts[-1], repository, head)
        hosts[-1].call("code", repo=REPO, commit=head)
        apply(hosts[-1], person("ada", 0), person("bob"))
        hosts[-1].library = doomed_library
        return Client(hosts[-1])

    yield make
    for host in hosts:
        host.kill_everything()


def wanted() -> dict[str, Any]:
    """Ada goes, bob gets her seat and another key, and shows his runs; cyd comes, with a clone."""
    clone = {"url": "https://example.invalid/me/work.git", "name": "work", "mirror": REPO}
    return request(*SECOND[:1], {**SECOND[1], "clone": clone, "expires": "2038-01-01T00:00:00Z"})


def judge(host: Host) -> None:
    """Everything is as the last request wanted it."""
    assert keys(host, "ada") is None
    shadow = line_of(host, "shadow", "ada") or []
    assert (shadow[1], shadow[7]) == ("!*", "1")
    assert keys(host, "bob") == f"{key_of('new')}\n"
    assert (keys(host, "cyd") or "").endswith(f" {key_of('cyd')}\n")
    assert {name: (entry["state"], entry["seat"]) for name, entry in written(host).items()} == {
        "ada": ("revoked", []), "bob": ("here", [0]), "cyd": ("here", [1]),
    }  # fmt: skip
    assert (home(host, "bob") / "runs").readlink() == host.base / "people/bob"
    assert (home(host, "cyd") / "work/.git").is_dir()
    assert mode(home(host, "cyd")) == 0o750
    assert (home(host, "cyd") / ".bashrc").read_text().count("tpufleet:") == 1
    assert (host.root / "etc/passwd").read_text().count("cyd") == 2  # the name and the home
    left = [path for path in host.root.rglob(".*.tpufleet") if path.exists()]
    assert left == []
    wait_until(lambda: len([pid for pid in host.processes() if _expires(pid)]) == 1, "one waits for cyd's end")


def _expires(pid: int) -> bool:
    return b"expire" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def killed_at(new_client: Callable[[], Client], point: str, passing: int) -> bool:
    """Dies at that point, is asked again and judged; False when it didn't come by there."""
    client = new_client()
    client.doomed_at(point, passing)
    try:
        code, out = client.host.raw("accounts", wanted())
        if code != 0:
            client.ask("accounts", **wanted())
        answer = json.loads(out) if code == 0 else None
        if answer and any(entry["state"] == "refused" for entry in answer["accounts"]):
            client.ask("accounts", **wanted())  # a child in a home was killed: it is said, and done the next time
        judge(client.host)
        again = client.ask("accounts", **wanted())["accounts"]
        assert [entry["state"] for entry in again] == ["kept", "kept", "revoked"]
    except Exception as error:
        raise AssertionError(f"killed at passing {passing} of {point!r}") from error
    finally:
        client.host.kill_everything()
    return client.killed() == [point]


@pytest.mark.parametrize(("point", "passing"), TELLING)
def test_killed_at_a_telling_point_the_accounts_become_as_wanted(
    new_client: Callable[[], Client], point: str, passing: int
) -> None:
    assert killed_at(new_client, point, passing), "it did not come by there"


@pytest.mark.faults
def test_killed_before_any_of_its_effects_the_accounts_become_as_wanted(new_client: Callable[[], Client]) -> None:
    client = new_client()
    client.ask("accounts", **wanted())
    judge(client.host)
    points = [(name, passing) for name, passing in client.passed() if passing <= PASSINGS]
    client.host.kill_everything()
    points = [point for point in points if point[0].startswith(("accounts: ", "training: "))]
    assert len(points) > 40
    missed = [point for point in points if not killed_at(new_client, *point)]
    assert missed == []
