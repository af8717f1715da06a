"""Exercise 6.2 of the workshop: what makes a completion slow on a TPU? Each way to write it, timed and counted.

`python exercise_6_2.py --device xla --way growing`. The ways:
  growing   as one would write it: each byte makes the window longer, and each length is a program of its own
  fixed     at fixed shapes, with a sync for each byte: one program, run again and again (what complete.py does)
  unrolled  at fixed shapes, with one sync at the end: all bytes in one long program
  looped    at fixed shapes, with one sync at the end: a short one that goes round on the device (XLA only)
  cpu       the model moved to the CPU, the text written there, the model moved back
The model is untrained: the time does not depend on the weights. Each of --times completions is a record in
metrics.jsonl: milliseconds a byte, compilations and transfers of this one; the first one's are told twice, as
first_ms_a_byte and so on, to stand beside the last one's in a report.
"""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch does without it, and so do we
    import torch

import device as devices
import records
from complete import complete, fixed, growing, paper, write
from model import GPT
from options import DEVICES, PROMPT, Options, Parser, integer
from training import shape_of

LENGTH = 32
FIRST = ("ms_a_byte", "compilations", "compile_seconds")


class Silent(devices.Device):
    """A device that lets everything wait until it is looked at: `unrolled` asks it to sync, and it does not."""

    is_lazy = True

    def sync(self, what: str = "", *inputs: torch.Tensor) -> None:
        pass


def looped(model: GPT, device: devices.Device, start: bytes, noise: torch.Tensor) -> Iterator[torch.Tensor]:
    """Goes over the noise (length, 256) in a loop of XLA's; the paper is handed from turn to turn.

    The quickest, and not what complete.py does: torch_xla's loop takes the weights as they are to be its own, and a
    step that torch.compile compiles after it would go on with these for ever.
    """
    written, places = paper(model, device, start, len(noise))
    ends = torch.arange(len(start), len(start) + len(noise))[:, None].to(device.torch)

    def turn(written: torch.Tensor, row: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return write(model, written, places, *row)

    _, following = device.loop()(turn, written, (ends, noise))
    yield from following


def say(way: str, model: GPT, device: devices.Device, length: int, seed: int) -> bytes:
    """`length` bytes, written in one of the ways."""
    how = {"length": length, "temperature": 1.0, "seed": seed}
    start = PROMPT.encode()
    if way == "cpu":
        model.on(torch.device("cpu"))
        said = complete(model, devices.choose("cpu"), start, **how)
        model.on(device.torch)
        return said
    if way == "unrolled":
        device = Silent(device.torch, device.name, device.why)
    follow = {"growing": growing, "looped": looped}.get(way, fixed)
    return complete(model, device, start, **how, follow=follow)


def main() -> None:
    parser = Parser(description="Time a completion.", allow_abbrev=False)
    parser.add_argument("--device", choices=DEVICES, default="auto")
    parser.add_argument("--way", choices=("growing", "fixed", "unrolled", "looped", "cpu"), default="fixed")
    parser.add_argument("--length", type=integer(1, 1_000), default=LENGTH, metavar="N", help=f"bytes [{LENGTH}]")
    parser.add_argument("--times", type=integer(1, 1_000), default=3, metavar="N", help="completions [3]")
    options = parser.parse_args()
    try:
        device = devices.choose(options.device)
    except devices.DeviceError as error:
        parser.exit(1, f"exercise_6_2.py: {error}\n")
    if options.way == "looped" and not device.is_lazy:
        parser.error(f"--way looped needs --device xla: the loop is torch_xla's, and this is {device.name}")
    out = Path(os.environ.get("TPUFLEET_RUN_DIR") or "out")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # a byte is so little to do that threads would only wait for each other
    torch.manual_seed(0)
    model = GPT(shape_of(Options())).on(device.torch)
    device.sync("the model")
    print(f"device   {device.name} ({device.why}), {options.way}", flush=True)
    for number in range(1, options.times + 1):
        before, begin = device.counts(), time.perf_counter()
        say(options.way, model, device, options.length, seed=number)
        seconds = time.perf_counter() - begin
        after = device.counts()
        more = {name: after[name] - before.get(name, 0) for name in after if name != "fallbacks"}
        told = {"ms_a_byte": round(1000 * seconds / options.length, 4), **more}
        if number == 1:  # beside the later ones, which find everything compiled
            told |= {f"first_{name}": told[name] for name in FIRST if name in told}
        records.append(out / "metrics.jsonl", {"step": number, "steps": options.times, **told})
        print("  ".join([f"completion {number}", *(f"{name} {value}" for name, value in told.items())]), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
