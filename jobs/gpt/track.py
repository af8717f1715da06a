"""Where a training tells its numbers besides its own records: Weights & Biases, or trackio.

Nothing here is imported unless --track asks for it. A run of tpufleet's is one run there as well, however often it was
started: its id is TPUFLEET_RUN_ID, and what was told before is not told again.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PROJECT = "tpufleet"


class TrackError(Exception):
    """The tracker can't be used; the message is one sentence."""


class Tracker:
    """Tells one of the libraries of each step from `first` on."""

    def __init__(self, run: Any, first: int) -> None:
        self.run, self.first = run, first

    def log(self, step: int, metrics: Mapping[str, object]) -> None:
        """Tells the numbers of a step, unless that was done before the run was resumed."""
        if step >= self.first:
            self.run.log({name: value for name, value in metrics.items() if isinstance(value, (int, float))}, step=step)

    def finish(self) -> None:
        """Waits until everything has been sent."""
        self.run.finish()


def start(
    name: str, config: Mapping[str, object], out: Path, told: int | None, say: Callable[[str], None]
) -> Tracker | None:
    """The tracker called `name`, or None for "none" and where its server can't be reached. Raises TrackError.

    `told` is the last step that the run's records had before it was resumed, None for a run that begins.
    """
    if name == "none":
        return None
    run_id = os.environ.get("TPUFLEET_RUN_ID")
    first = 0 if told is None else told + 1
    starter = {"wandb": _wandb, "trackio": _trackio}[name]
    try:
        return starter(run_id, dict(config), out, first)
    except ImportError:
        raise TrackError(f"--track {name} needs the package {name}: pip install {name}") from None
    except ConnectionError as error:
        say(f"track    not by {name}: {error}")
        return None


def _wandb(run_id: str | None, config: dict[str, object], out: Path, first: int) -> Tracker:
    """Online it says itself at which step it goes on; a run that begins anew takes the place of one of the same id."""
    import wandb

    project = os.environ.get("WANDB_PROJECT") or PROJECT
    try:
        run = wandb.init(
            project=project,
            id=run_id,
            name=run_id,
            resume="allow" if run_id and first else None,
            config=config,
            dir=out,
            settings=wandb.Settings(console="off"),  # the log is tpufleet's to bring home
        )
    except wandb.errors.AuthenticationError as error:
        raise TrackError(f"wandb: {_sentence(error)}") from None
    except wandb.errors.CommError as error:
        raise ConnectionError(_sentence(error)) from None
    except wandb.Error as error:  # no key where nobody can be asked, an impossible project
        raise TrackError(f"wandb: {_sentence(error)}") from None
    return Tracker(run, max(first, run.starting_step))


def _trackio(run_id: str | None, config: dict[str, object], out: Path, first: int) -> Tracker:
    """Into the run's own directory, unless a Space or a server is named: `artifacts: ["trackio/**"]` brings it home."""
    os.environ.setdefault("TRACKIO_DIR", str(out / "trackio"))  # read when the package is imported
    import trackio

    project = os.environ.get("TRACKIO_PROJECT") or PROJECT
    try:
        run = trackio.init(
            project=project,
            name=run_id,
            resume="allow" if run_id and first else "never",
            config=config,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    except ConnectionError:
        raise
    except (ValueError, OSError) as error:  # an impossible address; no token for a Space
        raise TrackError(f"trackio: {_sentence(error)}") from None
    return Tracker(run, first)


def _sentence(error: Exception) -> str:
    """The first line of what a library says at length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
