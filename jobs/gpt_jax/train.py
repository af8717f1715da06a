"""A small GPT on the bytes of a text, in JAX, in one file. It reads from top to bottom:

options, device, text, model, training and completion, records and checkpoints, the whole run.

    python train.py --preset demo                           # words in a minute or two on a laptop
    python train.py --complete out --prompt 'Good night'    # what a trained model goes on to say

All randomness is a function of the seed and the step, so no generator has a state to save, and a resumed
training sees what it would have seen. The three programs (steps, evaluation, completion) are compiled before
the first step, for fixed shapes, and can be given no others; every record tells how many were compiled.
"""

import argparse
import contextlib
import fcntl
import hashlib
import http.client
import io
import json
import math
import os
import re
import shutil
import signal
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

Tree = dict[str, Any]  # of arrays: {"norm": {"weight": …, "bias": …}, …}
Options = argparse.Namespace


class Refused(Exception):
    """What was asked for can't be: one sentence for a person, exit code 2."""


class DeviceError(Exception):
    """The device that was asked for is not there: one sentence for a person, exit code 1."""


# ── options ─────────────────────────────────────────────────────────────────────────────────────────────────

SHERLOCK = (
    "https://raw.githubusercontent.com/matomatical/bitesizedGPT/main/data/sherlock-ascii.txt"
    "#sha256=c37844f5b8e03d0cb338d87b2622325aec88b82e9153e39afbc89166663ff0d7"
)
BUILTIN = "builtin:python-docs"
PROMPT = '"Elementary, my dear'
PRESETS: dict[str, dict[str, Any]] = {
    "workshop": {},  # the defaults below
    "demo": {
        "context": 64, "width": 64, "mlp": 128, "layers": 2, "block": "usual", "batch": 8, "lr": 0.003,
        "steps": 2_000, "eval_batch": 128, "checkpoint_every": 250, "temperature": 0.8, "threads": 1,
    },
}  # fmt: skip


def parse_options(arguments: list[str] | None = None) -> Options:
    """The options of a command line. A preset is only defaults: what is given wins, wherever it stands."""
    parser = Parser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    whole, above_0 = number(int, 1, 2**31 - 1), number(float, 1e-12, 1e12)
    add("--preset", choices=sorted(PRESETS), default="workshop", help="a set of defaults [workshop]")
    add("--context", type=whole, default=128, help="bytes the model sees at once [128]")
    add("--width", type=whole, default=32, help="size of the vector that stands for a byte [32]")
    add("--mlp", type=whole, default=64, help="hidden size of the MLPs [64]")
    add("--heads", type=whole, default=4, help="attention heads of a block [4]")
    add("--layers", type=whole, default=4, help="blocks [4]")
    blocks = "usual: a projection after attention, and what came in added once [workshop]"
    add("--block", choices=("workshop", "usual"), default="workshop", help=blocks)
    add("--attention-only", action="store_true", help="leave the MLPs out")
    add("--dropout", type=number(float, 0, 0.999), default=0.0, help="share dropped in training [0]")
    add("--steps", type=number(int, 1, 99_999_999), default=50_000, help="steps in all [50000]")
    add("--steps-per-launch", type=whole, default=1, help="steps the device takes without being asked again [1]")
    add("--batch", type=whole, default=32, help="windows of text in a step [32]")
    add("--lr", type=above_0, default=0.001, help="Adam's learning rate [0.001]")
    add("--seed", type=number(int, 0, 2**31 - 1), default=0, help="of weights, batches, completions [0]")
    add("--corpus", help=f"a file, URL#sha256=HEX, or {BUILTIN} [Sherlock Holmes]")
    add("--device", choices=("auto", "cpu", "tpu"), default="auto", help="[auto: the TPU where there is one]")
    add("--threads", type=whole, help="CPU threads [all]")
    add("--eval-every", type=whole, default=100, help="steps between evaluations [100]")
    add("--eval-batch", type=whole, default=256, help="windows of text in an evaluation [256]")
    add("--checkpoint-every", type=whole, default=1_000, help="steps between checkpoints [1000]")
    add("--keep", type=whole, default=2, help="checkpoints that are kept [2]")
    add("--prompt", action="append", type=prompt, help=f"to be completed; may be repeated [{PROMPT}]")
    add("--length", type=number(int, 1, 100_000), default=200, help="bytes of a completion [200]")
    add("--temperature", type=number(float, 0, 1e6), default=1.0, help="0 is always the likeliest byte [1]")
    add("--out", default="out", help="directory to write to, where TPUFLEET_RUN_DIR is not set [out]")
    add("--resume", metavar="DIR|auto", help="a checkpoint to go on from, or auto: the newest in the directory")
    add("--complete", metavar="DIR", help="don't train: let the model of this checkpoint go on from the prompts")
    parser.set_defaults(**PRESETS[parser.parse_args(arguments).preset])
    options = parser.parse_args(arguments)
    options.prompt = options.prompt or [PROMPT]
    if options.width % options.heads:
        parser.error(f"--width {options.width} does not divide into --heads {options.heads}")
    for name in ("steps", "eval_every", "checkpoint_every"):
        if vars(options)[name] % options.steps_per_launch:
            parser.error(f"--steps-per-launch does not divide --{name.replace('_', '-')} {vars(options)[name]}")
    return options


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {printable(message)}; --help shows every option\n")


