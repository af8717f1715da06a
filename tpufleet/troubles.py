"""Pure: what the messages of TPU programs mean, and the command that mends it.

Each has a chapter in docs/troubleshooting.md. The texts are those of libtpu, torch_xla, torch, JAX and Lightning as
their sources and their users' reports have them (openxla `tpu_initialize_util.cc`, torch_xla `_internal/pjrt.py`,
Lightning's TPU pages); none was seen on real hardware here yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PAGE = "docs/troubleshooting.md"
MOST_TEXT = 64 << 10  # bytes, or so: what a program died of stands at the end of its log


@dataclass(frozen=True)
class Trouble:
    """A message that `says` finds in a log in lower case: its chapter, what it means, and what to type or to change."""

    anchor: str
    says: re.Pattern[str]
    meaning: str
    mend: str

    @property
    def chapter(self) -> str:
        return f"{PAGE}#{self.anchor}"

    @property
    def sentence(self) -> str:
        """After "it says that": what it means, what mends it, and where there is more about it."""
        return f"{self.meaning}: {self.mend} ({self.chapter})."


def _trouble(anchor: str, says: str, meaning: str, mend: str) -> Trouble:
    return Trouble(anchor, re.compile(says.lower()), meaning, mend)  # the flag IGNORECASE is ten times as slow


# The first that fits tells most: the particular come before the general.
TROUBLES = (
    _trouble(
        "another-users-process",
        r"TPU is already in use by another process probably owned by another user",
        "somebody else's process has the chip",
        "tpufleet top says whose it is; a run that waits starts when it is free",
    ),
    _trouble(
        "the-tpu-is-already-in-use",
        r"TPU is already in use by (?:a |the )?process with pid",
        "another process has the chip, or libtpu's lock file",
        "tpufleet top, or on the host: chips; then end that process",
    ),
    _trouble(
        "the-lock-file",
        r"libtpu(?: multi-process)? lockfile",
        "libtpu's lock file was left behind by a process that is gone, or is another user's",
        "on the host: sudo rm /tmp/libtpu_lockfile, when chips shows nobody",
    ),
    _trouble(
        "device-or-resource-busy",
        r"/dev/(?:vfio/|accel)\d+[^\n]{0,300}Device or resource busy",
        "a process still has the chip open, often one that has just ended",
        "run it again in some seconds; tpufleet top says who it is",
    ),
    _trouble(
        "operation-not-permitted",
        r"/dev/(?:vfio/|accel)\d+[^\n]{0,300}Operation not permitted|Couldn't open device: /dev/",
        "the chip is somebody's seat, is busy, or this account may not open it",
        "chips says whose it is; on-chip takes one that you may have",
    ),
    _trouble(
        "two-programs-one-chip",
        r"libtpu\.so (?:is )?already in use|libtpu\.so already loaded",
        "two processes of one run load libtpu: a chip is one process's",
        "start one process per run, and one run per chip",
    ),
    _trouble(
        "missing-xla-configuration",
        r"Missing XLA configuration|No TPU devices were found|XRT_TPU_CONFIG",
        "the program looks for a TPU by variables that aren't set (XRT's are of old)",
        "start it by tpufleet run or on-chip, which set PJRT_DEVICE=TPU and the pin",
    ),
    _trouble(
        "undefined-symbol",
        r"_XLAC[^\n]{0,300}undefined symbol",
        "torch and torch_xla are of different versions",
        "pip install the same version of both, such as torch==2.9.* torch_xla[tpu]==2.9.*",
    ),
    _trouble(
        "no-module-named-torch_xla",
        r"No module named ['\"](?:torch_xla|libtpu|torch_tpu)['\"]",
        "the environment on the host lacks the TPU's library",
        "add it to code.setup in the fleet file, then tpufleet sync",
    ),
    _trouble(
        "a-cpu-instead-of-the-tpu",
        r"falling back to cpu|An NVIDIA GPU may be present|PJRT_DEVICE is TPU, but torch_xla took a CPU"
        r"|Defaulting to PJRT_DEVICE=CPU",
        "the framework found no TPU and took the CPU without stopping",
        "check the device that was really used; jobs/gpt fails instead",
    ),
    _trouble(
        "backend-tpu",
        r"Unable to initialize backend ['\"]?tpu|TPU initialization failed|Failed to initialize TPU",
        "libtpu is there, but the chip didn't come up",
        "run it again; if it stays so: tpufleet delete NODE, then tpufleet create",
    ),
    _trouble(
        "replication",
        r"Cannot replicate if number of devices \(\d+\) is different from",
        "the device was asked for before the processes of a distributed training were spawned",
        "ask for it inside the spawned function; with one chip per run, don't spawn at all (devices=1)",
    ),
    _trouble(
        "unsupported-types",
        r"'mappingproxy' object does not support item assignment",
        "something that is no tensor was sent to the TPU, through a data loader or a saved state",
        "give the loader tensors alone",
    ),
    _trouble(
        "tied-weights",
        r"parameter lengths? (?:do(?:es)? not|don't) match|weights? (?:were|are) not tied",
        "weights that were tied before the move to the device are copies after it",
        "tie them after the move: jobs/gpt --tie-weights, Lightning's on_train_start",
    ),
    _trouble(
        "out-of-memory-on-the-chip",
        r"RESOURCE_EXHAUSTED: [^\n]{0,300}(?:HBM|memory)|Ran out of memory in memory space hbm|HBM_OUT_OF_MEMORY",
        "the chip's memory (HBM) is too small for this batch and model",
        "a smaller batch, --amp bf16, or a chip with more memory",
    ),
    _trouble(
        "disk-full",
        r"No space left on device|Disk quota exceeded",
        "the host's disk is full",
        "tpufleet collect, then tpufleet exec -- df -h; fewer checkpoints with --keep",
    ),
    _trouble(
        "tpu-logs-permission",
        r"/tpu_logs\b[^\n]{0,300}Permission denied|Could not (?:open|create)[^\n]{0,300}/tpu_logs\b",
        "the first user of /tmp/tpu_logs owns it and blocks the others",
        "start it by tpufleet run or on-chip, which set TPU_LOG_DIR",
    ),
)


def find(text: str) -> tuple[Trouble, ...]:
    """The troubles that `text` (a log, or its end) tells of, each once, in the order of TROUBLES."""
    looked_at = text[-MOST_TEXT:].lower()
    return tuple(trouble for trouble in TROUBLES if trouble.says.search(looked_at))
