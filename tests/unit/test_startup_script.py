"""The startup script as bash runs it: the timer in the background, then the person's own, whatever it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpufleet.errors import UsageError
from tpufleet.ops.startup import LARGEST, startup_script

PLAIN = b"echo plain $((1 + 1))\n"


def run(script: str, tmp_path: Path) -> str:
    """What it prints; the timer finds a Python here that only writes down how it was called."""
    file = tmp_path / "startup-script"
    file.write_text(script)
    file.chmod(0o700)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    python.write_text(
        f'#!/bin/sh\necho "$*" >"{tmp_path}/called.part"; cat >"{tmp_path}/program"\n'
        f'mv "{tmp_path}/called.part" "{tmp_path}/called"\n'
    )
    python.chmod(0o700)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    # bash waits here for the timer too, since it writes to the same pipe
    done = subprocess.run(
        ["/bin/bash", "-c", str(file)], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_nothing_to_do_is_no_script() -> None:
    assert startup_script(None, None) is None
    assert startup_script(None, b"") is None
    assert startup_script(1e9, b"") == startup_script(1e9, None)


def test_the_person_s_own_script_alone_stays_as_it_is() -> None:
    assert startup_script(None, PLAIN) == PLAIN.decode()


def test_the_timer_gets_the_end_and_the_program_whole(tmp_path: Path) -> None:
    from tpufleet.host import ttl

    script = startup_script(1795246504.4, None)
    assert script
    run(script, tmp_path)
    assert (tmp_path / "called").read_text() == "- 1795246504\n"
    assert (tmp_path / "program").read_text() == Path(ttl.__file__).read_text()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (PLAIN, "plain 2\n"),
        (b"#!/bin/sh\necho from sh", "from sh\n"),
        (f"#!{sys.executable}\nprint('from Python', 1 + 1)\n".encode(), "from Python 2\n"),
        (b"#!/bin/bash\ncat <<'END-OF-THE-SCRIPT'\n'$HOME' `id` \\\nEND-OF-THE-SCRIPT\n", "'$HOME' `id` \\\n"),
    ],
)
def test_the_person_s_script_runs_whatever_its_first_line(tmp_path: Path, own: bytes, said: str) -> None:
    script = startup_script(1e9, own)
    assert script
    assert run(script, tmp_path) == said
    assert (tmp_path / "called").exists()


def test_a_program_that_is_no_text_runs_too(tmp_path: Path) -> None:
    program = Path("/bin/true").read_bytes()
    script = startup_script(None, program)
    assert script
    assert run(script, tmp_path) == ""


def test_a_script_that_metadata_cannot_hold_is_refused_with_its_size() -> None:
    largest = b"#" * LARGEST
    assert startup_script(None, largest)
    with pytest.raises(UsageError, match="256 KB as it is sent, metadata holds 256 KB"):
        startup_script(None, largest + b"#")
    with pytest.raises(UsageError, match="too large"):
        startup_script(1e9, b"#" * (LARGEST - 4096))
