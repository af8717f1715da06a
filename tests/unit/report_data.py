"""Made-up artifacts of a sweep, as `collect` lays them out: falling curves, improving text, hostile text."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 21, 4, 8, 13, tzinfo=UTC)
PROMPT = '"Elementary, my dear'
COMMIT = "3fa1c2d9b0e87c5512e0f7a6d4c3b2a190887766"
EARLY = "e t   hoe an  siwtr, oe\n    nd aht tisen  ot mrhe wlas"
MIDDLE = ' the man of the\n     street and hove you the reand," said he. "I wall not be a sime of the'
LATE = (
    " through me is made which into\n     devening how about to up him vasigning pointle expression, not I"
    " was\n     a man of the world, and I have no doubt that you will find\n     the key in the drawer."
    '"\n\n          "You have seen her, then?"\n\n     "Never."'
)


def sweep() -> list[dict[str, str]]:
    """The demo's grid: two learning rates by four seeds."""
    return [{"lr": lr, "seed": str(seed)} for lr in ("0.001", "0.003") for seed in range(4)]


def write_home(home: Path, runs: int = 8, points: int = 20) -> Path:
    """`artifacts/FLEET` with that many good runs, each with `points` records of metrics; returns `home`."""
    grid = [{"lr": f"{0.001 * (1 + i // 4):.3f}", "seed": str(i % 4)} for i in range(runs)] if runs != 8 else sweep()
    records = [write_run(home, index, params, points) for index, params in enumerate(grid)]
    write_listing(home, records)
    return home


def write_listing(home: Path, records: Sequence[Mapping[str, Any]], fleet: str = "sherlock") -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "runs.json").write_text(json.dumps({"schema": 1, "fleet": fleet, "runs": list(records)}))


def run_record(index: int, params: Mapping[str, Any]) -> dict[str, Any]:
    """A run that is done, as it stands in runs.json."""
    chip = f"tpu-{index // 4 % 250}-w0:{index % 4}"
    started = START + timedelta(seconds=3 + index % 4)
    ended = started + timedelta(seconds=224 + 7 * (index % 5))
    return {
        "id": "gpt-" + "-".join(f"{name}{value}" for name, value in params.items()),
        "job": "gpt",
        "params": dict(params),
        "state": "done",
        "reason": None,
        "host": chip.split(":", maxsplit=1)[0],
        "chips": [chip],
        "commit": COMMIT,
        "dirty": False,
        "command": ["python", "train.py", "--preset", "demo", "--lr", params.get("lr", "0.001"), "--steps", "2000"],
        "attempts": [
            {
                "n": 1,
                "host": chip.split(":", maxsplit=1)[0],
                "chips": [chip],
                "started": stamp(started),
                "ended": stamp(ended),
                "exit_code": 0,
                "reason": None,
            }
        ],
        "step": 2000,
        "metrics": {},
        "resumed_from": None,
    }


def write_run(home: Path, index: int, params: Mapping[str, Any], points: int = 20) -> dict[str, Any]:
    """One good run's directory; returns its record. The same arguments always write the same bytes."""
    record = run_record(index, params)
    directory = home / "runs" / record["id"]
    directory.mkdir(parents=True)
    metrics = curve(index, float(params.get("lr", 0.001)), points)
    metrics[0] |= {"device": "cpu", "torch": "2.13.0+cpu", "parameters": 82_432}
    write_lines(directory / "metrics.jsonl", metrics)
    texts = [(100, EARLY), (1000, MIDDLE), (2000, LATE[: 180 + 40 * (index % 5)])]
    write_lines(
        directory / "completions.jsonl", [{"step": s, "prompt": PROMPT, "text": f"{PROMPT}{t}"} for s, t in texts]
    )
    log = [
        f"step {m['step']:>5}  training loss: {m['train_loss']:.3f}  testing loss: {m['test_loss']:.3f}"
        for m in metrics
    ]
    (directory / "log.txt").write_text("\n".join(log) + "\n")
    for step in (1000, 2000):
        write_checkpoint(directory, step, bytes([index % 256, step % 251]) * 40_000)
    record["metrics"] = {k: metrics[-1][k] for k in ("train_loss", "test_loss")}
    (directory / "run.json").write_text(json.dumps(record))
    return record


