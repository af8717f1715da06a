#!/bin/sh
# `make demo`: the whole story on the rehearsal cloud. It may be killed at any moment and started again.
set -eu
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
step() { say "\$ $*"; "$@"; }

started=$(date +%s)
step tpufleet create --yes
# TPUFLEET_CORPUS may name a text that is here already; else the job fetches one, or takes Python's own documentation
step tpufleet run gpt --restart --follow ${TPUFLEET_CORPUS:+--env "TPUFLEET_CORPUS=$TPUFLEET_CORPUS"}
step tpufleet status
step tpufleet collect
step tpufleet delete --yes
step tpufleet emulator stop

say "What the models say to \"Elementary, my dear"
python - artifacts/sherlock <<'PY'
import json, pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1], "runs").glob("*/completions.jsonl")):
    last = json.loads(file.read_text().splitlines()[-1])
    print(f"\n── {file.parent.name}, step {last['step']}")
    print("".join(c if c.isprintable() or c == "\n" else "�" for c in last["prompt"] + last["text"]))
PY
say "Took $(($(date +%s) - started)) s. The report: $(pwd)/artifacts/sherlock/report/index.html"
