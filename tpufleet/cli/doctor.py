"""`tpufleet doctor`: what is wrong, and the command that mends it."""

from __future__ import annotations

import typer

from tpufleet.cli.arguments import session
from tpufleet.errors import PartialFailure, TpufleetError


def doctor(context: typer.Context) -> None:
    """Check the set-up, the repository, the cloud, the hosts.

    Example: tpufleet doctor
    """
    from tpufleet.ops.doctor import Finding, fleet_findings, local_findings

    this = session(context)
    spec = this.spec()
    findings = list(local_findings(spec, this.paths(spec)))
    try:
        with this.fleet("doctor") as fleet:
            findings += fleet_findings(fleet)
    except TpufleetError as error:
        findings.append(Finding("cloud", False, str(error), error.hint))
    for finding in findings:
        this.out.line(f"{'ok ' if finding.ok else 'bad'}  {finding.check}: {finding.text}")
        if not finding.ok and finding.fix:
            this.out.line(f"       → {finding.fix}")
    bad = [finding for finding in findings if not finding.ok]
    this.out.data(
        ok=not bad,
        findings=[
            {"check": item.check, "ok": item.ok, "text": item.text, "fix": None if item.ok else item.fix}
            for item in findings
        ],
    )
    if bad:
        raise PartialFailure(f"{len(bad)} of {len(findings)} checks failed", hint=bad[0].fix)
