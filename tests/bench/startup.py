"""What it costs to start the command at all."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.measure import Row, in_turn, ratios, timed
from tests.bench.rig import quietly


def run(_place: Path) -> list[Row]:
    """`tpufleet --help` against an interpreter that only imports the library of its command line."""
    python = sys.executable
    seconds = in_turn(
        11,
        {
            "ours": lambda: timed(lambda: quietly([python, "-m", "tpufleet", "--help"])),
            "typer": lambda: timed(lambda: quietly([python, "-c", "import typer"])),
            "python": lambda: timed(lambda: quietly([python, "-c", "pass"])),
        },
    )
    return [
        Row("tpufleet --help", "python -c 'import typer'", ratios(seconds["ours"], seconds["typer"])),
        Row("tpufleet --help", "python -c pass", ratios(seconds["ours"], seconds["python"])),
    ]