def curve(index: int, lr: float, points: int) -> list[dict[str, Any]]:
    """Losses that fall as a small GPT's do, noisier in training than in the test."""
    dice = random.Random(index)  # noqa: S311 - a curve's noise, not a secret
    floor = 1.74 + 90 * abs(lr - 0.003) + 0.02 * (index % 4)
    rows: list[dict[str, Any]] = []
    for i in range(1, points + 1):
        loss = floor + (3.6 - floor) * math.exp(-2.6 * (i / points) ** 0.62) + dice.gauss(0, 0.008)
        rows.append(
            {
                "step": i * 2000 // points,
                "train_loss": round(loss - 0.04 + dice.gauss(0, 0.05), 4),
                "test_loss": round(loss, 4),
                "steps_per_second": round(21.4 + dice.gauss(0, 0.5), 2),
            }
        )
    return rows


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def write_checkpoint(directory: Path, step: int, data: bytes) -> Path:
    """A whole checkpoint with its manifest; returns its directory."""
    folder = directory / "checkpoints" / f"step-{step:08}"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(data)
    entry = {"path": "model.pt", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"step": step, "files": [entry]}))
    return folder


PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg onload=alert(4)>",
    '"><script>alert(5)</script>',
    "'><img src=x onerror=alert(6)>",
    "</title><script>alert(7)</script>",
    "</style><script>alert(8)</script>",
    "</pre><script>alert(9)</script>",
    "</textarea><svg/onload=alert(10)>",
    "<iframe src=javascript:alert(11)></iframe>",
    "<a href=javascript:alert(12)>x</a>",
    "<a href='data:text/html,<script>alert(13)</script>'>x</a>",
    "<math><mi xlink:href=javascript:alert(14)>",
    "<body onload=alert(15)>",
    "<details open ontoggle=alert(16)>",
    "<style>*{background:url(javascript:alert(17))}</style>",
    "<link rel=stylesheet href=//evil.example/18.css>",
    "<meta http-equiv=refresh content='0;url=//evil.example/19'>",
    "<base href=//evil.example/20>",
    "<object data=//evil.example/21></object>",
    "<embed src=//evil.example/22>",
    "<form action=//evil.example/23><button>go</button></form>",
    "<input autofocus onfocus=alert(24)>",
    "<!--><script>alert(25)</script>-->",
    "<![CDATA[<script>alert(26)</script>]]>",
    "&lt;script&gt;alert(27)&lt;/script&gt;",
    '" onmouseover="alert(28)" x="',
    "\x1b]52;c;YWxlcnQoMjkp\x07\x9b31m\u202egnp.exe\u2066",
    "\ud800<scr\x00ipt>alert(30)</scr\x00ipt>",
)


def write_hostile_home(home: Path) -> Path:
    """A fleet in which every text of every run is one of PAYLOADS; one more run has an unsafe name."""
    records: list[dict[str, Any]] = []
    for index, payload in enumerate(PAYLOADS):
        record = run_record(index, {"n": index})
        directory = home / "runs" / record["id"]
        directory.mkdir(parents=True)
        for field in ("job", "reason", "host", "commit", "resumed_from", "state"):
            record[field] = payload
        record |= {"params": {"n": index, payload: payload}, "command": ["python", payload], "chips": [payload]}
        record["attempts"][0] |= {"reason": payload, "host": payload, "chips": [payload]}
        record["versions"] = {"torch": payload, payload: "1"}
        (directory / "changes.diff").write_bytes(f"+{payload}\n-{payload}\n".encode("utf-8", "surrogatepass"))
        rows = [{"step": s, "test_loss": 3 - s, payload: s, f"word {payload}": payload} for s in (1, 2)]
        write_lines(directory / "metrics.jsonl", rows)
        write_lines(directory / "completions.jsonl", [{"step": 1, "prompt": payload, "text": payload}])
        (directory / "log.txt").write_bytes(payload.encode("utf-8", "surrogatepass"))
        folder = write_checkpoint(directory, 1, b"x")
        entry = {"path": payload, "size": 1, "sha256": payload}
        (folder / "manifest.json").write_text(json.dumps({"step": 1, "files": [entry]}))
        records.append(record)
        records.append({**record, "id": payload})
    write_listing(home, records, fleet=PAYLOADS[0])
    write_nodes(home, [node_record(payload, [payload]) for payload in PAYLOADS])
    return home


def node_record(name: str, hosts: Sequence[str], **changes: Any) -> dict[str, Any]:
    """A v2-8 that was there for ten minutes, as it stands in nodes.json."""
    return {
        "name": name,
        "id": f"id-{name}",
        "zone": "us-central1-b",
        "accelerator": "v2-8",
        "spot": True,
        "created": stamp(START - timedelta(minutes=1)),
        "seen": stamp(START + timedelta(minutes=9)),
        "gone": None,
        "hosts": list(hosts),
        "chips_per_host": 4,
        "usd_per_hour": 4.5,
        **changes,
    }


def write_nodes(home: Path, nodes: Sequence[Mapping[str, Any]]) -> None:
    (home / "nodes.json").write_text(json.dumps({"schema": 1, "fleet": "sherlock", "nodes": list(nodes)}))


def stamp(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
