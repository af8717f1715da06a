"""People's accounts on process hosts, made by stand-ins of useradd, usermod and pkill, entered by OpenSSH's client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import asyncssh
import pytest

from tpufleet.emulator.hosts import ProcessHost
from tpufleet.emulator.network import Link
from tpufleet.emulator.sshd import SshServer
from tpufleet.paths import REMOTE_BASE
from tpufleet.ssh.agent import ROOT, SHIP_AND_ASK
from tpufleet.ssh.bundle import bundle

from .rig import PARENT, USER, Rig, Shell, is_alive, until
from .test_authorized_keys import KEY

uids = itertools.count(20000)
MAKE = "sudo -n useradd --uid {1} --user-group --create-home --home-dir /home/{0} --shell /bin/bash --password '*' {0}"
SLEEPER = "setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("accounts"))
    yield rig
    rig.stop()


@pytest.fixture(scope="module")
def shell(rig: Rig) -> Shell:
    """OpenSSH's clients on a v2-8 that the tests share and leave up."""
    return Shell(rig.config(rig.create("m")))


def make(rig: Rig, shell: Shell) -> str:
    """An account with the operator's key."""
    uid = next(uids)
    shell.output(MAKE.format(f"p{uid}", uid))
    authorize(rig, f"p{uid}", public(rig))
    return f"p{uid}"


def public(rig: Rig) -> str:
    return rig.key.with_suffix(".pub").read_text()


def authorize(rig: Rig, name: str, lines: str, host: str = "m-w0") -> None:
    directory = home(rig, name, host) / ".ssh"
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / "authorized_keys").write_text(lines)


def home(rig: Rig, name: str, host: str = "m-w0") -> Path:
    return rig.root(host) / "home" / name


@pytest.fixture
def person(rig: Rig, shell: Shell) -> str:
    return make(rig, shell)


@pytest.fixture
def other(rig: Rig, shell: Shell) -> str:
    return make(rig, shell)


