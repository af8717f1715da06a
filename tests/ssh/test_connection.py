"""Commands over a connection: exit codes, bytes both ways, floods, cuts and silence."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

from tests.ssh.servers import QUICK, OpenSsh, Server
from tpufleet.errors import HostFault, StateError, Unreachable
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.limits import Limits
from tpufleet.ssh.port import Connection, quote

NOISE = bytes(range(256)) * 40_000  # 10 MB


@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_a_commands_exit_code_comes_home(connection: Connection, code: int) -> None:
    assert connection.run(f"exit {code}").exit_code == code


def test_a_command_that_a_signal_ended_has_exit_code_255(connection: Connection) -> None:
    assert connection.run("kill -KILL $$").exit_code == 255


def test_stdout_and_stderr_come_apart(connection: Connection) -> None:
    result = connection.run("echo to out; echo to err >&2")
    assert (result.stdout, result.stderr) == (b"to out\n", b"to err\n")


def test_ten_megabytes_of_any_bytes_pass_both_ways(connection: Connection) -> None:
    assert connection.run("cat", stdin=NOISE).stdout == NOISE


def test_a_flood_on_stderr_does_not_block_stdout(connection: Connection) -> None:
    result = connection.run("head -c 9000000 /dev/zero >&2; echo done; echo last words >&2")
    assert result.stdout == b"done\n"
    assert result.stderr.endswith(b"\0last words\n")
    assert len(result.stderr) == Limits().stderr_bytes


def test_input_that_nobody_reads_holds_nothing_up(connection: Connection) -> None:
    assert connection.run("exit 3", stdin=NOISE).exit_code == 3


def test_commands_that_end_before_their_input_do_not_cost_the_connection(connection: Connection) -> None:
    """OpenSSH ends the connection for a single packet that comes after a channel's close."""
    outcomes = gather(range(150), lambda code: connection.run(f"exit {code}", stdin=NOISE[:100_000]).exit_code)
    assert [outcome.unwrap() for outcome in outcomes] == list(range(150))


def test_quoted_words_reach_the_command_as_they_are(connection: Connection) -> None:
    words = ["printf", "%s|", "two words", "$HOME", "`id`", "a'b\"c", "", "*", "ü", "line\nbreak", "-n"]
    said = connection.run(quote(words)).stdout
    assert said.split(b"|")[:-1] == [word.encode() for word in words[2:]]


def test_a_word_that_is_no_text_keeps_its_bytes(sshd: OpenSsh) -> None:
    with sshd.dialer() as dialer:
        assert dialer.connect(sshd.host).run(quote(["printf", "%s", "\udcff"])).stdout == b"\xff"


def test_a_nul_in_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote(["echo", "a\0b"])


def test_a_command_that_takes_too_long_is_given_up(connection: Connection) -> None:
    with pytest.raises(HostFault, match="not over") as caught:
        connection.run("exec sleep 5", timeout_s=0.3)
    assert (caught.value.kind, caught.value.where) == ("timeout", "tpu-0-w0")
    assert connection.run("echo still here").stdout == b"still here\n"


def test_an_answer_that_is_too_long_is_not_taken_in(server: Server) -> None:
    with server.dialer(limits=Limits(answer_bytes=1 << 20)) as dialer:
        connection = dialer.connect(server.host)
        with pytest.raises(HostFault, match="longer than 1 MiB"):
            connection.run("head -c 3000000 /dev/zero")
        assert connection.run("true").exit_code == 0


def test_a_stream_is_a_conversation(connection: Connection) -> None:
    with connection.stream("cat", keep_stdin_open=True) as stream:
        stream.write(b"first line\n")
        assert stream.readline(100) == b"first line\n"
        stream.write(b"second\nexactly")
        assert stream.readline(100) == b"second\n"
        assert stream.read_exactly(7) == b"exactly"
        stream.unread(b"again")
        assert stream.read(100) == b"again"
        stream.close_stdin()
        assert stream.read(100) == b""
        assert stream.wait() == 0


