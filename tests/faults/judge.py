"""A project whose commands are killed, and the judge of what became of it.

The judge asks neither tpufleet nor its journal: the cloud keeps a book of its nodes, and every training writes down
each of its starts, outside of all that tpufleet looks after.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.project import Done, Project, until
from tpufleet.testing import TpuCloud, rehearsal

REPOSITORY = Path(__file__).resolve().parents[2]
NODES = ("tpu-0", "tpu-1")
STEPS = (10, 20)
MODEL_BLOCKS = 20_000  # of 32 bytes: more than one piece of an upload
TYPED_AT_MOST = 3  # until a command that was killed has to have settled

# A training that tells the judge of its start, saves, waits to be let go, and saves once more.
WORK = """\
import fcntl, hashlib, json, os, pathlib, time
run, book = os.environ["TPUFLEET_RUN_ID"], pathlib.Path(os.environ["BOOK"])
there, resume = pathlib.Path(os.environ["TPUFLEET_RUN_DIR"]), os.environ.get("TPUFLEET_RESUME")
began_at = json.loads((pathlib.Path(resume) / "manifest.json").read_text())["step"] if resume else 0
root = pathlib.Path(os.environ["TPUFLEET_HOST_ROOT"])
boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
start = [run, int(os.environ["TPUFLEET_ATTEMPT"]), boot, str(root), began_at]
alone = [open(book / f"run-{run}", "w"), open(root / f"chip-{os.environ['TPU_VISIBLE_CHIPS']}", "w")]
for lock in alone:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (book / "violations").open("a").write(f"{start} is not alone with {lock.name}\\n")
with (book / "starts").open("a") as file:
    file.write(json.dumps(start) + "\\n")
for step in (10, 20):
    if step <= began_at:
        continue
    while step == 20 and not (book / f"go-{run}").exists():
        time.sleep(0.02)
    aside = there / f"checkpoints/.step-{step:08d}"
    aside.mkdir(parents=True)
    model = hashlib.sha256(f"{run} {step}".encode()).digest() * 20_000
    (aside / "model.bin").write_bytes(model)
    record = {"path": "model.bin", "size": len(model), "sha256": hashlib.sha256(model).hexdigest()}
    (aside / "manifest.json").write_text(json.dumps({"step": step, "files": [record]}))
    aside.rename(there / f"checkpoints/step-{step:08d}")
    with (there / "metrics.jsonl").open("a") as file:
        print(json.dumps({"step": step, "loss": 1 / step}), file=file)
    print("saved", step, flush=True)
