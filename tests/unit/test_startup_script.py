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


def run(script: str, tmp_path: Path, *, agent: bool = False) -> str:
    """What it prints; it finds a Python here that only writes down how it was called. `agent`: the host has one."""
    if agent:
        (tmp_path / "var/lib/tpufleet/lib/current").mkdir(parents=True)
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
    environment["TPUFLEET_HOST_ROOT"] = str(tmp_path)
    # both are waited for here, since they write to the same pipe
    done = subprocess.run(
        ["/bin/bash", "-c", str(file)], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_without_ttl_and_script_it_wakes_the_agent_and_that_is_all(tmp_path: Path) -> None:
    assert startup_script(b"", keeps_ttl=True) == startup_script(None, keeps_ttl=True)
    assert run(startup_script(None, keeps_ttl=False), tmp_path, agent=True) == ""
    assert (tmp_path / "called").read_text() == f"-ES {tmp_path}/var/lib/tpufleet/lib/current wake\n"


def test_a_host_without_an_agent_or_with_a_unit_of_its_own_is_left_alone(tmp_path: Path) -> None:
    unit = tmp_path / "etc/systemd/system/tpufleet.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert run(startup_script(PLAIN, keeps_ttl=False), tmp_path, agent=True) == "plain 2\n"
    assert not (tmp_path / "called").exists()


def test_the_timer_gets_the_program_whole(tmp_path: Path) -> None:
    from tpufleet.host import ttl

    script = startup_script(None, keeps_ttl=True)
    run(script, tmp_path)
    assert (tmp_path / "called").read_text() == "-\n"
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
    script = startup_script(own, keeps_ttl=True)
    assert run(script, tmp_path) == said
    assert (tmp_path / "called").exists()


def test_a_program_that_is_no_text_runs_too(tmp_path: Path) -> None:
    program = Path("/bin/true").read_bytes()
    script = startup_script(program, keeps_ttl=False)
    assert run(script, tmp_path) == ""


def test_a_script_that_metadata_cannot_hold_is_refused_with_its_size() -> None:
    assert startup_script(b"#" * (LARGEST * 2 // 3), keeps_ttl=False)
    with pytest.raises(UsageError, match="346 KB as it is sent, metadata holds 256 KB"):
        startup_script(b"#" * LARGEST, keeps_ttl=False)
