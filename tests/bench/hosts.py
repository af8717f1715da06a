"""Twenty hosts: making their nodes side by side, the same command on all of them, a look at all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.bench.measure import Row, Skipped, in_turn, ratios, timed
from tests.bench.rig import key_exchange, openssh_config, quietly, rehearsal, tpufleet, where_possible
from tests.project import Project
from tpufleet.ssh.handshake import EXCHANGES

HOSTS = 20
GOAL_S = 3.0  # the whole of `create` is to take no longer than the slowest node and these
READY = re.compile(r"ready in [\w-]+ after ([\d.]+) s")


def run(place: Path) -> Sequence[Row | Skipped]:
    with rehearsal(place / "many", count=HOSTS) as many, rehearsal(place / "one", count=1) as one:
        return [
            *_create(many, one),
            *where_possible("status", ["ssh"], lambda: _look(many, one)),
            *where_possible("exec", ["ssh", "xargs"], lambda: _command(many)),
        ]


def _create(many: Project, one: Project) -> list[Row]:
    """Leaves both fleets up."""
    ready: dict[str, list[float]] = {"many": [], "one": []}  # when the last node was READY, by the command's own clock

    def create(name: str, project: Project) -> float:
        project.run("delete", "--yes")
        said: list[str] = []
        seconds = timed(lambda: said.append(project.run("create").stderr))
        ready[name].append(max(float(node_s) for node_s in READY.findall(said[0])))
        return seconds

    seconds = in_turn(3, {"many": lambda: create("many", many), "one": lambda: create("one", one)})
    what = f"create, {HOSTS} nodes"
    goal = [node_s + GOAL_S for node_s in ready["many"]]
    return [
        Row(f"{what}: all READY", "create, 1 node: READY", ratios(ready["many"], ready["one"])),
        Row(f"{what}: the whole", "create, 1 node: the whole", ratios(seconds["many"], seconds["one"])),
        Row(f"{what}: the whole", "its slowest node + 3 s", ratios(seconds["many"], goal), "the goal is at most 1"),
    ]


def _look(many: Project, one: Project) -> list[Row]:
    config = openssh_config(many)
    seconds = in_turn(
        5,
        {
            "many": tpufleet(many, "status"),
            "one": tpufleet(one, "status"),
            "ssh": lambda: timed(lambda: quietly(["ssh", "-n", "-F", config, "tpu-0", "python3 -c pass"])),
        },
    )
    more = [(many_s - one_s) / (HOSTS - 1) for many_s, one_s in zip(seconds["many"], seconds["one"], strict=True)]
    return [
        Row(f"status, {HOSTS} hosts", "status, 1 host", ratios(seconds["many"], seconds["one"])),
        Row("status, each further host", "ssh HOST python3 -c pass", ratios(more, seconds["ssh"])),
    ]


def _command(many: Project) -> list[Row]:
    config = openssh_config(many)
    names = [f"tpu-{number}" for number in range(HOSTS)]
    at_once = ["xargs", "-P", str(HOSTS), "-I{}", "ssh", "-n", "-F", config, "{}", "true"]

    def loop() -> None:
        for name in names:
            quietly(["ssh", "-n", "-F", config, name, "true"])

    seconds = in_turn(
        5,
        {
            "ours": tpufleet(many, "exec", "--", "true"),
            "one": tpufleet(many, "exec", "--on", names[0], "--", "true"),
            "loop": lambda: timed(loop),
            "at once": lambda: timed(lambda: quietly(at_once, stdin="\n".join(names))),
        },
    )
    exchanges = (
        f"tpufleet agrees on {key_exchange(config, names[0], EXCHANGES)}, ssh on {key_exchange(config, names[0])}"
    )
    what = f"exec -- true, {HOSTS} hosts"
    return [
        Row(what, "exec -- true, 1 host", ratios(seconds["ours"], seconds["one"])),
        Row(what, "a loop of ssh HOST true", ratios(seconds["ours"], seconds["loop"]), exchanges),
        Row(what, f"xargs -P {HOSTS} ssh HOST true", ratios(seconds["ours"], seconds["at once"])),
    ]
