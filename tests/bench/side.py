"""Run by the Python that has torch: one of two trainings that are compared, ours or the workshop's repository's.

`side.py ours|workshop DIRECTORY TEXT THREADS`. A line on standard input asks for something, a line of JSON answers:
`steps N` trains so many, `look` evaluates and completes as a cycle of 100 steps ends with; both answer with the
seconds on the clock and of CPU. `loss` answers with the test loss on 1,024 windows, the same on both sides. `profile`
answers with where the time of a step goes: the dearest operations, each with its milliseconds.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

CONTEXT, BATCH, EVALUATED, WRITTEN, PROMPT = 128, 32, 256, 32, '"Elementary, my dear'
WINDOWS, CHUNK = 1024, 128
PROFILED = 10  # steps


class Ours:
    """jobs/gpt with its defaults, which are the workshop's settings."""

    def __init__(self, text: bytes) -> None:
        import complete
        import device
        import options
        import training

        cpu, self.complete = device.choose("cpu"), complete.complete
        cut = int(len(text) * 0.8)
        learning, testing = (training.Windows(part, CONTEXT, cpu) for part in (text[:cut], text[cut:]))
        self.training = training.Training(options.Options(), learning, cpu)
        self.testing = testing.evenly(EVALUATED)

    def step(self) -> None:
        self.training.advance()

    def look(self) -> None:
        self.training.test_loss(*self.testing)
        model, cpu = self.training.model, self.training.device
        self.complete(model, cpu, PROMPT.encode(), length=WRITTEN - len(PROMPT), temperature=1.0, seed=0)

    def scores(self, windows: torch.Tensor) -> torch.Tensor:
        return self.training.model(windows)


class Workshop:
    """What the loop of its train.py does, with its model.py."""

    def __init__(self, text: bytes) -> None:
        import model

        torch.manual_seed(0)
        self.module, self.text = model, text
        self.data = model.ByteCorpus(str(TEXT), "cpu")
        sizes = {"embed_size": 32, "mlp_size": 64, "num_heads": 4, "num_layers": 4}
        self.model = model.ByteTransformer(max_context_length=CONTEXT, device="cpu", **sizes)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.001)

    def step(self) -> None:
        batch = self.data.get_training_batch(seq_length=CONTEXT, batch_size=BATCH)
        loss = self.module.next_byte_cross_entropy_loss(batch, self.model(batch))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def look(self) -> None:
        self.model.eval()
        batch = self.data.get_testing_batch(seq_length=CONTEXT, batch_size=EVALUATED)
        with torch.no_grad():
            float(self.module.next_byte_cross_entropy_loss(batch, self.model(batch)))
            self.module.complete(self.model, PROMPT, max_bytes=WRITTEN)
        self.model.train()

    def scores(self, windows: torch.Tensor) -> torch.Tensor:
        return self.model(windows)


@torch.no_grad()
def loss(side: Ours | Workshop, text: bytes) -> float:
    """Mean surprise at bytes 2 to 128 of windows spread over the last fifth of the text, in nats a byte."""
    testing = torch.frombuffer(bytearray(text[int(len(text) * 0.8) :]), dtype=torch.uint8)
    starts = torch.arange(WINDOWS) * (len(testing) - CONTEXT - 1) // (WINDOWS - 1)
    total = 0.0
    for chunk in starts.split(CHUNK):
        windows = testing[chunk[:, None] + torch.arange(CONTEXT)].long()
        scores = side.scores(windows)[:, :-1]
        total += float(torch.nn.functional.cross_entropy(scores.flatten(0, 1), windows[:, 1:].flatten())) * len(chunk)
    return total / WINDOWS


def profile(side: Ours | Workshop) -> list[tuple[str, float]]:
    """The eight operations that take most of a step, each with its milliseconds of CPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        for _ in range(PROFILED):
            side.step()
    found = [(event.key, event.self_cpu_time_total / 1000 / PROFILED) for event in recorded.key_averages()]
    return sorted(found, key=lambda one: -one[1])[:8]


def timed(work: Callable[[], object]) -> list[float]:
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return [time.perf_counter() - clock, time.process_time() - cpu]


if __name__ == "__main__":
    NAME, DIRECTORY, TEXT, THREADS = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    sys.path.insert(0, DIRECTORY)
    torch.set_num_threads(THREADS)
    data = TEXT.read_bytes()
    side = {"ours": Ours, "workshop": Workshop}[NAME](data)
    for line in sys.stdin:
        match line.split():
            case ["steps", count]:
                answer: object = timed(lambda count=count: [side.step() for _ in range(int(count))])
            case ["look"]:
                answer = timed(side.look)
            case ["profile"]:
                answer = profile(side)
            case _:
                answer = loss(side, data)
        print(json.dumps(answer), flush=True)
