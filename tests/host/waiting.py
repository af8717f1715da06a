"""A training that waits to be let go, and what can be seen of it."""

from __future__ import annotations

from .harness import Host, wait_until

# A training that waits until its run directory holds a file `go`, and ends with the code that stands in it.
WAITS = """
import os, pathlib, sys, time
run = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"])
with (run / "starts").open("a") as starts:
    starts.write(os.environ["TPUFLEET_ATTEMPT"] + " " + os.environ.get("TPU_VISIBLE_CHIPS", "-") + "\\n")
while not (run / "go").exists():
    time.sleep(0.01)
sys.exit(int((run / "go").read_text() or 0))
"""


def let_go(host: Host, run: str, code: int = 0) -> None:
    aside = host.run_dir(run) / ".go"
    aside.write_text(str(code))
    aside.rename(host.run_dir(run) / "go")


def starts(host: Host, run: str) -> list[str]:
    path = host.run_dir(run) / "starts"
    return path.read_text().splitlines() if path.exists() else []


def wait_for_start(host: Host, run: str, count: int = 1) -> None:
    wait_until(lambda: len(starts(host, run)) >= count, f"start {count} of {run}")
