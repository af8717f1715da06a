"""`tpufleet board`: the page for everybody who trains, and the sign-up for those who come."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli.arguments import duration, session
from tpufleet.cli.output import Output
from tpufleet.cli.session import Session
from tpufleet.errors import ConfigError, Interrupted, UsageError

if TYPE_CHECKING:
    from tpufleet.board.app import Door
    from tpufleet.board.signup import Invitation


def board(
    context: typer.Context,
    sign_up: Annotated[bool, typer.Option("--sign-up", help="Let people with the invitation code sign up.")] = False,
    approve: Annotated[bool, typer.Option("--approve", help="Each of them waits for your word.")] = False,
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS:PORT", help="Where others can reach it: 0.0.0.0:8042.")
    ] = "127.0.0.1:8042",
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Its address for others, if a server is in front of it.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", metavar="CODE", help="The code, 6 to 32 letters and digits; default: a random one."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long the code is good for; default: 3h.")
    ] = None,
) -> None:
    """Serve the board: who is on which chip, what the models write, and the sign-up.

    Prints the links. Who signs up is put in the list of people, seated, and given an account on every host; then their
    page shows their card. Started again, it goes on with the same code and the same links. Ctrl-C closes it.

    Example: tpufleet board

    Example: tpufleet board --sign-up --approve --listen 0.0.0.0:8042 --for 2h
    """
    this = session(context)
    if not sign_up and (approve or code is not None or for_ is not None):
        raise UsageError("--approve, --code and --for are about the sign-up", hint="tpufleet board --sign-up")
    _need_extra()
    _serve(this, sign_up, approve, listen, url, code, duration("--for", for_).seconds if for_ is not None else None)


def _need_extra() -> None:
    from importlib.util import find_spec

    missing = [module for module in ("starlette", "uvicorn") if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"the board needs {' and '.join(missing)}, which this installation lacks",
            hint="pip install 'tpufleet[board]'",
        )


def _serve(
    this: Session,
    sign_up: bool,
    approve: bool,
    listen: str,
    url: str | None,
    code: str | None,
    seconds: float | None,
) -> None:
    from tpufleet.board.admission import Admission
    from tpufleet.board.app import Board
    from tpufleet.board.book import Book
    from tpufleet.board.fleetdesk import FleetDesk
    from tpufleet.board.opening import door, invitation, place
    from tpufleet.board.poll import Poll
    from tpufleet.board.reception import Reception
    from tpufleet.board.serve import listen as listening_at, serving
    from tpufleet.config.load import load_with_people
    from tpufleet.state.lock import locked

    spec, roster = load_with_people(this.config)
    if sign_up and roster.inside:
        raise ConfigError(
            "the people are in the fleet file, which only you change",
            where=str(this.config),
            hint="move them to people.yaml beside it, then again",
        )
    paths = this.paths(spec)
    paths.ensure_state()
    ended = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(locked(paths.board_lock, "board", wait_s=0, waiting=lambda _: None))
        listening = stack.enter_context(listening_at(*place(listen)))
        book = Book(paths.sign_ups)
        if sign_up:
            book.invite(invitation(book.invitation, code, seconds))
        quiet = Session(this.config, Output(quiet=True))  # what the hosts do is told by what people get
        desk = FleetDesk(this.config, spec.fleet, lambda: quiet.fleet("board"))
        admission = Admission(book, desk, this.out.note, ended.set)
        reception = Reception(book, desk, admission, this.out.note, accept=sign_up, approve=approve)
        poll = Poll(desk, ended.set)
        entrance = door(place(listen)[0], listening.getsockname()[:2], url, book.viewer)
        app = Board(spec.fleet, reception, poll, entrance).app()
        for worker in (admission, poll):
            worker.start()
            stack.callback(worker.close)
        stack.enter_context(serving(app, listening, ended, poll.feed.close))
        try:
            _tell(this.out, entrance, book.invitation if sign_up else None)
            ended.wait()
        except Interrupted:
            this.out.note("the board is closed; who signed up is kept")
            return
        raise RuntimeError("a part of the board ended by itself")  # a bug, which has shown its traceback


def _tell(out: Output, door: Door, invitation: Invitation | None) -> None:
    """The links, before anything else."""
    from tpufleet.config.edits import rfc3339

    join = door.invitation(invitation.code) if invitation else None
    out.line(f"board    {door.board}")
    if invitation:
        out.line(f"sign-up  {join}")
        out.line(f"code     {invitation.code}  until {invitation.until:%Y-%m-%d %H:%M} UTC")
    out.line(f"yours    {door.hosts_page}  for you alone")
    out.data(
        board=door.board,
        sign_up=join,
        code=invitation.code if invitation else None,
        until=rfc3339(invitation.until) if invitation else None,
        host=door.hosts_page,
    )
    sys.stdout.flush()
    if door.viewer and not door.secure:
        out.note("others reach it without encryption: use a network that you trust, or --url with https in front")
    out.note("Ctrl-C closes it")
