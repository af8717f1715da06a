"""Which device a training takes, with stand-ins where there is no TPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from .trainings import GPT, Trainings

ASK = """
import pathlib, sys
sys.path[:0] = sys.argv[1].split(":")
import device
for environ in ({}, {"PJRT_DEVICE": "CPU"}, {"PJRT_DEVICE": "TPU"}):
    for cuda in (False, True):
        for dev in sys.argv[2:]:
            print(*device.automatic(environ, pathlib.Path(dev), cuda=cuda), sep=": ")
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


def ask(job: Trainings, tmp_path: Path, *packages: Path) -> list[str]:
    """What `auto` takes without a chip, with a v2's and with a v5e's: 3 environments, without and with a GPU."""
    for file in ("none/vfio/vfio", "v2/accel0", "v5e/vfio/3"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    asks = tmp_path / "asks.py"
    asks.write_text(ASK)
    path = ":".join(map(str, [GPT, *packages]))
    done = replace(job, program=asks).run(path, *(tmp_path / dev for dev in ("none", "v2", "v5e")))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_auto_takes_a_tpu_only_where_everything_for_one_is_there(job: Trainings, tmp_path: Path) -> None:
    answers = ask(job, tmp_path, fake_torch_xla(tmp_path / "xla"))
    unset, cpu, tpu = answers[:6], answers[6:12], answers[12:]
    assert unset == ["cpu: PJRT_DEVICE is not TPU"] * 3 + ["cuda: a GPU is here"] * 3
    assert cpu == ["cpu: PJRT_DEVICE is not TPU"] * 6
    xla = ["xla: a TPU chip and torch_xla are here"] * 2
    assert tpu == ["cpu: no TPU chip here", *xla, "cuda: a GPU is here", *xla]


def test_auto_takes_torch_tpu_for_the_chips_that_it_knows(job: Trainings, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "torch_tpu.py").touch()
    none, v2, v5e = ask(job, tmp_path, tmp_path / "packages")[12:15]
    assert (none, v5e) == ("cpu: no TPU chip here", "tpu: a TPU chip and torch_tpu are here")
    assert v2 == "cpu: torch_xla is not installed"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--device", "cuda"], 1, "can't use a GPU: "),
        (["--device", "tpu"], 1, "--device tpu needs torch_tpu, which is not installed"),
        (["--device", "xla"], 1, "--device xla needs torch_xla, made for torch "),
        (["--device", "cpu", "--scan"], 1, "--scan is torch_xla's: it needs --device xla, and this is cpu"),
    ],
)
def test_what_the_machine_has_not_is_one_sentence(job: Trainings, options: list[str], code: int, says: str) -> None:
    assert says in job.refusal(code, *options)


def test_compiling_without_a_compiler_is_one_sentence(job: Trainings, tmp_path: Path) -> None:
    refused = job.refusal(1, "--compile", PATH=str(tmp_path), CXX="")
    assert "--compile on a CPU needs a C++ compiler" in refused


def test_a_cpu_in_place_of_the_tpu_that_was_asked_for_is_refused(job: Trainings, tmp_path: Path) -> None:
    refused = job.refusal(1, "--device", "xla", PYTHONPATH=str(fake_torch_xla(tmp_path)))
    assert refused == "train.py: PJRT_DEVICE is TPU, but torch_xla took a CPU\n"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("ImportError('undefined symbol: _ZN5torch')", "needs torch_xla, made for torch"),
        ("OSError('libtpu not found\\nmore')", "can't use a TPU here: libtpu not found"),
    ],
)
def test_a_torch_xla_that_does_not_work_is_refused(job: Trainings, tmp_path: Path, fault: str, says: str) -> None:
    (tmp_path / "torch_xla.py").write_text(f"raise {fault}\n")
    assert says in job.refusal(1, "--device", "xla", PYTHONPATH=str(tmp_path))


def test_a_completion_as_a_loop_on_the_device_is_refused_where_there_is_none(job: Trainings) -> None:
    refused = job.beside("exercise_6_2.py").run("--device", "cpu", "--way", "looped")
    assert refused.returncode == 2
    assert "--way looped needs --device xla: the loop is torch_xla's, and this is cpu" in refused.stderr
    assert refused.stderr.count("\n") == 1