"""


class Start(NamedTuple):
    """One start of a training, in its own words: since which boot the machine is there, and from which step it went."""

    run: str
    attempt: int
    boot: str
    root: str
    began_at: int


@dataclass
class Stage:
    """`settled` is False while a test is under way and stays so when it fails: then the next one gets another stage."""

    project: Project
    cloud: TpuCloud
    book: Path
    settled: bool = True
    _seeds: Any = field(default_factory=itertools.count)
    _seen: int = 0  # entries of the cloud's book that were judged already

    # ------------------------------------------------------------------------------------------------------- doing

    def start(self, *words: str, at: str = "", log: Path | None = None) -> subprocess.Popen[str]:
        """`tpufleet WORDS…` that ends at the point `at`, if that is given."""
        env = {**os.environ, **self.project.env, "PYTHONPATH": str(REPOSITORY)}
        env |= {"DOOMED_AT": at} if at else {}
        env |= {"DOOMED_LOG": str(log)} if log else {}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.doomed", *words],
            cwd=self.project.directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def passed(self, *words: str) -> Counter[str]:
        """The points that the command passes when nothing disturbs it, and how often."""
        log = self.book / "passed"
        log.unlink(missing_ok=True)
        with self.start(*words, log=log) as process:
            _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return Counter(log.read_text().splitlines())

    def kill(self, point: str, *words: str) -> None:
        """Type the command, which dies at `point`."""
        with self.start(*words, at=point) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, f"{point} was not reached: {process.returncode}\n{out}\n{err}"

    def settle(self, *words: str) -> Done:
        """Type the command again until it succeeds; what it said at last."""
        done = [self.project.run(*words, ok=False)]
        while done[-1].exit_code and len(done) < TYPED_AT_MOST:
            done.append(self.project.run(*words, ok=False))
        assert done[-1].exit_code == 0, [f"{one.exit_code}: {one.stderr}" for one in done]
        return done[-1]

    def pair(self) -> tuple[list[str], list[str]]:
        """The words that start two new runs, one on each host, and these runs' ids."""
        one, two = next(self._seeds), next(self._seeds)
        return ["run", "work", "--grid", f"seed={one},{two}"], [f"work-seed{one}", f"work-seed{two}"]

    def await_saved(self, *runs: str) -> None:
        for run in runs:
            until(lambda run=run: self.saved(run), f"a checkpoint of {run}", 120)

    def change_code(self) -> str:
        """A new commit."""
        (self.project.directory / "code/change").write_text(str(next(self._seeds)))
        return self.project.commit("Another")

    def hold(self, *runs: str) -> None:
        """Once started again, they wait again."""
        for run in runs:
            (self.book / f"go-{run}").unlink()

    def let_go(self, *runs: str) -> None:
        """They may finish, and do."""
        for run in runs:
            (self.book / f"go-{run}").touch()
        for run in runs:
            until(lambda run=run: self.state(run) == "done", f"{run} to be done", 120)

    def commit(self) -> str:
        return self.project.git("rev-parse", "HEAD")

    def forget(self) -> None:
        """All that lies at home is lost: it is as on the first day."""
        for name in (".tpufleet", "artifacts"):
            shutil.rmtree(self.project.directory / name, ignore_errors=True)

    # ----------------------------------------------------------------------------------------------------- looking

    def starts(self, *runs: str) -> list[Start]:
        found = [Start(*json.loads(line)) for line in self.lines("starts")]
        return [start for start in found if not runs or start.run in runs]

    def alive(self) -> list[dict[str, Any]]:
        """The nodes that are there, by the cloud's book."""
        return [node for node in self.cloud.book()["nodes"] if not node["deleted"]]

    def lines(self, name: str) -> list[str]:
        """What trainings or set-ups wrote into this page of the judge's."""
        page = self.book / name
        return page.read_text().splitlines() if page.exists() else []

    def saved(self, run: str, step: int = 10) -> bool:
        """Whether the newest start of the run has saved the step."""
        mine = self.starts(run)
        return bool(mine) and (self._there(mine[-1]) / f"checkpoints/step-{step:08d}").exists()

    def state(self, run: str) -> str | None:
        """The run's state on the machine where it was started last."""
        mine = self.starts(run)
        file = Path(mine[-1].root) / "var/lib/tpufleet/control" / run / "state.json" if mine else None
        return json.loads(file.read_text())["state"] if file and file.exists() else None

    def home(self, run: str) -> Path:
        return self.project.directory / "artifacts/sherlock/runs" / run

    def _there(self, start: Start) -> Path:
        return Path(start.root) / "var/lib/tpufleet/runs" / start.run

    # ----------------------------------------------------------------------------------------------------- judging

    def judge_starts(self) -> None:
        """No attempt was started twice on a machine, and no run was ever in two places, no chip under two runs."""
        often = Counter((start.run, start.attempt, start.boot) for start in self.starts())
        assert max(often.values(), default=1) == 1, often.most_common(3)
        violations = self.book / "violations"
        assert not violations.exists(), violations.read_text()

    def judge_nodes(self, *there: str, made: int) -> None:
        """The cloud has these nodes and no other; `made` were made since the last judgement, none of them twice."""
        entries = self.cloud.book()["nodes"]
        new, self._seen = [short(node) for node in entries[self._seen :]], len(entries)
        assert sorted(map(short, self.alive())) == sorted(there)
        assert len(new) == len(set(new)) == made, new

    def judge_one_at_a_time(self) -> None:
        """No name ever had two machines at once."""
        last: dict[str, str] = {}
        for node in self.cloud.book()["nodes"]:
            assert last.get(short(node), "") <= node["created"], node
            last[short(node)] = node["deleted"] or "still there"

    def judge_gone(self) -> None:
        """Nothing is left, nothing is billed any more."""
        book = self.cloud.book()
        self._seen = len(book["nodes"])
        assert self.alive() == []
        assert [queued for queued in book["queuedResources"] if not queued["deleted"]] == []

    def judge_home(self, *runs: str, steps: tuple[int, ...] = STEPS) -> None:
        """What came home of the runs is whole, as it is on their hosts, and nothing lies beside it."""
        for run in runs:
            home, there = self.home(run), self._there(self.starts(run)[-1])
            for name in ("log.txt", "metrics.jsonl"):
                assert (home / name).read_bytes() == (there / name).read_bytes()
            for step in steps:
                model = (home / f"checkpoints/step-{step:08d}/model.bin").read_bytes()
                assert model == hashlib.sha256(f"{run} {step}".encode()).digest() * MODEL_BLOCKS
                assert (home / f"checkpoints/step-{step:08d}/manifest.json").exists()

    def judge_leftovers(self) -> None:
        """No half of anything lies at home once a command has come to its end."""
        state, artifacts = self.project.directory / ".tpufleet", self.project.directory / "artifacts"
        hidden = [path for top in (state, artifacts) for path in top.rglob(".*")]
        assert [path for path in hidden if path.name not in (".gitignore", ".collected.json", ".lock")] == []
        assert len([*state.glob("bundle-*")]) <= 1, "whoever makes the next one removes the last one"


def short(node: dict[str, Any]) -> str:
    return node["name"].rpartition("/")[2]


@contextmanager
def stage(directory: Path, pool: str = "") -> Generator[Stage]:
    """A stage with nothing on it: two v2-8 wanted (with `pool`'s further keys), a cloud that makes them at once."""
    book = directory / "book"
    book.mkdir(parents=True)
    jobs = f'  work: {{command: [python3, work.py], grid: {{seed: [0]}}, env: {{BOOK: "{book}"}}, mirror: 1s}}\n'
    project = Project.make(directory / "project", count=2, jobs=jobs)
    file = project.directory / "tpufleet.yaml"
    setup = f'code: {{repo: code, setup: ["echo $PWD >>{book}/setups"]}}'
    file.write_text(file.read_text().replace("v2-8}", f"v2-8{pool}}}").replace("code: {repo: code}", setup))
    (project.directory / "code/work.py").write_text(WORK)
    (project.directory / "code/large.bin").write_bytes(os.urandom(600_000))
    project.commit("A job that tells the judge")
    with rehearsal(directory / "cloud") as cloud:
        project.env["TPUFLEET_EMULATOR"] = str(cloud.directory)
        yield Stage(project, cloud, book)
