"""What `tpufleet top` shows, made of what the hosts were last heard to say: rows and fields; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tpufleet.cli.looks import Look
from tpufleet.cli.pace import Pace, metrics_of, steps
from tpufleet.cli.render import CHIP_FIELDS, CHIP_STYLES, MARKS, chip_holder, chip_state, gigabytes
from tpufleet.cli.run_table import metric_heading, metric_names, step_words
from tpufleet.cli.tables import Column, by_word
from tpufleet.model import Node, NodeState
from tpufleet.text import counted, lasted

SILENT_S = 6.0  # as long as that, a host may just be slow
ASKING_S = 2.0  # and as long as that, a first answer may just be on its way
BAR = 8
BLOCKS = " ▏▎▍▌▋▊▉█"  # eighths of a character
Chip = Mapping[str, Any]


def by_fill(cell: str) -> str:
    """The colour of a bar by how full it is."""
    full = cell.count("█") + cell.count("#")
    return "red" if full >= BAR - 1 else "yellow" if full >= BAR - 2 else "green"


HOST_COLUMNS = (
    Column("host", least=10, middle=True),
    Column("load", rank=1, least=4, number=True),
    Column("memory used", rank=2, least=25, paint=by_fill),
    Column("disk used", rank=3, least=25, paint=by_fill),
    Column("up", rank=4, least=6, number=True),
    Column("says", least=20, wraps=True, paint=lambda cell: "bold red" if cell.startswith("silent") else "yellow"),
)


def chip_columns(metric: str) -> tuple[Column, ...]:
    """The chips' columns; where there is little room these go first: command, pid, time left, rate, duty, HBM."""
    return (
        Column("chip", least=12, middle=True),
        Column("state", least=5, paint=by_word(CHIP_STYLES)),
        Column("who", least=16, middle=True),
        Column("pid", rank=6, least=5, number=True),
        Column("HBM", rank=1, least=BAR + 4, paint=by_fill),
        Column("busy", rank=2, least=BAR + 5, paint=lambda _cell: "cyan"),
        Column("step", rank=1, least=5, number=True),
        Column("steps/s", rank=3, least=4, number=True),
        Column("left", rank=4, least=6, number=True),
        Column(metric_heading(metric), rank=2, least=6, number=True),
        Column("command", rank=7, least=16),
    )


def bar(share: float, *, unicode: bool = True) -> str:
    """A bar of BAR characters, `share` of it (0 to 1) filled, to the eighth of a character where there is Unicode."""
    filled = min(1.0, max(0.0, share)) * BAR
    if not unicode:
        return ("#" * round(filled)).ljust(BAR, ".")
    whole = int(filled)
    part = BLOCKS[int((filled - whole) * 8)] if whole < BAR else ""
    return ("█" * whole + part).ljust(BAR)


def silence(look: Look, now: float, every_s: float) -> str | None:
    """Why nothing is known of a host now; None where it was heard of, or is being asked for the first time."""
    if look.view is None and look.silence(now) < ASKING_S:
        return None
    if look.view is None or look.silence(now) > max(SILENT_S, 3 * every_s):
        why = f": {look.view.error}" if look.view and look.view.error else ""
        return f"silent for {lasted(look.silence(now))}{why}"
    if look.view.bare:
        return "nothing of tpufleet on it yet: tpufleet create"
    return look.view.error


def runs_of(looks: Sequence[Look]) -> dict[str, Mapping[str, Any]]:
    """The runs that the hosts told of, by id."""
    return {str(run["id"]): run for look in looks if look.view for run in look.view.runs}


def host_rows(looks: Sequence[Look], now: float, every_s: float, *, unicode: bool = True) -> list[tuple[str, ...]]:
    """Hosts as rows of HOST_COLUMNS."""
    rows: list[tuple[str, ...]] = []
    for look in looks:
        silent = silence(look, now, every_s)
        probe = (look.view and look.view.probe) or None
        if silent or not probe:
            rows.append((look.host.name, "", "", "", "", silent or "asking …"))
            continue
        memory, disk = probe["memory"], probe["disk"]
        rows.append(
            (
                look.host.name,
                _load(probe),
                _used(memory["total"] - memory["available"], memory["total"], unicode=unicode),
                _used(disk["total"] - disk["free"], disk["total"], unicode=unicode),
                lasted(float(probe["uptime_s"])),
                "",
            )
        )
    return rows


