"""`tpufleet logs`: what a run prints."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from tpufleet.cli.arguments import session
from tpufleet.cli.session import Session
from tpufleet.errors import CloudUnreachable, UsageError
from tpufleet.names import RunId
from tpufleet.text import clean

TAIL_BYTES = 64 * 1024


def logs(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="A run's id (tpufleet runs).")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="From the beginning, not only the end.")] = False,
) -> None:
    """Print a run's log; control characters are made visible.

    Example: tpufleet logs -f gpt-lr0.001-seed0
    """
    this = session(context)
    if follow and this.out.as_json:
        raise UsageError("--json gives one object at the end and --follow has no end: choose one")
    kept: list[str] = []
    for text in _text(_bytes(this, run, offset=0 if all_ else -TAIL_BYTES, follow=follow)):
        if this.out.as_json:
            kept.append(text)
        else:
            sys.stdout.write(clean(text, keep_newlines=True))
            sys.stdout.flush()
    this.out.data(run=run, log="".join(kept))


def _bytes(this: Session, run: str, *, offset: int, follow: bool) -> Iterator[bytes]:
    """The log from the host that knows the run, else the copy that was collected."""
    from tpufleet.ops.observe import observe
    from tpufleet.ops.runs import find, located, read_log

    copy = _collected(this, run)
    with contextlib.ExitStack() as stack:
        try:
            fleet = stack.enter_context(this.fleet("logs"))
            views = observe(fleet).hosts
        except CloudUnreachable:
            if copy is None:
                raise
            yield copy[offset:] if offset else copy
            return
        there = located(views)
        if run not in there and copy is not None:
            this.out.note(f"no host knows {run} (any more); this is what was collected")
            yield copy[offset:] if offset else copy
            return
        chosen = find([run], there, views)
        if len(chosen) > 1:
            raise UsageError(f"job {run} has {len(chosen)} runs", hint=f"name one, such as {chosen[0]}")
        yield from read_log(fleet, there[chosen[0]], offset=offset, follow=follow)


def _collected(this: Session, run: str) -> bytes | None:
    """The log as it came home, if it did."""
    if not RunId.pattern.fullmatch(run):
        return None
    log = this.paths(this.spec()).runs / run / "log.txt"
    return log.read_bytes() if log.is_file() else None


def _text(chunks: Iterable[bytes]) -> Iterator[str]:
    """Bytes as text, also where a character was cut in two."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)