def test_waiting_drops_what_was_not_read(connection: Connection) -> None:
    with connection.stream("head -c 9000000 /dev/zero; exit 4") as stream:
        assert stream.wait() == 4


def test_a_short_answer_and_a_long_line_are_said(connection: Connection) -> None:
    with connection.stream("printf abc") as stream, pytest.raises(HostFault, match="3 of 5 bytes"):
        stream.read_exactly(5)
    with connection.stream("head -c 5000 /dev/zero") as stream, pytest.raises(HostFault, match="line of more than 100"):
        stream.readline(100)


def test_writing_to_a_command_that_ended_is_said(connection: Connection) -> None:
    with connection.stream("true", stdin=None) as stream:
        assert stream.wait() == 0
        with pytest.raises(HostFault, match="no more input"):
            stream.write(NOISE)


def test_leaving_a_stream_hangs_up(connection: Connection, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    with connection.stream(f"cat > /dev/null; touch {ended}", keep_stdin_open=True):
        assert not ended.exists()
    assert connection.run(f"while [ ! -e {ended} ]; do sleep 0.05; done", timeout_s=20).exit_code == 0


def test_a_file_is_sent_as_stdin_and_the_progress_told(connection: Connection, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(NOISE)
    told: list[int] = []
    result = connection.send_file("sha256sum", path, progress=told.append)
    assert result.stdout.split()[0].decode() == hashlib.sha256(NOISE).hexdigest()
    assert sum(told) == len(NOISE)


def test_a_file_that_cannot_be_read_is_never_an_empty_file_there(connection: Connection, tmp_path: Path) -> None:
    there = tmp_path / "there"
    with pytest.raises(StateError, match="can't be read"):
        connection.send_file(f"cat > {there}.part && mv {there}.part {there}.renamed", tmp_path)
    with pytest.raises(StateError, match="No such file"):
        connection.send_file("cat", tmp_path / "absent")


def test_many_commands_at_once_share_one_connection(connection: Connection) -> None:
    outcomes = gather(range(60), lambda number: connection.run(f"echo {number}").stdout, limit=20)
    assert [outcome.unwrap() for outcome in outcomes] == [f"{number}\n".encode() for number in range(60)]


@pytest.mark.parametrize("command", ["cat", "yes >&2"])
def test_a_host_that_goes_silent_is_unreachable_soon(sshd: OpenSsh, command: str) -> None:
    with sshd.dialer(limits=QUICK) as dialer:
        connection = dialer.connect(sshd.host)
        with connection.stream(command, keep_stdin_open=True) as stream:
            sshd.freeze()
            begun = time.monotonic()
            with pytest.raises(Unreachable, match="stopped answering"):
                stream.read(1)
            assert time.monotonic() - begun < 5


def test_writing_to_a_host_that_goes_silent_ends_too(sshd: OpenSsh) -> None:
    with sshd.dialer(limits=QUICK) as dialer, dialer.connect(sshd.host).stream("cat", stdin=None) as stream:
        sshd.freeze()
        with pytest.raises(Unreachable, match="stopped answering"):
            stream.write(NOISE)


def test_a_new_command_on_a_silent_host_is_unreachable(sshd: OpenSsh) -> None:
    with sshd.dialer(limits=QUICK) as dialer:
        connection = dialer.connect(sshd.host)
        sshd.freeze()
        with pytest.raises(Unreachable, match="stopped answering"):
            connection.run("true", timeout_s=None)


def test_a_quiet_command_on_a_healthy_host_is_waited_for(sshd: OpenSsh) -> None:
    with sshd.dialer(limits=QUICK) as dialer:
        assert dialer.connect(sshd.host).run("sleep 1.5; echo done").stdout == b"done\n"


def test_a_cut_connection_is_not_taken_for_the_end_of_the_output(sshd: OpenSsh) -> None:
    with sshd.dialer(limits=QUICK) as dialer, dialer.connect(sshd.host).stream("echo begun; cat", stdin=None) as stream:
        assert stream.readline(100) == b"begun\n"
        sshd.stop()
        with pytest.raises(Unreachable):
            stream.read(1)
