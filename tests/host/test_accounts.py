"""The verb `accounts` on a host without root: everything but what needs uids of its own (see test_accounts_root)."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpufleet.host import accounts, expiry
from tpufleet.host.errors import HostError
from tpufleet.host.places import Places

from .harness import Host, alive, wait_until
from .people import apply, furnish, home, key_of, keys, line_of, mode, person, request, told, written

URL = "https://example.invalid/me/work.git"


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return furnish(make_host())


def later(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds")


def test_an_account_has_a_closed_home_one_key_and_the_fleets_hosts(host: Host) -> None:
    hosts = [{"name": "tpu-1-w0", "address": "10.0.0.9", "port": 22, "key": key_of("tpu-1")}]
    assert apply(host, person("ada", 0), person("bob"), hosts=hosts) == {"ada": "made", "bob": "made"}
    assert line_of(host, "passwd", "ada") == [
        "ada", "x", "20000", "20000", "tpufleet sherlock", "/home/ada", "/bin/bash",
    ]  # fmt: skip
    assert line_of(host, "group", "ada") == ["ada", "x", "20000", ""]
    assert (line_of(host, "shadow", "ada") or [])[1] == "*"
    at = home(host, "ada")
    modes = [mode(at / name) for name in ("", ".ssh", ".ssh/authorized_keys", ".ssh/config", "runs")]
    assert modes == [0o750, 0o700, 0o600, 0o600, 0o750]
    assert keys(host, "ada") == f"{key_of('ada')}\n"
    settings = host.root / "etc/tpufleet"
    assert (at / ".ssh/config").read_text() == f"Include {settings}/ssh_config  # tpufleet: the fleet's hosts\n"
    asked = subprocess.run(
        ["ssh", "-G", "-F", str(at / ".ssh/config"), "tpu-1-w0"], capture_output=True, text=True, check=True
    )
    assert {"hostname 10.0.0.9", "hostkeyalias tpu-1-w0", "stricthostkeychecking true"} <= set(
        asked.stdout.splitlines()
    )
    assert (settings / "known_hosts").read_text() == f"tpu-1-w0 {key_of('tpu-1')}\n"
    assert "on-chip" in (host.root / "etc/motd.d/tpufleet").read_text()
    assert mode(host.root / "usr/local/bin/chips") == mode(host.root / "usr/local/bin/on-chip") == 0o755
    assert {name: entry["seat"] for name, entry in written(host).items()} == {"ada": [0], "bob": []}


def test_asked_again_nothing_is_changed(host: Host) -> None:
    everybody = [person("ada", 0, share=True), person("bob", expires=later(3600))]
    apply(host, *everybody)

    def seen() -> dict[str, Any]:
        paths = [path for path in host.root.rglob("*") if "doom" not in path.parts]
        return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_mode) for path in paths}

    before = seen()
    assert apply(host, *everybody) == {"ada": "kept", "bob": "kept"}
    assert seen() == before


def test_what_has_changed_is_changed_and_said(host: Host) -> None:
    apply(host, person("ada", 0), person("bob"))
    assert apply(host, person("ada", 0, key=key_of("new")), person("bob", 1)) == {"ada": "changed", "bob": "changed"}
    assert keys(host, "ada") == f"{key_of('new')}\n"
    home(host, "bob").chmod(0o777)
    (home(host, "bob") / ".ssh/authorized_keys").write_text("command=me ssh-rsa AAAA\n")
    (home(host, "bob") / ".ssh/authorized_keys2").write_text(f"{key_of('friend')}\n")
    assert apply(host, person("ada", 0, key=key_of("new")), person("bob", 1)) == {"ada": "kept", "bob": "changed"}
    assert (mode(home(host, "bob")), keys(host, "bob")) == (0o750, f"{key_of('bob')}\n")
    assert not (home(host, "bob") / ".ssh/authorized_keys2").exists()


BAD = [
    ({"name": "Ada"}, "is not a plain user name"),
    ({"name": "-ada"}, "is not a plain user name"),
    ({"name": "../ada"}, "is not a plain user name"),
    ({"name": "a" * 33}, "is not a plain user name"),
    ({"name": "ada\n"}, "is not a plain user name"),
    ({"name": None}, "is not a plain user name"),
    ({"uid": 0}, "is not a person's uid"),
    ({"uid": 1000}, "is not a person's uid"),
    ({"uid": True}, "is not a person's uid"),
    ({"uid": "20000"}, "is not a person's uid"),
    ({"key": f'command="sh" {key_of("ada")}'}, "options before a key"),
    ({"key": f"{key_of('ada')}\n{key_of('eve')}"}, "more than one line"),
    ({"key": "-----BEGIN OPENSSH PRIVATE KEY-----"}, "THIS IS A PRIVATE KEY"),
    ({"key": None}, "is not a key"),
    ({"seat": [0, 1, 2]}, "a seat has 1, 2, 4 or 8 chips"),
    ({"seat": [16]}, "is not a chip's number"),
    ({"seat": "0"}, "a seat is a list"),
    ({"expires": "tomorrow"}, "is not a time such as"),
    ({"expires": "2026-12-01T00:00:00"}, "is not a time such as"),
    ({"share": 1}, "is not share"),
    ({"clone": {"url": "--upload-pack=sh", "name": "work", "mirror": None}}, "a repository's address must be"),
    ({"clone": {"url": URL, "name": "../work", "mirror": None}}, "is not a directory's name"),
    ({"clone": {"url": URL, "name": "work", "mirror": "../.."}}, "is not a repository's id"),
]


def test_what_is_wrong_with_one_keeps_nobody_else_from_their_account(host: Host) -> None:
    wrong = [person("eve") | {"uid": 21_000 + number} | fields for number, (fields, _) in enumerate(BAD)]
    entries = host.call("accounts", **request(person("ada"), *wrong))["accounts"]
    ada, *refused = entries
    assert ada["state"] == "made"
    assert [entry["state"] for entry in refused] == ["refused"] * len(BAD)
    for (_, why), entry in zip(BAD, refused, strict=True):
        assert why in entry["why"], entry
    assert line_of(host, "passwd", "eve") is None
    assert not home(host, "eve").exists()


def test_nobody_has_what_is_somebody_elses(host: Host) -> None:
    entries = told(
        host,
        person("ada", 0),
        person("bob", 0),
        person("cyd", key=key_of("ada")),
        person("dan", uid=20_000),
    )
    assert {name: (entry["state"], entry["why"]) for name, entry in entries.items()} == {
        "ada": ("made", None),
        "bob": ("refused", "chip 0 is ada's seat"),
        "cyd": ("refused", "this key is ada's: everybody needs one of their own"),
        "dan": ("refused", "this uid is ada's"),
    }


def test_an_account_that_we_did_not_make_is_refused_and_left_alone(host: Host) -> None:
    lines = "ada:x:1000:1000:Ada,,,:/home/ada:/bin/sh\nother:x:20001:20001::/home/other:/bin/sh\n"
    (host.root / "etc/passwd").write_text(lines)
    (host.root / "etc/group").write_text("cyd:x:50:\n")
    why = {name: entry["why"] for name, entry in told(host, *map(person, ("ada", "bob", "cyd", "dan"))).items()}
    assert why == {
        "ada": "there is an account ada on this host that tpufleet did not make",
        "bob": "uid 20001 is other's on this host",
        "cyd": "there is a group cyd (50) on this host, which tpufleet did not make",
        "dan": None,
    }
    assert (host.root / "etc/passwd").read_text().startswith(lines)
    assert not home(host, "ada").exists()
    assert apply(host) == {"dan": "revoked"}
    assert (host.root / "etc/passwd").read_text().startswith(lines)


def test_another_fleets_people_are_not_ours(host: Host) -> None:
    apply(host, person("ada"))
    error = host.error("accounts", **request(person("bob"), fleet="moriarty"))
    assert error == {"kind": "bad-request", "message": "the people on this host are those of the fleet sherlock"}
    (host.base / "people.json").unlink()
    entries = told(host, person("ada"), person("bob"), fleet="moriarty")
    assert entries["ada"]["why"] == "the account ada on this host is of the fleet sherlock"
    assert entries["bob"]["state"] == "made"


def test_an_emulated_host_never_takes_the_machines_own_programs(make_host: Callable[..., Host]) -> None:
    """Without stand-ins there are no accounts: useradd and pkill of the machine would act on the machine."""
    host = make_host()
    host.base.mkdir(parents=True)
    assert told(host, person("ada"))["ada"]["why"] == "there is no useradd on this host"


def test_nobody_but_root_makes_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for verb in (accounts.accounts, expiry.keep):
        with pytest.raises(HostError, match="accounts are root's to make"):
            verb(Places(Path("/")), request(person("ada")))


def test_another_uid_than_the_account_has_is_refused(host: Host) -> None:
    apply(host, person("ada"))
    assert told(host, person("ada", uid=20_500))["ada"]["why"] == (
        "the account ada has uid 20000 here, and 20500 is wanted"
    )


def test_who_is_gone_is_revoked_and_comes_back_to_the_same_account(host: Host) -> None:
    apply(host, person("ada", 0), person("bob", 1))
    (home(host, "ada") / "notes").write_text("mine")
    assert apply(host, person("bob", 1)) == {"ada": "revoked", "bob": "kept"}
    assert keys(host, "ada") is None
    shadow = line_of(host, "shadow", "ada") or []
    assert (shadow[1], shadow[7]) == ("!*", "1")
    assert (written(host)["ada"]["state"], written(host)["ada"]["seat"]) == ("revoked", [])
    assert (home(host, "ada") / "notes").read_text() == "mine"
    assert apply(host, person("bob", 1)) == {"ada": "revoked", "bob": "kept"}
    assert apply(host, person("ada", 0), person("bob", 1)) == {"ada": "changed", "bob": "kept"}
    shadow = line_of(host, "shadow", "ada") or []
    assert (shadow[1], shadow[7], keys(host, "ada")) == ("*", "", f"{key_of('ada')}\n")


def test_accounts_are_known_as_ours_without_people_json(host: Host) -> None:
    apply(host, person("ada", 0), person("bob"))
    (host.base / "people.json").unlink()
    assert apply(host, person("bob")) == {"ada": "revoked", "bob": "kept"}
    (host.base / "people.json").write_text("[1, 2")
    assert apply(host, person("bob")) == {"ada": "revoked", "bob": "kept"}


def session(host: Host, name: str) -> subprocess.Popen[bytes]:
    """Something of a person's that runs on a process host."""
    env = host.env | {"TPUFLEET_PERSON": name, "USER": name}
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env, start_new_session=True)


