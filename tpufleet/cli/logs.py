"""`tpufleet logs`: what runs print."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import session
from tpufleet.cli.output import speaks_unicode
from tpufleet.cli.session import Session
from tpufleet.errors import CloudUnreachable, UsageError
from tpufleet.names import RunId
from tpufleet.restart import FINAL_STATES
from tpufleet.text import clean, natural

if TYPE_CHECKING:
    from tpufleet.model import HostView
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ops.runs import Located

TAIL_BYTES = 64 * 1024


def logs(
    context: typer.Context,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Runs' ids, or a job's name for all its runs.",
            autocompletion=completion.runs_and_jobs,
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until they have ended; without a RUN: all that have not ended."),
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="From the beginning, not only the end.")] = False,
) -> None:
    """Print the logs of runs; control characters are made visible.

    Of several runs each line comes whole, under its run's name. Ctrl-C ends the reading, not the runs.

    Example: tpufleet logs -f gpt-lr0.001-seed0

    Example: tpufleet logs -f gpt
    """
    this = session(context)
    if follow and this.out.as_json:
        raise UsageError("--json gives one object at the end and --follow has no end: choose one")
    if not run and not follow:
        raise UsageError("logs needs a run", hint="tpufleet logs RUN, or tpufleet logs -f for all that have not ended")
    offset = 0 if all_ else -TAIL_BYTES
    with contextlib.ExitStack() as stack:
        try:
            fleet = stack.enter_context(this.fleet("logs"))
            logs = _Logs(this, fleet, _observed(fleet))
        except CloudUnreachable:
            logs = _Logs(this, None, ())
            if not run or any(logs.at_home(name) is None for name in run):
                raise
        chosen = logs.chosen(run or ())
        if not chosen:
            this.out.note("nothing runs or waits; tpufleet run JOB")
        elif len(chosen) == 1 and run:
            _one(this, chosen[0], logs.chunks(chosen[0], offset, follow=follow))
        elif follow:
            _print_many(this, chosen, logs.follow(chosen, offset))
        else:
            _many(this, chosen, {name: logs.read(name, offset) for name in chosen})


def _observed(fleet: Fleet) -> Sequence[HostView]:
    from tpufleet.ops.observe import observe

    return observe(fleet).hosts


class _Logs:
    """Where the logs are: on the hosts, else (their hosts are gone) as they were collected."""

    def __init__(self, this: Session, fleet: Fleet | None, views: Sequence[HostView]) -> None:
        from tpufleet.ops.runs import located

        self._this, self._fleet, self._views = this, fleet, views
        self._there: dict[str, Located] = located(views)

    def chosen(self, names: Sequence[str]) -> list[str]:
        """The runs that people meant; without a name all that have not ended, the waiting ones too."""
        from tpufleet.ops.runs import find

        if not names:
            going = (run for run, item in self._there.items() if item.state["state"] not in FINAL_STATES)
            return sorted(going, key=natural)
        found: list[str] = []
        for name in names:
            only_home = name not in self._there and self.at_home(name) is not None
            found += [name] if only_home else sorted(find([name], self._there, self._views), key=natural)
        return list(dict.fromkeys(found))

    def chunks(self, run: str, offset: int, *, follow: bool) -> Iterator[bytes]:
        """One run's log as it lies there, or as it comes."""
        return (data for _, data in self.follow([run], offset)) if follow else self.read(run, offset)

    def read(self, run: str, offset: int) -> Iterator[bytes]:
        """The log from the host that knows the run, else the copy that was collected."""
        from tpufleet.ops.runs import read_log

        if self._fleet is not None and run in self._there:
            yield from read_log(self._fleet, self._there[run], offset=offset, follow=False)
            return
        if self._fleet is not None:
            self._this.out.note(f"no host knows {run} (any more); this is what was collected")
        copy = self.at_home(run) or b""
        yield copy[offset:] if offset else copy

    def follow(self, runs: Sequence[str], offset: int) -> Iterator[tuple[str, bytes]]:
        """The runs' logs as they come, wherever the runs go on; (run, b"") at a log's end."""
        from tpufleet.ops.many_logs import follow

        away = [run for run in runs if self._fleet is None or run not in self._there]
        for run in away:
            yield run, b"".join(self.read(run, offset))
            yield run, b""
        rest = [run for run in runs if run not in away]
        if self._fleet is not None and rest:
            note = self._this.out.note
            yield from follow(
                self._fleet, rest, self._there, offset=offset, note=lambda run, why: note(f"{run}: {why}")
            )

    def at_home(self, run: str) -> bytes | None:
        """The log as it came home, if it did."""
        if not RunId.pattern.fullmatch(run):
            return None
        log = self._this.paths(self._this.spec()).runs / run / "log.txt"
        return log.read_bytes() if log.is_file() else None


def _one(this: Session, run: str, chunks: Iterable[bytes]) -> None:
    """A run's log as it is, without its name before each line."""
    kept: list[str] = []
    for text in _text(chunks):
        if this.out.as_json:
            kept.append(text)
        else:
            sys.stdout.write(clean(text, keep_newlines=True))
            sys.stdout.flush()
    this.out.data(run=run, log="".join(kept))


def _many(this: Session, runs: Sequence[str], logs: Mapping[str, Iterable[bytes]]) -> None:
    """Several logs one after the other."""
    if this.out.as_json:
        this.out.data(logs=[{"run": run, "log": "".join(_text(logs[run]))} for run in runs])
        return
    _print_many(this, runs, ((run, data) for run in runs for data in (*logs[run], b"")))


def _print_many(this: Session, runs: Sequence[str], chunks: Iterable[tuple[str, bytes]]) -> None:
    """Whole lines, each under its run's name; no bytes mean that the run's log has ended."""
    from tpufleet.cli.log_lines import Names, WholeLines

    is_terminal = sys.stdout.isatty()
    names = Names(runs, colors=this.out.colors, cut=is_terminal, unicode=speaks_unicode(sys.stdout))
    lines = {run: WholeLines() for run in runs}
    for run, data in chunks:
        whole = lines[run].feed(data, end=not data)
        if whole:
            sys.stdout.write("".join(f"{names.line(run, line)}\n" for line in whole))
            sys.stdout.flush()


def _text(chunks: Iterable[bytes]) -> Iterator[str]:
    """Bytes as text, also where a character was cut in two."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)
