"""The board itself: who sits at which chip, and what the models write, to be read from the back of the room."""

from __future__ import annotations

from tpufleet.board.look import Chip, HostChips, Look, Piece
from tpufleet.board.markup import page
from tpufleet.report.html import Element, el
from tpufleet.report.text import count

REFRESH_S = 5


def board_page(fleet: str, look: Look) -> str:
    return page(
        fleet,
        el(
            "main",
            el("header", el("h1", fleet), el("p", _summary(look), class_="lead", role="status")),
            el("p", f"Nothing newer is known: {look.problem}", class_="error") if look.problem else None,
            el("div", [_host(host) for host in look.hosts], class_="hosts"),
            _standing(look.standing),
            _completions(look.pieces),
            class_="wide",
        ),
        refresh_s=REFRESH_S,
        live=True,
    )


def _summary(look: Look) -> str:
    if look.at is None:
        return "Looking …"
    chips = [chip for host in look.hosts for chip in host.chips]
    busy = sum(chip.state != "free" for chip in chips)
    seats = len({chip.seat for chip in chips if chip.seat})
    words = [count(len(chips), "chip"), f"{busy} at work", count(seats, "person has a seat", "people have seats")]
    return " · ".join(words) if chips else "No host is there yet."


def _host(host: HostChips) -> Element:
    problem = el("p", host.problem, class_="error") if host.problem else None
    return el(
        "section",
        el("h2", host.name),
        problem,
        el("ul", [_chip(chip) for chip in host.chips], class_="chips") if host.chips else None,
        class_="host",
    )


def _chip(chip: Chip) -> Element:
    number = el("span", chip.name.rpartition(":")[2], class_="number", title=chip.name)
    works = chip.state != "free"
    if not works and not chip.seat:
        return el("li", number, el("span", "free", class_="state"), class_="chip free")
    guest = el("span", f"now: {chip.who}", class_="help") if chip.seat and chip.who else None
    return el(
        "li",
        number,
        el("strong", chip.seat or chip.who or "somebody"),
        guest,
        el("span", "at work" if works else "idle", class_="state"),
        class_="chip works" if works else "chip",
    )


def _standing(names: tuple[str, ...]) -> Element | None:
    return el("p", f"Without a seat: {', '.join(names)}", class_="standing") if names else None


def _completions(pieces: tuple[Piece, ...]) -> Element | None:
    if not pieces:
        return None
    return el(
        "section", el("h2", "What the models write"), el("div", [_piece(piece) for piece in pieces], class_="pieces")
    )


def _piece(piece: Piece) -> Element:
    step = "" if piece.step is None else f" · step {piece.step:,}"
    prompt = el("span", piece.prompt, class_="prompt") if piece.prompt else None
    return el(
        "article",
        el("blockquote", prompt, piece.text),
        el("p", el("strong", piece.person), f" · {piece.run}{step}", class_="help"),
        class_="piece",
    )
