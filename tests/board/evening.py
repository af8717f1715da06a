"""An evening to look at: eight runs and some guests on two hosts, a third one down, and what the models write."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tests.board.rig import Desk
from tpufleet.board.records import Points
from tpufleet.board.scene import Chip, Happening, HostChips, Piece, RunRow, Scene

STEPS = 2000
PROMPTS = ('"Elementary, my dear', "The dog did nothing in the", "“You have been in")
TEXTS = (
    ' Watson," said he, "I have not yet heard the whole of it. The lady was in the room, and the papers were upon the '
    'table when the candle went out."\n\n"And the window?" I asked.\n\n"Was open."',
    " night-time, and that was the curious incident, for he had been the\n   only one to see the man come in from the "
    "moor; and yet he had not barked, nor had he moved from the place by the fire.",
    " Afghanistan, I perceive.”\n\n“How on earth did you know that?” I asked in astonishment, for we had not spoken "
    "ten words together.",
    " Watson the the said that was he of. I was the man, and he the of it, sir.",
    " n i ght, th e   cha ir ,and",
)


def run_ids() -> list[str]:
    return [f"gpt-lr{lr}-seed{seed}" for lr in ("0.001", "0.003") for seed in range(4)]


def loss(index: int, step: int, noise: random.Random) -> float:
    """A test loss such as small models have, of the run with this index."""
    floor, speed = 1.55 + 0.07 * index, 7 - 0.5 * index
    return round(floor + (4.3 - floor) * math.exp(-speed * step / STEPS) + noise.gauss(0, 0.02), 4)


def points(first: int = 20, last: int = 1300, every: int = 20) -> list[Points]:
    """The curves of all runs from step `first` to `last`; the later a run is listed, the less far it is."""
    told: list[Points] = []
    for index, run in enumerate(run_ids()):
        noise = random.Random(f"{index} {first}")  # noqa: S311 - noise in a picture
        steps = range(first, last - 60 * index + 1, every)
        values = [
            (
                step,
                {
                    "test_loss": (test := loss(index, step, noise)),
                    "train_loss": round(test - abs(noise.gauss(0, 0.1)), 4),
                },
            )
            for step in steps
        ]
        told.append(Points(run, values, of=STEPS))
    return told


def evening(now: datetime | None = None, step: int = 1300) -> Scene:
    """The scene at the moment `now` at which the first run has done `step` steps."""
    now = now or datetime.now(UTC).replace(microsecond=0)
    ids = run_ids()
    return Scene(
        at=now,
        hosts=(
            HostChips("tpu-0-w0", tuple(_busy(f"tpu-0-w0:{n}", ids[n], now, n) for n in range(4))),
            HostChips(
                "tpu-1-w0",
                (
                    _busy("tpu-1-w0:0", ids[4], now, 4),
                    Chip("tpu-1-w0:1", "in use", "ada", since=now - timedelta(minutes=12), duty=71.0),
                    Chip("tpu-1-w0:2", "free", "grace"),
                    Chip("tpu-1-w0:3", "free"),
                ),
            ),
            HostChips("tpu-2-w0", problem="no answer for 40 s"),
        ),
        standing=("zoe",),
        runs=(*_runs(ids, now, step), _guest(now)),
        pieces=_pieces(ids, step),
        happenings=_happenings(ids, now),
    )


def evening_desk() -> Desk:
    desk = Desk(seen=evening(), points=points())
    for run in run_ids():
        lines = [
            f"step {step:>5} | test loss {4.1 - step / 700:.4f} | 24.{step % 10} steps/s"
            for step in range(20, 1300, 20)
        ]
        desk.logs[run] = "\n".join(["PJRT device: TPU v2, chip 0", *lines]).encode()
    return desk


def _busy(name: str, run: str, now: datetime, n: int) -> Chip:
    since = now - timedelta(minutes=9 + 7 * n, seconds=13)
    return Chip(name, "run", run=run, since=since, hbm_used=(5 + n) * 10**9, hbm_total=16 * 10**9, duty=97.0 - 3 * n)


def _runs(ids: Sequence[str], now: datetime, step: int) -> list[RunRow]:
    rows: list[RunRow] = []
    for index, run in enumerate(ids):
        state = ("running",) * 5 + ("recovering", "queued", "failed")
        done = step - 60 * index
        started = state[index] != "queued"
        lr, seed = run.removeprefix("gpt-lr").split("-seed")
        rows.append(
            RunRow(
                run,
                "gpt",
                state[index],
                reason={"recovering": "preempted", "failed": "out of memory"}.get(state[index]),
                chips=(f"tpu-{index // 4}-w0:{index % 4}",) if started else (),
                step=done if started else None,
                of=STEPS,
                rate=24.1 - index / 3 if index < 5 else None,
                left_s=(STEPS - done) / 24 if index < 5 else None,
                metrics=(("test_loss", 1.61 + 0.08 * index), ("train_loss", 1.5 + 0.07 * index)) if started else (),
                params=(("lr", lr), ("seed", seed)),
                attempts=1 + index // 5,
                started=now - timedelta(minutes=20) if started else None,
                why="tpu-1-w0:1 is ada’s" if not started else None,
            )
        )
    return rows


def _guest(now: datetime) -> RunRow:
    metrics = (("test_loss", 2.204),)
    began = now - timedelta(minutes=12)
    return RunRow("ada-20261121-1810", "", "running", person="ada", step=460, of=1000, metrics=metrics, started=began)


def _pieces(ids: Sequence[str], step: int) -> tuple[Piece, ...]:
    pieces = [
        Piece(
            None, run, step - 200 * late - 60 * n, PROMPTS[(n + late) % 3], TEXTS[(n + late) % 3 if late < 2 else 3], ""
        )
        for late in range(3)
        for n, run in enumerate(ids[:5])
    ]
    guest = Piece("ada", "ada-20261121-1810", 460, PROMPTS[0], TEXTS[3], "2026-11-21T18:10:00Z")
    return (*pieces[:3], guest, *pieces[3:], Piece("ada", guest.run, 100, PROMPTS[1], TEXTS[4], guest.started))


def _happenings(ids: Sequence[str], now: datetime) -> tuple[Happening, ...]:
    told = (
        (40, "silent", "tpu-2-w0", "no answer for 40 s"),
        (190, "resumed", ids[5], "resumed from step 800 on tpu-1-w0:0"),
        (260, "anew", "tpu-1", "another machine under the same name"),
        (420, "preempted", "tpu-1", "the cloud took it away"),
        (700, "failed", ids[7], "out of memory (exit code 137)"),
        *((1200 + 60 * n, "resumed", ids[n % 5], f"resumed from step {600 - 20 * n}") for n in range(25)),
    )
    return tuple(Happening(now - timedelta(seconds=ago), kind, subject, text) for ago, kind, subject, text in told)
