# One verb for each thing people do. `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
# PyTorch's own index of CPU builds; where it can't be reached the registry's build of this version is taken.
TORCH := torch==2.13.0
TORCH_INDEX := https://download.pytorch.org/whl/cpu
EXERCISES := $(BIN)/tpufleet --config jobs/exercises.yaml
PIP := pip install -qq --disable-pip-version-check

.PHONY: help setup demo exercise test faults check format bench bench-jobs xla

help:  ## list these
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup: .venv/.made  ## .venv with everything to run tpufleet and its rehearsal cloud

demo: .venv/.made .venv-jobs/.made  ## the whole story on the rehearsal cloud: 8 trainings on 8 chips, and a report
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh jobs/demo.sh

exercise: .venv/.made .venv-frameworks/.made  ## one of the workshop's exercises, with its report: make exercise JOB=completion
	@: $${JOB:?one of the jobs of jobs/exercises.yaml: make exercise JOB=completion}
	$(EXERCISES) create --yes
	$(EXERCISES) run $(JOB) --follow $(ARGS)
	$(EXERCISES) collect
	@echo 'to look at it: $(EXERCISES) report --open; when you are done: $(EXERCISES) delete, and $(EXERCISES) emulator stop'

test: .venv/.made .venv-frameworks/.made  ## every test
	$(BIN)/pytest -n $${TEST_WORKERS:-2} $(ARGS)

faults: .venv/.made .venv-frameworks/.made  ## the long part of the tests: kills at every named point, preemptions, cut lines
	$(BIN)/pytest -n $${TEST_WORKERS:-2} -m faults $(ARGS)

check: .venv/.made  ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: .venv/.made  ## put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.made  ## the figures of docs/speed.md, as ratios measured here
	$(BIN)/python -m tests.bench

bench-jobs: .venv/.made .venv-jobs/.made  ## jobs/gpt against the workshop's own repository, on this machine's CPU
	$(BIN)/python -m tests.bench.jobs $(ARGS)

xla: .venv/.made  ## what is promised of jobs/gpt on XLA (installs several GB)
	sh jobs/xla_env.sh .venv-xla
	$(BIN)/python -m tests.bench.xla

.venv/.made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tpufleet needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@echo "making .venv …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/$(PIP) --upgrade 'pip>=25.1'
	@$(BIN)/$(PIP) --editable '.[emulator,board]' --group dev
	@touch $@

.venv-jobs/.made: jobs/gpt/requirements.txt
	@echo "making .venv-jobs with PyTorch for CPUs (a few hundred MB) …"
	@$(PYTHON) -m venv .venv-jobs
	@.venv-jobs/bin/$(PIP) --retries 0 --timeout 10 --index-url $(TORCH_INDEX) '$(TORCH)' 2>/dev/null \
	  || .venv-jobs/bin/$(PIP) '$(TORCH)'
	@touch $@

# It borrows PyTorch from .venv-jobs, which stays as jobs/gpt wants it: without NumPy.
.venv-frameworks/.made: .venv-jobs/.made jobs/gpt_jax/requirements.txt jobs/lightning/requirements.txt
	@echo "making .venv-frameworks with JAX and Lightning (0.7 GB on disk) …"
	@.venv-jobs/bin/python -m venv .venv-frameworks
	@.venv-jobs/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$(.venv-frameworks/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
	@.venv-frameworks/bin/$(PIP) -r jobs/gpt_jax/requirements.txt -r jobs/lightning/requirements.txt '$(TORCH)'
	@touch $@
