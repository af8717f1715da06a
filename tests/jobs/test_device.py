"""Which device a training takes, with stand-ins where there is no TPU."""

import subprocess
from pathlib import Path

import pytest

from .conftest import GPT, TINY, Job

ASK = """
import pathlib, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import device
for environ in ({}, {"PJRT_DEVICE": "CPU"}, {"PJRT_DEVICE": "TPU"}):
    for dev in sys.argv[2:]:
        print(*device.automatic(environ, pathlib.Path(dev)), sep=": ")
"""
# what the job calls of torch_xla, on a machine that has only a CPU
FAKE_XLA = {
    "__init__.py": "import torch\ndef device(): return torch.device('meta')\ndef sync(): pass\n",
    "core/__init__.py": "",
    "core/xla_model.py": "def xla_device_hw(device): return 'CPU'\n",
}


def fake_torch_xla(directory: Path) -> Path:
    for name, body in FAKE_XLA.items():
        file = directory / "torch_xla" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body)
    return directory


def test_auto_takes_a_tpu_only_where_everything_for_one_is_there(job: Job, tmp_path: Path) -> None:
    for file in ("none/vfio/vfio", "v2/accel0", "v5e/vfio/3"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    answers = subprocess.run(
        [job.python, "-c", ASK, str(GPT), *(str(tmp_path / dev) for dev in ("none", "v2", "v5e"))],
        env={**job.environment(), "PYTHONPATH": str(fake_torch_xla(tmp_path))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert answers[:6] == ["cpu: PJRT_DEVICE is not TPU"] * 6
    assert answers[6:] == ["cpu: no TPU chip here"] + ["xla: a TPU chip and torch_xla are here"] * 2


def test_a_cpu_in_place_of_the_tpu_that_was_asked_for_is_refused(job: Job, tmp_path: Path) -> None:
    refused = job.run("train.py", *TINY, "--device", "xla", PYTHONPATH=str(fake_torch_xla(tmp_path)))
    assert refused.returncode == 1
    assert refused.stderr == "train.py: PJRT_DEVICE is TPU, but torch_xla took a CPU\n"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("ImportError('undefined symbol: _ZN5torch')", "needs torch_xla, made for torch"),
        ("OSError('libtpu not found\\nmore')", "can't use a TPU here: libtpu not found"),
    ],
)
def test_a_torch_xla_that_does_not_work_is_refused(job: Job, tmp_path: Path, fault: str, says: str) -> None:
    (tmp_path / "torch_xla.py").write_text(f"raise {fault}\n")
    refused = job.run("train.py", *TINY, "--device", "xla", PYTHONPATH=str(tmp_path))
    assert refused.returncode == 1
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1