def test_revoking_ends_what_the_person_runs_and_nothing_else(host: Host) -> None:
    apply(host, person("ada"), person("bob"))
    with session(host, "ada") as hers, session(host, "bob") as his:
        answer = host.call("accounts", **request(person("bob")))
        assert (hers.wait(5), answer["sessions_ended"]) == (-9, 1)
        assert alive(his.pid)
        his.kill()


def test_a_time_that_is_over_closes_the_account(host: Host) -> None:
    assert apply(host, person("ada", expires=later(-1))) == {"ada": "expired"}
    assert line_of(host, "passwd", "ada") is None
    apply(host, person("ada", 0))
    assert apply(host, person("ada", 0, expires=later(-1))) == {"ada": "expired"}
    assert (keys(host, "ada"), written(host)["ada"]["state"]) == (None, "expired")
    assert apply(host, person("ada", 0, expires=later(3600))) == {"ada": "changed"}


def test_the_hosts_clock_ends_a_time_with_nobody_connected(host: Host) -> None:
    with session(host, "ada") as hers:
        apply(host, person("ada", 0, expires=later(1.5)), person("bob", expires=later(3600)))
        assert alive(hers.pid)
        wait_until(lambda: written(host)["ada"]["state"] == "expired", "the end")
        assert hers.wait(5) == -9
    assert (written(host)["ada"]["seat"], keys(host, "ada")) == ([], None)
    assert written(host)["bob"]["state"] == "here"
    assert expiring(host)
    apply(host, person("ada"), person("bob"))
    wait_until(lambda: not expiring(host), "nobody's time is limited any more")


