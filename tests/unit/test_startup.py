"""A command pays only for what it uses: the heavy libraries come with the first connection or call."""

from __future__ import annotations

import subprocess
import sys

import pytest

# (not pydantic: typer itself imports it as soon as a command has options)
HEAVY = ("paramiko", "google", "requests", "asyncssh", "starlette", "uvicorn", "yaml", "rich.console")
CODE = f"""
import sys
from tpufleet.__main__ import run
code = run(sys.argv[1:])
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
raise SystemExit(code)
"""


@pytest.mark.parametrize("words", [["--help"], ["create", "--help"], ["emulator", "--help"], ["--version"]])
def test_help_imports_no_heavy_library(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
