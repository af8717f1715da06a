"""The parts of the board's page, each drawn by itself, so that what has changed can be sent without the rest.

A part's root carries an id that stays the same for the same host, run, completion or happening.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import UTC, datetime
from typing import TypeAlias

from tpufleet.board.run_row import run_row
from tpufleet.board.scene import Chip, Happening, HostChips, Piece, RunRow, Scene
from tpufleet.report.html import Child, Element, el
from tpufleet.report.text import count, size

Item: TypeAlias = HostChips | RunRow | Piece | Happening

LISTS = ("hosts", "runs", "pieces", "happenings")
_STATES = ("running", "recovering", "queued", "done", "failed", "stopped")


def head(scene: Scene) -> Element:
    """What is said of the fleet as a whole; its root stays in the page, and only what is in it is exchanged."""
    return el(
        "div",
        el("p", _summary(scene), class_="lead"),
        el("p", f"Nothing newer is known: {scene.problem}", class_="error") if scene.problem else None,
        el("p", f"Without a seat: {', '.join(scene.standing)}", class_="standing") if scene.standing else None,
        id="head",
        role="status",
    )


def draw(name: str, item: Item) -> Element:
    """The element for an item of the list `name` of a scene; its id is `part_id(name, item)`."""
    part = part_id(name, item)
    match item:
        case HostChips():
            return _host(part, item)
        case RunRow():
            return run_row(part, item)
        case Piece():
            return _piece(part, item)
        case Happening():
            return _happening(part, item)


def part_id(name: str, item: Item) -> str:
    """An id of safe characters, that no other item of the list has unless it says the same."""
    match item:
        case HostChips():
            words = [item.name]
        case RunRow():
            words = [item.id, item.person or ""]
        case Piece():
            words = [item.person or "", item.run, str(item.step), item.started, item.prompt, item.text]
        case Happening():
            words = [item.at.isoformat(), item.kind, item.subject, item.text]
    said = "\0".join(words).encode("utf-8", "surrogatepass")
    return f"{name}-{hashlib.blake2s(said, digest_size=9).hexdigest()}"


def ticking(moment: datetime, words: str) -> Element:
    """A moment, which scripts turn into how long `ago` it is, or into how long something goes on: `words` is for."""
    at = moment.astimezone(UTC)
    text = f"{at:%H:%M} UTC" if words == "ago" else f"since {at:%H:%M} UTC"
    return el("time", text, datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}", data_tick=words)


def _summary(scene: Scene) -> str:
    if scene.at is None:
        return "Looking …"
    chips = [chip for host in scene.hosts for chip in host.chips]
    seats = len({chip.seat for chip in chips if chip.seat})
    busy = sum(chip.state != "free" for chip in chips)
    down = sum(host.problem is not None for host in scene.hosts)
    states = Counter(run.state for run in scene.runs)
    words = [
        count(len(chips), "chip") if chips else "",
        f"{busy:,} at work" if chips else "",
        f"{count(len(scene.hosts), 'host')}, {down} down" if down else "",
        f"runs: {', '.join(f'{states[state]:,} {state}' for state in _STATES if states[state])}" if states else "",
        count(seats, "person has a seat", "people have seats") if seats else "",
    ]
    return " · ".join(word for word in words if word) or "No host is there yet."


def _host(part: str, host: HostChips) -> Element:
    return el(
        "article",
        el("h3", host.name),
        el("p", el("strong", "down"), f" · {host.problem}", class_="error") if host.problem else None,
        el("ul", [_chip(chip) for chip in host.chips], class_="chips") if host.chips else None,
        class_="host down" if host.problem else "host",
        id=part,
    )


def _chip(chip: Chip) -> Element:
    number = el("span", chip.name.rpartition(":")[2], class_="number", title=chip.name)
    if chip.state == "free" and not chip.seat:
        return el("li", number, el("span", "free", class_="what"), class_="chip free")
    who = chip.seat or chip.run or chip.who or "somebody"
    now = chip.run or chip.who
    return el(
        "li",
        number,
        el("strong", who, class_="what", title=who),
        el("span", f"now: {now}", class_="now", title=now) if chip.seat and now and now != who else None,
        el("span", _doing(chip), [" ", ticking(chip.since, "for")] if chip.since else None, class_="doing"),
        _used(chip),
        class_=f"chip {_kind(chip)}",
    )


def _kind(chip: Chip) -> str:
    if chip.state == "free":
        return "seat"
    return "run" if chip.run or chip.state == "run" else "person"


def _doing(chip: Chip) -> str:
    if chip.state == "free":
        return "idle"
    return "run" if _kind(chip) == "run" else "person" if chip.seat or chip.who else "in use"


def _used(chip: Chip) -> Child:
    """How full the chip's memory is and how much of the time it computes, where that is known."""
    parts: list[Child] = []
    if chip.hbm_used is not None and chip.hbm_total:
        said = f"{size(chip.hbm_used)} of {size(chip.hbm_total)}"
        bar = el("meter", said, min=0, max=chip.hbm_total, value=chip.hbm_used, aria_label="HBM", title=f"HBM: {said}")
        parts.append(el("span", "HBM ", bar, f" {100 * chip.hbm_used / chip.hbm_total:.0f} %"))
    if chip.duty is not None:
        parts.append(el("span", f"busy {chip.duty:.0f} %", title="the share of the time that it computes"))
    return el("span", parts, class_="used") if parts else None


def _piece(part: str, piece: Piece) -> Element:
    said = el("blockquote", el("span", piece.prompt, class_="prompt") if piece.prompt else None, piece.text, tabindex=0)
    who: Child = [el("strong", piece.person), f" · {piece.run}"] if piece.person else el("strong", piece.run)
    step = None if piece.step is None else f" · step {piece.step:,}"
    return el(
        "article",
        said,
        el("p", who, step, class_="help"),
        class_="piece",
        id=part,
        data_run=piece.run,
        data_who=piece.person or piece.run,
        data_step=-1 if piece.step is None else piece.step,
    )


_KINDS = {
    **dict.fromkeys(("preempted", "rebooted", "lost"), ("⚡", "ill")),
    **dict.fromkeys(("failed", "gone", "silent"), ("✕", "ill")),
    **dict.fromkeys(("resumed", "again", "anew"), ("↻", "well")),
    **dict.fromkeys(("done", "heard"), ("✓", "well")),
    "added": ("+", "well"),
    "stopped": ("■", ""),
}


def _happening(part: str, happening: Happening) -> Element:
    symbol, tone = _KINDS.get(happening.kind, ("•", ""))
    return el(
        "li",
        el("span", f"{symbol}\ufe0e", class_="symbol", aria_hidden="true"),
        el("span", el("strong", happening.subject), f" {happening.text}", class_="what"),
        ticking(happening.at, "ago"),
        class_=f"happening {tone}".rstrip(),
        id=part,
    )