def number(kind: type, least: float, most: float) -> Callable[[str], Any]:
    """An argparse type: a number of this kind from `least` to `most`."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return value

    parse.__name__ = "whole number" if kind is int else "number"  # "invalid number value: 'x'"
    return parse


def prompt(text: str) -> str:
    """An argparse type: a prompt, which must hold at least one byte for the model to go on from."""
    if not text:
        raise argparse.ArgumentTypeError("the prompt is empty; the model needs at least one byte to go on from")
    return text


def printable(text: str) -> str:
    """`text` made safe for a terminal: control and invisible characters become `�`; newline and tab stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def say(line: str) -> None:
    print(printable(line), flush=True)


# ── device ──────────────────────────────────────────────────────────────────────────────────────────────────


def choose_device(options: Options) -> tuple[jax.Device, str]:
    """The first device of the kind that is wanted, and why it was chosen. Raises DeviceError.

    Left alone, JAX takes a CPU with no more than a warning when the chip is busy, so it gets no choice.
    """
    wanted, why = options.device, "as asked"
    if wanted == "auto":
        # v2 to v4 have /dev/accelN, v5e and later /dev/vfio/N (/dev/vfio/vfio is there without a TPU, too)
        chips = [*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")]
        kept_off = "cpu" in (os.environ.get("JAX_PLATFORMS"), os.environ.get("PJRT_DEVICE", "").lower())
        wanted = "tpu" if chips and not kept_off else "cpu"
        why = "kept off the chips" if kept_off else "a TPU chip is here" if chips else "no TPU chip here"
    if options.threads:
        os.environ["NPROC"] = str(options.threads)  # what XLA's CPU client takes for the number of cores
    jax.config.update("jax_platforms", wanted)
    try:
        device = jax.devices()[0]
    except RuntimeError as error:
        raise DeviceError(f"JAX can't use a {wanted} here: {str(error).splitlines()[0]}") from None
    if device.platform != wanted:
        raise DeviceError(f"JAX was to use a {wanted}, but took a {device.platform}")
    return device, why


def count_compilations() -> list[float]:
    """A list that grows by the seconds that a program took to be compiled, whenever JAX compiles one from now on."""
    seconds: list[float] = []

    def note(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(note)
    return seconds


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────


def load_text(named: str | None) -> tuple[str, bytes]:
    """Where the text is from, and its bytes. Sherlock Holmes, which nobody named, has a stand-in when offline."""
    if named:
        return named, read_text(named)
    try:
        return SHERLOCK, read_text(SHERLOCK)
    except Refused as error:
        say(f"{error}; training on Python's own documentation instead ({BUILTIN})")
        return BUILTIN, read_text(BUILTIN)


def read_text(source: str) -> bytes:
    """The bytes of a file, of `URL#sha256=HEX` (kept in a cache), or of the help texts that Python brings along."""
    if source == BUILTIN:
        from pydoc_data.topics import topics  # half a megabyte that few runs want

        return "\n\n".join(topics[name] for name in sorted(topics)).encode()
    url, _, sha256 = source.partition("#sha256=")
    if not url.startswith(("https://", "http://")):
        if not Path(source).is_file():
            raise Refused(f"there is no text file {source}")
        try:
            return Path(source).read_bytes()
        except OSError as error:
            raise Refused(f"the text {source} can't be read: {error.strerror}") from None
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise Refused(f"a text from the network needs its checksum: {url}#sha256=HEX")
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpufleet-gpt" / sha256
    if cached.is_file() and hashlib.sha256(data := cached.read_bytes()).hexdigest() == sha256:
        return data
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  http(s), checked above
            data = answer.read(1 << 30)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Refused(f"the text at {url} can't be had ({getattr(error, 'reason', error)})") from None
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise Refused(f"the text at {url} is another than expected: its sha256 is {found}")
    with contextlib.suppress(OSError):  # a cache that can't be written costs a download next time, no more
        cached.parent.mkdir(parents=True, exist_ok=True)
        replace(cached, data)
    return data


def split(source: str, data: bytes, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Four fifths of a text to train on and one to test on, as in the workshop, each with a window at least."""
    array = np.frombuffer(data, np.uint8)
    training, testing = np.split(array, [int(len(array) * 0.8)])
    if not data:
        raise Refused(f"the text is empty: {source}")
    if min(len(training), len(testing)) <= context:
        raise Refused(f"the text has {len(array):,} bytes, too few for a context of {context}")
    return training, testing


# ── model: B windows of T bytes in, the scores of the 256 bytes that may follow each position out ───────────


def initial_weights(options: Options) -> Tree:
    """Weights as torch's layers begin with, those of all blocks stacked: (layers, …), for `scan` to go through."""
    width, mlp, layers = options.width, options.mlp, options.layers
    random = np.random.default_rng(options.seed)

    def even(fan_in: int, *size: int) -> np.ndarray:
        return random.uniform(-(fan_in**-0.5), fan_in**-0.5, size).astype(np.float32)

    def normal(*size: int) -> np.ndarray:
        return 0.1 * random.standard_normal(size, np.float32)

    def linear(fan_in: int, fan_out: int, *stack: int) -> Tree:
        return {"weight": even(fan_in, *stack, fan_in, fan_out), "bias": even(fan_in, *stack, fan_out)}

    def norm(*stack: int) -> Tree:
        return {"weight": np.ones((*stack, width), np.float32), "bias": np.zeros((*stack, width), np.float32)}

    blocks = {"attention_norm": norm(layers), "query_key_value": {"weight": even(width, layers, width, 3 * width)}}
    if options.block == "usual":
        blocks |= {"output": linear(width, width, layers)}
    if not options.attention_only:
        blocks |= {
            "mlp_norm": norm(layers),
            "mlp_in": linear(width, mlp, layers),
            "mlp_out": linear(mlp, width, layers),
        }
    return {
        "bytes": normal(256, width),
        "positions": normal(options.context, width),
        "blocks": blocks,
        "norm": norm(),
        "scores": linear(width, 256),
    }


def forward(
    weights: Tree, windows: jax.Array, heads: int, dropout: float = 0.0, key: jax.Array | None = None
) -> jax.Array:
    """(B, T) bytes -> (B, T, 256) scores of the next byte. Each block looks back (attention), then thinks (MLP).

    The usual block mixes what its heads have found ("output"); the workshop's leaves that to the MLP, and adds what
    came in once more.
    """

    def linear(x: jax.Array, layer: Tree) -> jax.Array:
        return x @ layer["weight"] + layer.get("bias", 0)

    def norm(x: jax.Array, layer: Tree) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * layer["weight"] + layer["bias"]

    def drop(x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 1 - dropout, x.shape), x / (1 - dropout), 0) if dropout else x

    def block(x: jax.Array, of: tuple[Tree, jax.Array]) -> tuple[jax.Array, None]:
        layer, (key_1, key_2) = of
        qkv = linear(norm(x, layer["attention_norm"]), layer["query_key_value"])
        query, key, value = qkv.reshape(*x.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4)  # each (B, heads, T, size)
        regard = query @ key.swapaxes(2, 3) / math.sqrt(query.shape[3]) + future  # (B, heads, T, T)
        mixed = (jax.nn.softmax(regard) @ value).swapaxes(1, 2).reshape(x.shape)
        y = x + drop(linear(mixed, layer["output"]) if "output" in layer else mixed, key_1)
        if "mlp_in" in layer:
            hidden = jax.nn.relu(linear(norm(y, layer["mlp_norm"]), layer["mlp_in"]))
            y = y + drop(linear(hidden, layer["mlp_out"]), key_2)
        return y if "output" in layer else x + y, None

    layers, length = len(weights["blocks"]["query_key_value"]["weight"]), windows.shape[1]
    keys = jax.random.split(key, 2 * layers + 1) if dropout else jnp.zeros(2 * layers + 1)
    future = jnp.where(jnp.tri(length, dtype=bool), 0, -1e30)  # no position looks at those after it
    x = drop(weights["bytes"][windows] + weights["positions"][:length], keys[0])
    x, _ = jax.lax.scan(block, x, (weights["blocks"], keys[1:].reshape(layers, 2)))
    return linear(norm(x, weights["norm"]), weights["scores"])


def loss(weights: Tree, windows: jax.Array, **how: Any) -> jax.Array:
    """Mean surprise, in nats a byte, at the bytes that really followed. `windows` are (B, T + 1) bytes."""
    scores = forward(weights, windows[:, :-1], **how)
    followed = jax.nn.one_hot(windows[:, 1:], 256)
    return (jax.nn.logsumexp(scores, -1) - (scores * followed).sum(-1)).mean()


# ── training and completion ─────────────────────────────────────────────────────────────────────────────────


def initial_state(options: Options) -> Tree:
    """The weights, and Adam's running means of the gradient and of its square: three trees of the same arrays."""
    weights = initial_weights(options)
    zeros = jax.tree.map(np.zeros_like, weights)
    return {"weights": weights, "mean": zeros, "square": zeros}


def adam(state: Tree, gradient: Tree, step: jax.Array, rate: jax.Array) -> Tree:
    """Moves all weights a little against the gradient, as torch.optim.Adam does; the first step is number 1."""
    # 1 - b**step, with the digits that float32 has no room for beside the 1
    unbias_mean, unbias_square = -jnp.expm1(step * math.log(0.9)), -jnp.expm1(step * math.log(0.999))

    def move(weight: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        return weight - rate / unbias_mean * mean / (jnp.sqrt(square / unbias_square) + 1e-8)

    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state["square"], gradient)
    return {"weights": jax.tree.map(move, state["weights"], mean, square), "mean": mean, "square": square}


def draw(options: Options, step: int, places: int) -> tuple[np.ndarray, np.ndarray]:
    """The steps of a launch after `step`, (n,), and where in the text their batches begin, (n, batch) of `places`."""
    steps = np.arange(step, step + options.steps_per_launch, dtype=np.int32) + 1
    random = [np.random.default_rng((options.seed, number)) for number in steps]
    return steps, np.stack([dice.integers(places, size=options.batch, dtype=np.int32) for dice in random])


def launch(
    options: Options, state: Tree, data: jax.Array, batches: tuple[jax.Array, jax.Array], rate: jax.Array
) -> tuple[Tree, jax.Array]:
    """Takes the steps that `draw` drew; the new state, and each step's loss."""

    def take(state: Tree, batch: tuple[jax.Array, jax.Array]) -> tuple[Tree, jax.Array]:
        step, starts = batch
        windows = data[starts[:, None] + jnp.arange(options.context + 1)]  # gathered on the device
        key = jax.random.fold_in(jax.random.key(options.seed), step) if options.dropout else None
        how = {"heads": options.heads, "dropout": options.dropout, "key": key}
        found, gradient = jax.value_and_grad(loss)(state["weights"], windows, **how)
        return adam(state, gradient, step, rate), found

    return jax.lax.scan(take, state, batches)


def complete(options: Options, weights: Tree, written: jax.Array, end: jax.Array, noise: jax.Array) -> jax.Array:
    """Fills `written` (context + length,) from `end` on, byte by byte, without coming back from the device.

    Drawing a byte by its probability is the same as taking the highest score after adding noise (Gumbel's),
    (length, 256) numbers that are drawn beforehand. What stands after the end is zeros, which attention does
    not look at: so shapes never change.
    """

    def add_byte(number: jax.Array, written: jax.Array) -> jax.Array:
        at = end + number
        first = jnp.maximum(at - options.context, 0)
        window = jax.lax.dynamic_slice(written, (first,), (options.context,))
        scores = forward(weights, window[None], options.heads)[0, at - 1 - first]
        return written.at[at].set(jnp.argmax(scores + noise[number]).astype(jnp.uint8))

    return jax.lax.fori_loop(0, options.length, add_byte, written)


class Voice:
    """Lets weights of the same shapes go on from prompts."""

    def __init__(self, options: Options, weights: Tree) -> None:
        self.options = options
        self.empty = np.zeros(options.context + options.length, np.uint8)
        self.program = compiled(partial(complete, options), weights, self.empty, np.int32(0), self.noise(0))

    def noise(self, seed: int) -> np.ndarray:
        """(length, 256) numbers, times the temperature: at 0 the likeliest byte is always taken."""
        gumbel = np.random.default_rng(seed).gumbel(size=(self.options.length, 256))
        return (self.options.temperature * gumbel).astype(np.float32)

    def __call__(self, weights: Tree, prompt: str, seed: int) -> tuple[str, str]:
        """The prompt, of which the model sees the last `context` bytes, and what follows it."""
        start = prompt.encode(errors="surrogateescape")
        seen = start[-self.options.context :]
        written = self.empty.copy()
        written[: len(seen)] = np.frombuffer(seen, np.uint8)
        written = np.asarray(self.program(weights, written, np.int32(len(seen)), self.noise(seed)))
        following = written[len(seen) : len(seen) + self.options.length].tobytes()
        return start.decode(errors="replace"), following.decode(errors="replace")


def compiled(function: Callable[..., Any], *arguments: Any, **how: Any) -> Callable[..., Any]:
    """The program for arguments of these shapes, compiled here and now; it refuses any others."""
    return jax.jit(function, **how).lower(*arguments).compile()


# ── records and checkpoints ─────────────────────────────────────────────────────────────────────────────────

SIZES = (
    "context",
    "width",
    "mlp",
    "heads",
    "layers",
    "block",
    "attention_only",
)  # what the shapes of all arrays follow from


def append(path: Path, record: dict[str, Any]) -> None:
    """Adds a line of JSON, through to the disk; a number that JSON has no word for (NaN) becomes null."""
    sound = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    with path.open("a", encoding="ascii") as file:
        file.write(json.dumps(sound, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes) -> None:
    """Writes a file aside and through to the disk, then renames it: whoever reads it sees the old or the new."""
    with aside(path).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside(path).replace(path)
    sync(path.parent)


def aside(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def sync(directory: Path) -> None:
    """Brings the names in a directory through to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def claim(out: Path) -> None:
    """Makes `out` and keeps it for this process until it ends: two trainings in it would undo each other."""
    out.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(f"another training is writing to {out}: stop it, or --out writes elsewhere") from None
    except OSError:  # a file system without locks: nobody is kept out
        os.close(descriptor)


def begin_at(out: Path, step: int) -> None:
    """Makes `out` ready to go on from `step` (-1: from the beginning), without what came later or is half-written."""
    (out / "checkpoints").mkdir(parents=True, exist_ok=True)
    for checkpoint in checkpoints(out):
        if checkpoint.name > f"step-{step:08d}" or step < 0:
            checkpoint.rename(aside(checkpoint))
    for leftover in (out / "checkpoints").glob(".step-*"):
        shutil.rmtree(leftover)
    for path in (out / "metrics.jsonl", out / "completions.jsonl"):
        lines = path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []
        kept = [line for line in lines if line.endswith("\n") and step_of(line) <= step]
        if kept != lines:
            replace(path, "".join(kept).encode())


def step_of(line: str) -> float:
    """The step of a record; infinity for what is none, as a machine that lost its power may leave it."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        return math.inf


def save(out: Path, step: int, keep: int, arrays: Mapping[str, Any]) -> None:
    """Writes `checkpoints/step-STEP` aside, through to the disk, then renames it: whole or absent. Keeps the newest."""
    final = out / "checkpoints" / f"step-{step:08d}"
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    data = buffer.getvalue()
    file = {"path": "state.npz", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    try:
        aside(final).mkdir()
        replace(aside(final) / "state.npz", data)
        replace(aside(final) / "manifest.json", json.dumps({"step": step, "files": [file]}).encode())
        aside(final).rename(final)
        sync(final.parent)
    except OSError:  # a full disk is not filled further
        shutil.rmtree(aside(final), ignore_errors=True)
        raise
    for old in checkpoints(out)[:-keep]:
        shutil.rmtree(old.rename(aside(old)))


def checkpoints(out: Path) -> list[Path]:
    """Those that bear their final name, whole or not, oldest first."""
    return sorted(path for path in out.glob("checkpoints/*") if re.fullmatch(r"step-\d{8}", path.name))


class Saved(NamedTuple):
    """A checkpoint, read: its arrays, and what it tells of itself (its step, its text, the options in SIZES)."""

    path: Path
    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


def read(checkpoint: Path) -> Saved:
    """A checkpoint that is as its manifest says. Loading runs no code that came with it."""
    try:
        (file,) = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
        data = (checkpoint / "state.npz").read_bytes()
        if (len(data), hashlib.sha256(data).hexdigest()) != (file["size"], file["sha256"]):
            raise Refused(f"{checkpoint} is damaged: state.npz is not as its manifest says")
        arrays = dict(np.load(io.BytesIO(data), allow_pickle=False))
        about = json.loads(str(arrays["about"]))
        return Saved(checkpoint, arrays, {name: about[name] for name in ("step", "text", "text_sha256", *SIZES)})
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile):
        raise Refused(f"{checkpoint} is not a whole checkpoint of this program") from None


def newest(out: Path) -> Saved | None:
    """The newest checkpoint that is whole."""
    for checkpoint in reversed(checkpoints(out)):
        with contextlib.suppress(Refused):
            return read(checkpoint)
    return None


def find(where: Path) -> Saved:
    """The checkpoint at `where`, or the newest one of the training that wrote there."""
    found = read(where) if (where / "manifest.json").exists() else newest(where)
    if found is None:
        raise Refused(f"there is no whole checkpoint in {where}")
    return found


def flat(tree: Tree) -> dict[str, np.ndarray]:
    """{"weights": {"norm": {"bias": …}}} -> {"weights.norm.bias": …}, fetched from the device."""
    return {dotted(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(tree))}


def unflat(saved: Saved, like: Tree) -> Tree:
    """The tree that `flat` took apart, with the structure and sizes of `like`."""

    def pick(path: Any, array: np.ndarray) -> np.ndarray:
        found = saved.arrays.get(dotted(path))
        if found is None or (found.shape, found.dtype) != (array.shape, array.dtype):
            raise Refused(f"{saved.path} is not a whole checkpoint of this program: {dotted(path)} does not fit")
        return found

    return jax.tree_util.tree_map_with_path(pick, like)


def dotted(path: Any) -> str:
    return ".".join(entry.key for entry in path)


# ── the whole run ───────────────────────────────────────────────────────────────────────────────────────────


def find_saved(options: Options, out: Path) -> Saved | None:
    """What to go on from, if anything.

    TPUFLEET_RESUME comes first: it holds this very run's progress, where --resume may say what the run set
    out from. A run of tpufleet's always goes on if it can; a person is asked, lest an old training is lost.
    """
    wanted = os.environ.get("TPUFLEET_RESUME") or options.resume
    latest = newest(out)
    saved = find(Path(wanted)) if wanted and wanted != "auto" else latest
    goes_on = wanted == "auto" or (wanted and saved and saved.path.resolve().parent == (out / "checkpoints").resolve())
    if latest and not goes_on and not os.environ.get("TPUFLEET_RUN_DIR"):
        raise Refused(f"{out} holds a training already: --resume auto goes on with it, --out writes elsewhere")
    if saved is None:
        return None
    has, asked = saved.about, vars(options)
    if other := [f"{name} {has[name]}, not {asked[name]}" for name in SIZES if has[name] != asked[name]]:
        raise Refused(f"{saved.path} is of another model: {', '.join(other)}")
    if has["step"] % options.steps_per_launch:
        raise Refused(f"{saved.path} is of a step that --steps-per-launch {options.steps_per_launch} does not come by")
    return saved


def find_text(options: Options, saved: Saved | None) -> tuple[str, bytes, str]:
    """The text that was asked for, else the checkpoint's, else the usual one: its name, its bytes, its sha256."""
    before = saved.about if saved else {}
    source, text = load_text(options.corpus or os.environ.get("TPUFLEET_CORPUS") or before.get("text"))
    sha256 = hashlib.sha256(text).hexdigest()
    if saved and before["text_sha256"] != sha256:
        raise Refused(f"{saved.path} was trained on another text: {before['text']}")
    return source, text, sha256


def train(options: Options) -> int:
    """Runs the training, from the beginning or a checkpoint; returns the exit code."""
    out = Path(os.environ.get("TPUFLEET_RUN_DIR") or options.out)
    device, why = choose_device(options)
    say(f"device   {device.platform}: {device.device_kind} ({why}), jax {jax.__version__}")

    compilations = count_compilations()
    saved = find_saved(options, out)
    source, text, sha256 = find_text(options, saved)
    learning, testing = split(source, text, options.context)
    say(f"text     {source}: {len(learning):,} bytes to train on, {len(testing):,} to test on")

    fresh = initial_state(options)
    state = jax.device_put(unflat(saved, fresh) if saved else fresh)
    step: int = saved.about["step"] if saved else 0
    losses = [saved.arrays["losses"]] if saved else []  # of the steps since the last evaluation
    parameters = sum(array.size for array in jax.tree.leaves(state["weights"]))
    say(f"model    {parameters:,} parameters, {f'as of step {step}' if saved else 'untrained'}")
    if step >= options.steps:
        say(f"done     step {step} was reached before; --steps asks for more than {options.steps}")
        return 0
    claim(out)
    begin_at(out, step if saved else -1)
    say(f"writing  {out}")

    data = jax.device_put(learning)
    places = len(learning) - options.context
    rate = np.float32(options.lr)  # an argument: all the rates and seeds of a sweep have the same program
    batches = draw(options, step, places)
    advance = compiled(partial(launch, options), state, data, batches, rate, donate_argnums=0)
    report = Report(out, options, state["weights"], testing, compilations)
    report.news["setup"] = {
        "device": device.platform, "device_kind": device.device_kind, "jax": jax.__version__, "parameters": parameters,
        "text": source, "text_sha256": sha256, "resumed_from": step if saved else None,
    }  # fmt: skip
    stop = listen_for_signals()
    if not saved:
        report(step, state["weights"], losses)
    report.start_clock(step)
    while step < options.steps:
        state, found = advance(state, data, draw(options, step, places), rate)
        step += options.steps_per_launch
        jax.block_until_ready(losses[-1:])  # at most one launch ahead of the device, so that a signal is soon heard
        losses.append(found)
        done = step == options.steps
        if done or step % options.eval_every == 0:
            report(step, state["weights"], losses)
            losses = []
        if done or stop or step % options.checkpoint_every == 0:
            about = {
                "step": step,
                "text": source,
                "text_sha256": sha256,
                **{name: vars(options)[name] for name in SIZES},
            }
            besides = {"losses": joined(losses), "about": np.array(json.dumps(about))}
            save(out, step, options.keep, flat(state) | besides)
        if stop and not done:
            say(f"stopped  by {signal.Signals(stop[0]).name} at step {step}, which is saved; --resume auto goes on")
            return 128 + stop[0]
    say(f"done     {step} steps; to hear more: python train.py --complete {out}")
    for spoken in report.spoken:
        say(f"\n{spoken}")
    return 0


class Report:
    """Evaluates a model and tells: the records get everything, the terminal one line."""

    def __init__(
        self, out: Path, options: Options, weights: Tree, testing: np.ndarray, compilations: list[float]
    ) -> None:
        self.out, self.options, self.compilations = out, options, compilations
        last = len(testing) - options.context - 1
        starts = np.arange(options.eval_batch) * last // max(options.eval_batch - 1, 1)  # spread over the text
        self.windows = jax.device_put(testing[starts[:, None] + np.arange(options.context + 1)])
        self.evaluate = compiled(partial(loss, heads=options.heads), weights, self.windows)
        self.voice = Voice(options, weights)
        self.news: dict[str, Any] = {}  # what the next record shall tell besides
        self.spoken: list[str] = []  # the newest completion of each prompt, with the prompt
        self.start_clock(0)

    def start_clock(self, step: int) -> None:
        """Steps per second are counted from here; what a report takes is not the training's."""
        self.clock, self.clock_step = time.monotonic(), step

    def __call__(self, step: int, weights: Tree, losses: list[Any]) -> None:
        """Tells of this step; `losses` are those of the steps since the last time."""
        metrics: dict[str, Any] = {"step": step, "steps": self.options.steps}
        shown = f"step {step:>6}/{self.options.steps}"
        if losses:
            mean = float(joined(losses).mean(dtype=np.float64))  # waits for the device: now the clock has its meaning
            speed = (step - self.clock_step) / max(time.monotonic() - self.clock, 1e-9)
            metrics |= {"train_loss": mean, "steps_per_second": round(speed, 2)}
            shown += f"  train {mean:6.3f}  {speed:7.1f} steps/s"
        metrics["test_loss"] = float(self.evaluate(weights, self.windows))
        self.spoken = []
        for prompt in self.options.prompt:
            start, following = self.voice(weights, prompt, self.options.seed + step)
            append(self.out / "completions.jsonl", {"step": step, "prompt": start, "text": following})
            self.spoken.append(start + following)
        counted = {"compilations": len(self.compilations), "compile_seconds": round(sum(self.compilations), 3)}
        append(self.out / "metrics.jsonl", metrics | counted | self.news)
        self.news = {}
        say(f"{shown}  test {metrics['test_loss']:6.3f}  {' '.join(self.spoken[0].split())[:60]}")
        self.start_clock(step)


def joined(losses: list[Any]) -> np.ndarray:
    """One array of what many launches gave, fetched from the device."""
    return np.concatenate([np.zeros(0, np.float32), *jax.device_get(losses)])


def listen_for_signals() -> list[int]:
    """A list that SIGTERM and Ctrl-C are added to, so that the step at hand is saved; a second Ctrl-C ends at once."""
    heard: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    return heard


def let_speak(options: Options) -> int:
    """Prints what the model of a checkpoint goes on to say after each prompt."""
    saved = find(Path(options.complete))
    vars(options).update({name: saved.about[name] for name in SIZES})
    choose_device(options)
    weights = jax.device_put(unflat(saved, initial_state(options))["weights"])
    voice = Voice(options, weights)
    for prompt in options.prompt:
        if (size := len(prompt.encode(errors="surrogateescape"))) > options.context:
            print(f"train.py: the prompt has {size} bytes; this model sees the last {options.context}", file=sys.stderr)
        say("".join(voice(weights, prompt, options.seed)))
    return 0


def main() -> int:
    """Runs the command line; what a person can mend is one sentence. 0 done, 1 machine, 2 asked for the wrong."""
    sys.stdout.reconfigure(errors="replace")
    options = parse_options()
    try:
        return let_speak(options) if options.complete else train(options)
    except Refused as error:
        sentence, code = str(error), 2
    except (DeviceError, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:  # no chip, a full disk, no memory
        sentence, code = str(error).splitlines()[0], 1
    print(f"train.py: {printable(sentence)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the training began: there is nothing to save
        sys.exit(130)
