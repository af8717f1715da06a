"""What is told of a training while it runs: losses and completions, as records and as a line on the terminal."""

import time
from collections.abc import Mapping
from pathlib import Path

import records
from complete import complete
from options import Options
from text import printable
from track import Tracker
from training import Training, Windows


class Reporter:
    """Evaluates a model and tells: the records get everything, the terminal one line."""

    def __init__(
        self, out: Path, options: Options, testing: Windows, about: Mapping[str, object], tracker: Tracker | None = None
    ) -> None:
        self.out, self.options, self.tracker = out, options, tracker
        self.testing = testing.evenly(options.eval_batch)
        self.about: Mapping[str, object] | None = about  # `setup` in the first record of each start
        self.spoken: list[str] = []  # the newest completion of each prompt, with the prompt
        self.clock, self.clock_step = time.monotonic(), 0

    def start_clock(self, step: int) -> None:
        """Steps per second are counted from here; what a report takes is not the training's."""
        self.clock, self.clock_step = time.monotonic(), step

    def report(self, training: Training) -> None:
        """Evaluates and tells of this step."""
        train_loss = training.take_train_loss()  # waits for the device: only then has the clock its meaning
        seconds = max(time.monotonic() - self.clock, 1e-9)
        loss = training.test_loss(*self.testing)
        metrics: dict[str, object] = {"step": training.step, "steps": self.options.steps, "test_loss": loss}
        if train_loss is not None:
            speed = (training.step - self.clock_step) / seconds
            metrics |= {"train_loss": train_loss, "steps_per_second": round(speed, 2)}
        metrics |= training.device.counts()
        if self.about is not None:
            metrics["setup"], self.about = dict(self.about), None
        records.append(self.out / "metrics.jsonl", metrics)
        if self.tracker is not None:
            self.tracker.log(training.step, {name: metrics[name] for name in metrics.keys() - {"step", "steps"}})
        self._let_speak(training)
        print(self._line(metrics), flush=True)
        for surprise in training.device.surprises():
            print(f"warning  step {training.step}: {surprise}", flush=True)
        if train_loss is not None:
            training.device.settle()  # by now everything that recurs was there once
        self.start_clock(training.step)

    def _let_speak(self, training: Training) -> None:
        self.spoken = []
        for prompt in self.options.prompt:
            # A seed that follows from the step: a resumed run says the same, and nothing need be saved for it.
            following = complete(
                training.model,
                training.device,
                prompt.encode(errors="surrogateescape"),
                length=self.options.length,
                temperature=self.options.temperature,
                seed=(self.options.seed + training.step) % 2**63,
            ).decode(errors="replace")
            shown = prompt.encode(errors="surrogateescape").decode(errors="replace")
            record = {"step": training.step, "prompt": shown, "text": following}
            records.append(self.out / "completions.jsonl", record)
            self.spoken.append(printable(shown + following))

    def _line(self, metrics: Mapping[str, object]) -> str:
        """`step   100/50000  train 2.871  test 2.746  12.1 steps/s  "Elementary, my dear…`"""
        step = f"step {metrics['step']:>6}/{self.options.steps}"
        train = f"train {metrics['train_loss']:6.3f}" if "train_loss" in metrics else " " * 12
        speed = f"{metrics['steps_per_second']:6.1f} steps/s" if "steps_per_second" in metrics else " " * 14
        said = " ".join(self.spoken[0].split())[:60]
        return f"{step}  {train}  test {metrics['test_loss']:6.3f}  {speed}  {said}"