def chip_table(
    looks: Sequence[Look], pace: Pace, now: float, every_s: float, *, unicode: bool = True
) -> tuple[tuple[Column, ...], list[tuple[str, ...]]]:
    """Columns and rows, one for each chip of the hosts that are heard."""
    runs = runs_of(looks)
    running = {str(chip.get("run")) for look in looks if look.view for chip in look.view.chips}
    metric = next(iter(metric_names([state for run, state in runs.items() if run in running])), "loss")
    rows = [
        _chip_row(
            f"{look.host.name}:{chip['index']}", chip, runs.get(str(chip.get("run"))) or {}, metric, pace, unicode
        )
        for look in looks
        if look.view and not silence(look, now, every_s)
        for chip in look.view.chips
    ]
    return chip_columns(metric), rows


def head(fleet: str, looks: Sequence[Look], nodes: Sequence[Node], now: float, every_s: float) -> str:
    """`sherlock: 2 hosts, 8 chips: 6 run, 2 free`, the hosts that are silent, the nodes that are not ready."""
    heard = [look for look in looks if not silence(look, now, every_s)]
    counts = Counter(chip_state(chip) for look in heard if look.view for chip in look.view.chips)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    words = [counted(len(looks), "host"), counted(counts.total(), "chip") + (f": {states}" if states else "")]
    if len(heard) < len(looks):
        words.append(f"{len(looks) - len(heard)} not heard")
    words += [f"{node.name} is {node.state}" for node in nodes if node.state is not NodeState.READY]
    return f"{fleet} {MARKS['info']} " + f" {MARKS['info']} ".join(words)


def fields(looks: Sequence[Look], pace: Pace, now: float, every_s: float) -> list[dict[str, Any]]:
    """The hosts as `--json` tells them."""
    runs = runs_of(looks)
    return [_host_fields(look, runs, pace, silence(look, now, every_s)) for look in looks]


def _host_fields(look: Look, runs: Mapping[str, Mapping[str, Any]], pace: Pace, silent: str | None) -> dict[str, Any]:
    probe = None if silent or look.view is None else look.view.probe
    state = "ready" if probe else "bare" if look.view and look.view.bare else "unreachable"
    chips = look.view.chips if look.view and probe else ()
    return {
        "name": look.host.name,
        "state": state,
        "error": silent,
        **{key: (probe or {}).get(key) for key in ("load", "memory", "disk", "uptime_s")},
        "chips": [
            {
                "name": f"{look.host.name}:{chip['index']}",
                **{key: chip.get(key) for key in CHIP_FIELDS},
                **_progress(runs.get(str(chip.get("run"))) or {}, pace),
            }
            for chip in chips
        ],
    }


def _progress(state: Mapping[str, Any], pace: Pace) -> dict[str, Any]:
    return {
        "step": state.get("step"),
        "steps": steps(state),
        "steps_per_second": pace.rate(state),
        "left_s": pace.left_s(state),
    }


def _chip_row(
    name: str, chip: Chip, state: Mapping[str, Any], metric: str, pace: Pace, unicode: bool
) -> tuple[str, ...]:
    rate, left, value = pace.rate(state), pace.left_s(state), metrics_of(state).get(metric)
    duty = chip.get("duty_pct")
    return (
        name,
        chip_state(chip),
        chip_holder(chip),
        str(chip.get("pid") or ""),
        _used(chip["hbm_used"], chip["hbm_total"], unicode=unicode) if chip.get("hbm_total") else "",
        "" if duty is None else f"{bar(duty / 100, unicode=unicode)} {duty:3.0f} %",
        step_words(state),
        "" if rate is None else f"{rate:.3g}",
        "" if left is None else lasted(left),
        "" if not isinstance(value, int | float) else f"{value:.4g}",
        "" if chip.get("run") else str(chip.get("command") or ""),
    )


def _used(used: float, total: float, *, unicode: bool) -> str:
    return f"{bar(used / total, unicode=unicode)} {gigabytes(used)}/{gigabytes(total)} GB" if total else ""


def _load(probe: Mapping[str, Any]) -> str:
    """The run queue's length over the last minute, and how many processors there are for it."""
    load = probe.get("load")
    return f"{load[0]:.1f}/{probe['cpus']}" if load else ""
