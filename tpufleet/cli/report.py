"""`tpufleet report`: the report again, from what is home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpufleet.cli.arguments import session


def report(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write the report again, from what is home. It asks neither the cloud nor a host.

    A page in one file, and beside it `index.md` for a pull request, `runs.csv`, `runs.json` and `metrics.csv`.

    Example: tpufleet report --open
    """
    from tpufleet import report as reports

    this = session(context)
    spec = this.spec()
    page = reports.write(this.paths(spec).artifacts)
    this.out.line(f"report: {page}")
    if show and not _open(page):
        this.out.note("no browser could be started; open the file yourself")
    this.out.data(
        fleet=spec.fleet, report=str(page), files=sorted(str(file) for file in page.parent.iterdir() if _is_ours(file))
    )


def _open(page: Path) -> bool:
    import webbrowser

    return webbrowser.open(page.as_uri())


def _is_ours(file: Path) -> bool:
    from tpufleet.report.html import DOWNLOADS

    return file.name in (*DOWNLOADS, "index.html")