def expiring(host: Host) -> list[int]:
    return [pid for pid in host.processes() if b"expire" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def test_one_process_waits_for_all_and_a_boot_starts_it_again(host: Host) -> None:
    apply(host, person("ada", expires=later(3600)))
    apply(host, person("ada", expires=later(3600)), person("bob", expires=later(3601)))
    assert len(wait_until(lambda: expiring(host), "it waits")) == 1
    host.reboot()
    assert not expiring(host)
    people = host.base / "people.json"
    people.write_text(people.read_text().replace(written(host)["ada"]["expires"], later(-1)))
    assert host.call("wake") == {"woken": False}
    assert (written(host)["ada"]["state"], keys(host, "ada")) == ("expired", None)
    assert len(wait_until(lambda: expiring(host), "it waits again")) == 1


def test_keys_carry_their_end_in_the_hosts_local_time(host: Host) -> None:
    host.env["TZ"] = "UTC-5:30"
    visitor = {"key": key_of("visitor"), "until": "2031-01-01T20:00:00Z"}
    apply(host, person("ada", expires="2030-01-01T20:00:00Z"), person("bob"), visitor=visitor)
    assert keys(host, "ada") == (
        f'expiry-time="20300102013000" {key_of("ada")}\nexpiry-time="20300102013000" {key_of("visitor")}\n'
    )
    assert keys(host, "bob") == f'{key_of("bob")}\nexpiry-time="20310102013000" {key_of("visitor")}\n'
    apply(host, person("ada"), person("bob"))
    assert keys(host, "ada") == f"{key_of('ada')}\n"
