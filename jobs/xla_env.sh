#!/bin/sh
# Makes a Python environment with torch 2.9 and torch_xla 2.9, to run XLA on this machine's CPU:
#   sh jobs/xla_env.sh .venv-xla && PJRT_DEVICE=CPU .venv-xla/bin/python jobs/gpt/train.py --device xla
# torch_xla 2.9 is the last there is, and fits no other torch. With PyTorch's own CPU build it takes about 2 GB; where
# that index can't be reached, the registry's build for GPUs is taken, with all that it links to: 7 GB.
set -eu
target=${1:?usage: sh jobs/xla_env.sh DIRECTORY}
version=2.9.0
index=https://download.pytorch.org/whl/cpu
[ -e "$target/.made" ] && exit 0

"${PYTHON:-python3}" -m venv "$target"
pip="$target/bin/pip install -qq --disable-pip-version-check"
$pip --retries 0 --timeout 10 --index-url "$index" "torch==$version" 2>/dev/null || $pip "torch==$version"
$pip "torch_xla==$version" numpy
PJRT_DEVICE=CPU "$target/bin/python" -c 'import torch_xla; print("torch_xla", torch_xla.__version__, torch_xla.device())'
touch "$target/.made"
