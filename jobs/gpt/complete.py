"""Lets a trained model go on from a prompt, byte by byte: `python complete.py out '"Elementary, my dear'`."""

import codecs
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C just ends it, also while torch is being imported
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # and so does `| head` that has seen enough

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch does without it, and so do we
    import torch

import checkpoint
import device as devices
from model import GPT, VOCABULARY, Shape
from options import DEVICES, LENGTH, PROMPT, SEED, TEMPERATURE, Parser, prompt
from text import printable

NARROW = 128  # so little to do for one byte that a CPU's threads would only wait for each other

# writes bytes after a start, with the noise (length, 256) that makes the choice
Follow = Callable[[GPT, devices.Device, bytes, torch.Tensor], Iterator[torch.Tensor]]


@torch.no_grad()
def continuation(
    model: GPT,
    device: devices.Device,
    start: bytes,
    *,
    length: int,
    temperature: float,
    seed: int,
    follow: Follow | None = None,
) -> Iterator[torch.Tensor]:
    """Yields `length` bytes that follow `start`, each a number that is still on the device.

    Drawing a byte by its probability is the same as taking the highest score after adding noise (Gumbel's).
    All the noise is drawn beforehand on the CPU: a seed gives the same text on every device, and the
    training's own random numbers are left alone. A model that sees `context` bytes at most gets the last ones.
    """
    chance = torch.empty(length, VOCABULARY).exponential_(generator=torch.Generator().manual_seed(seed))
    noise = (-temperature * chance.clamp_min(1e-30).log()).to(device.torch)
    follow = follow or (fixed if device.is_lazy else growing)
    yield from follow(model, device, start[-model.shape.context :], noise)


def growing(model: GPT, device: devices.Device, start: bytes, noise: torch.Tensor) -> Iterator[torch.Tensor]:
    """As one would write it: the window grows by a byte, up to the context (to XLA, a new program each time)."""
    window = torch.tensor(list(start), device=device.torch)
    for extra in noise:
        byte = (model(window[None])[0, -1] + extra).argmax(0, keepdim=True)
        window = torch.cat((window, byte))
        window = window[max(len(window) - model.shape.context, 0) :]  # torch_xla takes no beginning before the first
        byte = byte[0]
        device.sync("a byte of a completion", window)
        yield byte


def fixed(model: GPT, device: devices.Device, start: bytes, noise: torch.Tensor) -> Iterator[torch.Tensor]:
    """As XLA likes it: shapes never change and every index is a tensor, so this is compiled once for all bytes."""
    written, places = paper(model, device, start, len(noise))
    end = torch.tensor([len(start)]).to(device.torch)  # so many bytes are written so far
    step = torch.tensor([0]).to(device.torch)
    for _ in range(len(noise)):
        written, byte = write(model, written, places, end, noise.index_select(0, step))
        end, step = end + 1, step + 1
        device.sync("a byte of a completion", written)
        yield byte


def paper(model: GPT, device: devices.Device, start: bytes, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`start` with zeros after it (context + length,), on the device, and the numbers of these places."""
    written = torch.zeros(model.shape.context + length, dtype=torch.long)
    written[: len(start)] = torch.tensor(list(start))
    return written.to(device.torch), torch.arange(len(written)).to(device.torch)


def write(
    model: GPT, written: torch.Tensor, places: torch.Tensor, end: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The paper with one more byte, which comes at `end` (1,), and the byte; `noise` (1, 256) or (256,) chooses it."""
    first = (end - model.shape.context).clamp_min(0)
    window = written.index_select(0, first + places[: model.shape.context])  # nothing looks at what is after the end
    scores = model(window[None])[0].index_select(0, end - 1 - first)
    byte = (scores + noise).argmax(1)[0]
    return torch.where(places == end, byte, written), byte


def complete(model: GPT, device: devices.Device, start: bytes, **how: Any) -> bytes:
    """The bytes that follow `start`, as `continuation` says it, fetched from the device in one go."""
    model.eval()
    following = torch.stack(list(continuation(model, device, start, **how)))
    device.sync("the end of a completion", following)
    model.train()
    return bytes(following.tolist())


def load_model(where: Path, device: devices.Device) -> GPT:
    """The model of a checkpoint, or of the newest one below `where`, on `device`. Raises CheckpointError."""
    found = checkpoint.find(where)
    checkpoint.verify(found)
    saved = checkpoint.load(found, "model")
    try:
        model = GPT(Shape(**saved["shape"]))
        model.load_state_dict(saved["weights"])
        model(torch.zeros(1, 1, dtype=torch.long))  # heads that don't fit have no weights to be seen in
    except checkpoint.UNFIT:  # another program's model, or another version's
        raise checkpoint.CheckpointError(f"{found} holds a model of another shape than this program makes") from None
    return model.on(device.torch).eval()


def main() -> None:
    parser = Parser(description="Let a trained model go on from a prompt.", allow_abbrev=False)
    parser.add_argument("checkpoint", type=Path, help="a checkpoint, or the directory a training wrote to")
    parser.add_argument("prompt", nargs="?", type=prompt, default=PROMPT, help=f"[{PROMPT}]")
    parser.add_argument("--length", type=LENGTH, default=256, metavar="N", help="bytes to write [256]")
    parser.add_argument("--temperature", type=TEMPERATURE, default=1.0, metavar="T", help="0 is the likeliest [1]")
    parser.add_argument("--seed", type=SEED, default=0, metavar="N", help="another seed, another text [0]")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where to run it [cpu]")
    options = parser.parse_args()
    try:
        device = devices.choose(options.device)
        model = load_model(options.checkpoint, device)
    except checkpoint.CheckpointError as error:
        parser.exit(2, f"complete.py: {printable(str(error))}\n")
    except devices.DeviceError as error:
        parser.exit(1, f"complete.py: {printable(str(error))}\n")
    if model.shape.width <= NARROW:
        torch.set_num_threads(1)
    start = options.prompt.encode(errors="surrogateescape")
    if len(start) > (context := model.shape.context):
        print(f"complete.py: the prompt has {len(start)} bytes; this model sees the last {context}", file=sys.stderr)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a letter may be several bytes

    def show(data: bytes, final: bool = False) -> None:
        print(printable(decoder.decode(data, final)), end="", flush=True)

    sys.stdout.reconfigure(errors="replace")
    show(start)
    chosen = {"length": options.length, "temperature": options.temperature, "seed": options.seed}
    for byte in continuation(model, device, start, **chosen):
        show(bytes([int(byte)]))
    show(b"\n", final=True)


if __name__ == "__main__":
    main()
