"""`watch` as a service: a systemd user unit (systemd.unit(5), systemd.service(5)), with absolute paths, no secrets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tpufleet.cli.arguments import duration
from tpufleet.cli.session import Session

UNIT = """\
[Unit]
Description=tpufleet watch: {fleet}

[Service]
WorkingDirectory={directory}
ExecStart={command}
Restart=on-failure
RestartSec=30

[Install]
WantedBy=default.target
"""


def install(this: Session, interval: str) -> None:
    """Write the unit and say how it is started."""
    spec = this.spec()
    seconds = duration("--interval", interval)
    words = [sys.executable, "-m", "tpufleet", "--config", str(this.config.absolute()), "watch", "--interval", seconds]
    text = UNIT.format(
        fleet=spec.fleet,
        directory=_escaped(str(this.config.absolute().parent)),
        command=" ".join(_quoted(word) for word in words),
    )
    path = _path(spec.fleet)
    changed = not path.exists() or path.read_text() != text
    if changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    this.out.line(f"{'wrote' if changed else 'unchanged:'} {path}")
    this.out.line(f"systemctl --user daemon-reload && systemctl --user enable --now {path.name}")
    this.out.line("loginctl enable-linger  # so that it goes on when you log out")
    secrets = sorted({str(name) for job in spec.jobs.values() for name in job.secrets})
    if secrets:
        this.out.note(f"runs with secrets can't be resumed by it unless its environment has {', '.join(secrets)}")
    this.out.data(unit=str(path), changed=changed)


def uninstall(this: Session, _interval: str) -> None:
    path = _path(this.spec().fleet)
    changed = path.exists()
    if changed:
        this.out.note(f"if it is on: systemctl --user disable --now {path.name}")
        path.unlink()
    this.out.line(f"removed {path}" if changed else "nothing to do")
    this.out.data(unit=str(path), changed=changed)


def _path(fleet: str) -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user" / f"tpufleet-{fleet}.service"


def _quoted(word: str) -> str:
    escaped = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    """Without systemd's specifiers (%h and the like)."""
    return text.replace("%", "%%")