def enter(shell: Shell, person: str, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return shell.ssh(*command, options=["-l", person], stdin=stdin)


def told(shell: Shell, person: str, command: str) -> list[str]:
    """The words that `command` prints as that person."""
    done = enter(shell, person, command)
    assert done.returncode == 0, done
    return done.stdout.decode().split()


def may_enter(shell: Shell, person: str) -> bool:
    done = enter(shell, person, "true")
    assert done.returncode == 0 or b"Permission denied (publickey)" in done.stderr, done
    return done.returncode == 0


@contextlib.contextmanager
def open_session(shell: Shell, person: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running client, ended with the block if it hasn't ended by then."""
    line = ["ssh", "-F", str(shell.config), "-l", person, *words]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            client.kill()


def test_a_person_comes_in_as_themselves(rig: Rig, shell: Shell, person: str) -> None:
    number, here = person[1:], str(home(rig, person))
    assert told(shell, person, "whoami; id -un; id -u; id -gn; id -G") == [person, person, number, person, number]
    assert told(shell, person, 'echo "$USER" "$LOGNAME"; echo "$HOME" "$PWD"') == [person, person, here, here]
    assert shell.output(f"id {person}") == f"uid={number}({person}) gid={number}({person}) groups={number}({person})"
    assert shell.ssh("id nobody-there").returncode == 1


def test_the_operator_is_no_person_and_cannot_be_made_one(rig: Rig, shell: Shell) -> None:
    assert shell.output("whoami; id -un; sudo -n echo root; echo ${TPUFLEET_PERSON-none}").split() == [
        USER, USER, "root", "none",
    ]  # fmt: skip
    done = shell.ssh(MAKE.format(USER, 29999))
    assert (done.returncode, done.stderr) == (9, f"useradd: user '{USER}' already exists\n".encode())
    node = {"metadata": {"ssh-keys": f"{rig.ssh_keys()}\nguest:{public(rig)}"}}
    assert rig.http("PATCH", f"/v2/{PARENT}/nodes/m?updateMask=metadata", node)[0] == 200
    shell.output(MAKE.format("guest", next(uids)))
    assert told(shell, "guest", "sudo -n whoami; echo ${TPUFLEET_PERSON-none}") == ["guest", "none"]


def test_whoever_is_no_operator_any_more_has_no_sudo_whatever_the_accounts_say(rig: Rig) -> None:
    node = rig.create("late")
    shell = Shell(rig.config(node))
    shell.output(MAKE.format("ada", 20000))
    authorize(rig, "ada", public(rig), "late-w0")
    control = ["-o", f"ControlPath={rig.directory}/late"]
    with open_session(shell, "ada", "-M", "-N", *control, "w0"):
        until((rig.directory / "late").exists, "the connection")
        through = ["ssh", "-F", str(shell.config), *control, "-l", "ada", "w0"]
        assert subprocess.run([*through, "id -u"], capture_output=True, check=False).stdout == b"20000\n"
        (rig.root("late-w0") / "etc/passwd").write_text("")
        said = subprocess.run([*through, "sudo -n true"], capture_output=True, check=False).stderr
        assert said == b"sudo: a password is required\n"
    rig.delete("late")


def test_a_person_has_no_sudo_and_makes_no_accounts(shell: Shell, person: str) -> None:
    for command in ("sudo -n true", "sudo true", "sudo -n -u root id"):
        done = enter(shell, person, command)
        assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"sudo: a password is required\n"), command
    for command in ("useradd eve", f"usermod --unlock {person}"):
        done = enter(shell, person, command)
        assert (done.returncode, done.stderr) == (1, f"{command.split()[0]}: Permission denied.\n".encode())
    assert shell.ssh("id eve").returncode == 1


def test_every_shell_reads_the_homes_own_files(rig: Rig, shell: Shell, person: str) -> None:
    for file in (".bashrc", ".profile"):
        place = home(rig, person) / file
        place.write_text(f"echo read-{file}\n{place.read_text()}")
    assert told(shell, person, "echo ran") == ["read-.bashrc", "ran"]
    login = enter(shell, person, stdin=b"echo ran\n").stdout.decode().split()
    assert login == ["read-.profile", "read-.bashrc", "ran"]


def test_tools_of_the_host_are_on_everybodys_path(rig: Rig, shell: Shell, person: str) -> None:
    tool = rig.root("m-w0") / "usr/local/bin/chips"
    tool.write_text("#!/bin/sh\necho four\n")
    tool.chmod(0o755)
    message = rig.root("m-w0") / "etc/motd.d/fleet"
    message.parent.mkdir(exist_ok=True)
    message.write_text("Try chips.\n")
    settings = rig.root("m-w0") / "etc/profile.d/fleet.sh"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text("export OF_THE_FLEET=yes\n")
    assert told(shell, person, "chips; bash -lc 'chips; echo $OF_THE_FLEET'") == ["four", "four", "yes"]
    on_a_terminal = shell.ssh(options=["-tt", "-l", person], stdin=b"chips\nexit\n").stdout
    assert b"Try chips.\r\n" in on_a_terminal
    assert f"{person}@m-w0:~$ ".encode() in on_a_terminal


def test_files_are_copied_from_and_to_the_home(rig: Rig, shell: Shell, person: str, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(bytes(range(256)) * 1000)
    for options in ([], ["-O"]):
        assert shell.run("scp", *options, "-o", f"User={person}", str(source), "w0:there").returncode == 0
        assert (home(rig, person) / "there").read_bytes() == source.read_bytes()
        assert shell.run("scp", *options, "-o", f"User={person}", "w0:there", str(back)).returncode == 0
        assert back.read_bytes() == source.read_bytes()
        back.unlink()
        (home(rig, person) / "there").unlink()


def test_only_keys_of_their_own_let_a_person_in(rig: Rig, shell: Shell, person: str, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "new"], check=True)
    new = (tmp_path / "new.pub").read_text()
    assert not may_enter(shell, "nobody-there")
    assert not may_enter(shell, "root")
    authorize(rig, person, new)
    assert not may_enter(shell, person)
    authorize(rig, person, f"# both\n\nnonsense\n{new}{public(rig)}")
    assert may_enter(shell, person)
    (home(rig, person) / ".ssh/authorized_keys").unlink()
    assert not may_enter(shell, person)


def test_a_key_is_good_until_its_expiry_time(rig: Rig, shell: Shell, person: str) -> None:
    def with_time(text: str) -> None:
        authorize(rig, person, f'expiry-time="{text}" {public(rig)}')

    with_time("20200101")
    assert not may_enter(shell, person)
    soon = datetime.now().astimezone() + timedelta(hours=2)  # the host's local time
    with_time(f"{soon:%Y%m%d%H%M}")
    assert may_enter(shell, person)


def test_a_closed_account_stays_closed_until_it_is_opened_again(shell: Shell, person: str) -> None:
    shell.output(f"sudo -n usermod --lock --expiredate 1 {person}")
    assert not may_enter(shell, person)
    shell.output(f"sudo -n usermod --unlock --expiredate '' {person}")
    assert may_enter(shell, person)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for date, opens in ((f"{tomorrow:%Y-%m-%d}", True), (f"{tomorrow - timedelta(days=1):%Y-%m-%d}", False)):
        shell.output(f"sudo -n usermod -e {date} {person}")
        assert may_enter(shell, person) is opens, date


def test_pkill_ends_a_persons_session_and_what_left_it_and_nobody_elses(shell: Shell, person: str, other: str) -> None:
    theirs = int(told(shell, person, SLEEPER)[0])
    others, operators = int(told(shell, other, SLEEPER)[0]), int(shell.output(SLEEPER))
    with open_session(shell, person, "w0", "echo in; cat") as live, open_session(shell, other, "w0", "cat") as stays:
        assert live.stdout and stays.stdin and stays.stdout
        assert live.stdout.readline() == b"in\n"
        done = shell.ssh(f"sudo -n pkill -KILL -u {person[1:]}")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert live.wait(5) == 255
        assert shell.ssh(f"sudo -n pkill -KILL -U {person}").returncode == 1
        assert not is_alive(theirs)
        assert is_alive(others)
        assert is_alive(operators)
        assert stays.communicate(b"still here")[0] == b"still here"
    assert shell.ssh(f"sudo -n pkill -u {other}").returncode == 0
    until(lambda: not is_alive(others), "TERM is what is sent without a word")
    assert is_alive(operators)
    shell.output(f"kill {operators}")


def test_pkill_ends_connections_in_which_nothing_runs(shell: Shell, person: str, tmp_path: Path) -> None:
    control = ["-o", f"ControlPath={tmp_path}/c"]
    with open_session(shell, person, "-M", "-N", *control, "w0") as master:
        until((tmp_path / "c").exists, "the connection")
        through = ["ssh", "-F", str(shell.config), *control, "-l", person, "w0", "id -un"]
        assert subprocess.run(through, capture_output=True, check=False).stdout == f"{person}\n".encode()
        assert shell.ssh(f"sudo -n pkill -KILL -u {person}").returncode == 0
        assert master.wait(5) == 255


def test_whose_key_is_taken_away_while_they_come_in_is_out_again(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    asyncio.run(come_in_late(tmp_path / "key"))


async def come_in_late(key: Path) -> None:
    house = Mock(spec=ProcessHost)
    house.keys.return_value = {asyncssh.read_public_key(key.with_suffix(".pub")).public_data}

    def enter(user: str, cut: object) -> Callable[[], None]:
        assert (user, callable(cut)) == ("ada", True)
        house.keys.return_value = set()
        return gone

    gone = Mock()
    house.enter.side_effect = enter
    server = SshServer(house, Link())
    listening = socket.create_server(("127.0.0.1", 0))
    await server.open(listening, asyncssh.generate_private_key("ssh-ed25519"))
    trust = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes", "-oIdentitiesOnly=yes"]
    line = ["ssh", "-F", "none", *trust, "-i", str(key), "-p", str(listening.getsockname()[1]), "ada@127.0.0.1", "true"]
    client = await asyncio.create_subprocess_exec(*line, stderr=asyncio.subprocess.PIPE)
    _, said = await asyncio.wait_for(client.communicate(), 20)
    assert client.returncode == 255, said
    gone.assert_called_once_with()
    house.environment.assert_not_called()
    await server.close()


def test_a_persons_pkill_reaches_nobody_else(shell: Shell, person: str, other: str) -> None:
    others = int(told(shell, other, SLEEPER)[0])
    done = enter(shell, person, f"pkill -KILL -u {other}")
    assert (done.returncode, b"Operation not permitted" in done.stderr) == (1, True), done
    assert is_alive(others)
    assert shell.ssh(f"sudo -n pkill -KILL -u {other}").returncode == 0


def test_the_same_person_on_another_host_is_left_alone(rig: Rig, shell: Shell, person: str) -> None:
    elsewhere = Shell(rig.config(rig.create("other")))
    elsewhere.output(MAKE.format(person, person[1:]))
    authorize(rig, person, public(rig), "other-w0")
    theirs = int(told(elsewhere, person, SLEEPER)[0])
    assert shell.ssh(f"sudo -n pkill -KILL -u {person}").returncode == 1
    assert is_alive(theirs)
    rig.delete("other")
    assert not is_alive(theirs)
    assert not rig.root("other-w0").exists()


def test_after_a_reboot_accounts_and_homes_are_there_and_sessions_are_not(rig: Rig) -> None:
    node = rig.create("boots")
    shell = Shell(rig.config(node))
    shell.output(MAKE.format("ada", 20000))
    authorize(rig, "ada", public(rig), "boots-w0")
    theirs = int(told(shell, "ada", f"echo mine > kept; {SLEEPER}")[0])
    with open_session(shell, "ada", "w0", "echo in; cat") as live:
        assert live.stdout
        assert live.stdout.readline() == b"in\n"
        assert rig.http("POST", "/emulator/faults/reboot/boots-w0")[0] == 200
        assert live.wait(5) == 255
    assert not is_alive(theirs)
    assert told(shell, "ada", "cat kept; id -u") == ["mine", "20000"]
    rig.delete("boots")


def test_useradd_and_usermod_say_what_the_real_ones_say(shell: Shell, person: str) -> None:
    uid = person[1:]
    for command, status, says in (
        (f"useradd --uid 29000 {person}", 9, f"useradd: user '{person}' already exists"),
        (f"useradd --uid {uid} eve", 4, f"useradd: UID {uid} is not unique"),
        ("useradd --uid x eve", 3, "useradd: invalid user ID 'x'"),
        ("useradd Eve!", 3, "useradd: invalid user name 'Eve!': use --badname to ignore"),
        ("useradd --comment 'a:b' eve", 3, "useradd: invalid comment 'a:b'"),
        ("useradd --gid nowhere eve", 6, "useradd: group 'nowhere' does not exist"),
        ("useradd --home-dir /home/../etc eve", 3, "useradd: invalid home directory '/home/../etc'"),
        ("useradd --nonsense eve", 2, "useradd: option --nonsense not recognized"),
        ("useradd", 2, "useradd: exactly one login name is wanted"),
        ("usermod --lock eve", 6, "usermod: user 'eve' does not exist"),
        (f"usermod --expiredate soon {person}", 3, "usermod: invalid date 'soon'"),
        ("pkill -KILL -u eve", 2, "pkill: invalid user name: eve"),
        (
            f"pkill -u {person} sleep",
            2,
            "pkill: this is the stand-in of an emulated host, and knows no pattern beside a user",
        ),
    ):
        done = shell.ssh(f"sudo -n {command}")
        assert (done.returncode, done.stderr.decode()) == (status, f"{says}\n"), command
    assert shell.ssh("pkill -x no-such-program").returncode == 1  # the real one's business
    assert shell.ssh("id eve").returncode == 1
    etc = shlex.split(shell.output('echo "$TPUFLEET_HOST_ROOT/etc"'))[0]
    assert shell.output(f"grep {person} {etc}/passwd") == f"{person}:x:{uid}:{uid}::/home/{person}:/bin/bash"
    assert shell.output(f"stat -c %a {etc}/passwd {etc}/group {etc}/shadow").split() == ["644", "644", "640"]


def test_twenty_accounts_side_by_side_are_all_there(rig: Rig, shell: Shell) -> None:
    numbers = [next(uids) for _ in range(20)]
    shell.output(" & ".join(MAKE.format(f"p{uid}", uid) for uid in numbers) + " & wait")
    rows = (rig.root("m-w0") / "etc/passwd").read_text().splitlines()
    assert [f"p{uid}" for uid in numbers if not any(row.startswith(f"p{uid}:x:{uid}:") for row in rows)] == []


def apply(shell: Shell, *people: dict[str, Any]) -> dict[str, Any]:
    """The host's accounts made equal these people, by the host's agent; the state of each."""
    shipped = bundle()
    command = SHIP_AND_ASK.format(
        base=REMOTE_BASE, digest=shipped.digest, size=len(shipped.tar), root=ROOT, verb="accounts"
    )
    request = {"fleet": "sherlock", "host": "tpu-0-w0", "people": people, "hosts": [], "visitor": None}
    done = shell.ssh(command, stdin=shipped.tar + json.dumps(request).encode() + b"\n")
    assert done.returncode == 0, done
    return {entry["name"]: (entry["state"], entry["why"]) for entry in json.loads(done.stdout)["accounts"]}


def test_the_agents_accounts_are_entered_until_they_are_revoked_or_over(rig: Rig) -> None:
    shell = Shell(rig.config(rig.create("real")))
    ada = {"name": "ada", "uid": 20000, "key": " ".join(public(rig).split()[:2]), "seat": [0], "share": True}
    grace = {"name": "grace", "uid": 20001, "key": KEY, "seat": [1], "expires": "2099-01-01T00:00:00Z"}
    assert apply(shell, ada, grace) == {"ada": ("made", None), "grace": ("made", None)}
    assert apply(shell, ada, grace) == {"ada": ("kept", None), "grace": ("kept", None)}
    assert not may_enter(shell, "grace")
    pinned = "id -u; echo $TPU_VISIBLE_CHIPS; ls -d runs; command -v on-chip >/dev/null && echo tools"
    for command in (pinned, f"bash -lc {shlex.quote(pinned)}"):
        assert told(shell, "ada", command) == ["20000", "0", "runs", "tools"], command
    assert told(shell, "ada", "on-chip cpu -- sh -c 'echo $PJRT_DEVICE'") == ["CPU"]
    left = int(told(shell, "ada", SLEEPER)[0])
    with open_session(shell, "ada", "w0", "echo in; cat") as live:
        assert live.stdout
        assert live.stdout.readline() == b"in\n"
        assert apply(shell, grace)["ada"] == ("revoked", None)
        assert live.wait(5) == 255
    assert not is_alive(left)
    assert not may_enter(shell, "ada")
    assert apply(shell, ada, grace) == {"ada": ("changed", None), "grace": ("kept", None)}
    with open_session(shell, "ada", "w0", "echo in; cat") as live:
        assert live.stdout
        assert live.stdout.readline() == b"in\n"
        over = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
        ada["expires"] = f"{over:%Y-%m-%dT%H:%M:%SZ}"
        assert apply(shell, ada, grace)["ada"][0] in ("changed", "expired")  # the latter on a very slow machine
        assert live.wait(20) == 255
    assert datetime.now(UTC) >= over
    assert not may_enter(shell, "ada")
    rig.delete("real")
