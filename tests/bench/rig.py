"""What the benchmarks work with: a project on the rehearsal cloud, and OpenSSH's own clients beside it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.measure import Row, Skipped, timed
from tests.project import JOBS, Project, missing

CREATE_SECONDS = 2  # what the rehearsal cloud takes for a node
AGREED = re.compile(r"kex: algorithm: (\S+)")


@contextmanager
def rehearsal(directory: Path, *, count: int, jobs: str = JOBS) -> Generator[Project]:
    """A project whose rehearsal cloud runs and whose `count` v2-8 nodes are not made yet; stopped at the end."""
    project = Project.make(directory, count=count, jobs=jobs)
    file = directory / "tpufleet.yaml"
    file.write_text(file.read_text().replace("create_seconds: 0", f"create_seconds: {CREATE_SECONDS}"))
    try:
        project.run("emulator", "start")
        yield project
    finally:
        project.stop()


def where_possible(
    what: str, needs: Sequence[str], measure: Callable[[], Sequence[Row | Skipped]]
) -> Sequence[Row | Skipped]:
    """What `measure` gives; where one of the programs it `needs` is missing, that instead."""
    reasons = [reason for program in needs if (reason := missing(program))]
    return [Skipped(what, ", ".join(reasons))] if reasons else measure()


def tpufleet(project: Project, *words: str) -> Callable[[], float]:
    """A work: `tpufleet WORDS…`, from the start of its process to the end."""
    return lambda: timed(lambda: project.run(*words))


def openssh_config(project: Project) -> Path:
    """The configuration with which OpenSSH's clients reach the project's hosts, keys verified."""
    return Path(project.json("ssh-config")["file"])


def quietly(words: Sequence[str | Path], stdin: str = "") -> None:
    """Run a peer's command to its end; it must succeed."""
    subprocess.run(words, input=stdin, text=True, capture_output=True, check=True)


def key_exchange(config: Path, host: str, offer: Sequence[str] = ()) -> str:
    """What `host` agrees on with a client that offers `offer` in this order (nothing: OpenSSH's own default).

    A server takes the first of the client's list that it knows (RFC 4253, 7.1), whichever client it is.
    """
    offered = ["-o", f"KexAlgorithms={','.join(offer)}"] if offer else []
    said = subprocess.run(
        ["ssh", "-v", "-n", "-F", config, *offered, host, "true"], capture_output=True, text=True, check=True
    )
    found = AGREED.search(said.stderr)
    return found[1] if found else "an exchange that ssh does not name"
