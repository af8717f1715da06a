"""The fleet file that `tpufleet init` writes: short, commented, and right as it stands."""

from __future__ import annotations

import json

from tpufleet.config.scalars import Refused, scalar
from tpufleet.names import FleetName, ProjectId, Zone

EMULATOR = """\
cloud:
  provider: emulator        # a rehearsal on this machine: no Google account, no cost
  # provider: gcp           # the real thing; it needs the next two lines as well
  # project: my-project
  # zones: [us-central1-b]
"""

GOOGLE = """\
cloud:
  provider: gcp             # emulator instead: a rehearsal on this machine, without cost
  project: {project}
  zones: [{zone}]  # a node is made in the first that has its type
"""

TEMPLATE = """\
# A fleet of TPU VMs, and what is trained on it. Then: tpufleet create, run train --follow, collect, delete.
fleet: {fleet}  # the fleet's name; its nodes are found again by it

{cloud}
nodes:
  - name: tpu               # tpu-0, tpu-1, ...
    count: 1
    accelerator: v2-8       # one host with four chips: four trainings at once
    # spot: true            # cheaper; may be taken back at any time

code:
  repo: .                   # the last commit here travels to every host; or https://github.com/you/repo
  # setup: [python -m pip install -r requirements.txt]  # once on every host

jobs:
  train:                    # tpufleet run train
    command: [python, train.py, --lr, "{{lr}}", --seed, "{{seed}}"]
    chips: 1                # of one host: 1, 2, 4 or 8
    grid:                   # one training for each combination; the values fill {{lr}} and {{seed}} above
      lr: [0.001, 0.003]
      seed: [0, 1]
    # env: {{BATCH: "32"}}    # environment variables are text: quote numbers
    # metrics:              # numbers to read from what the program prints; none needed for metrics.jsonl
    #   loss: 'test loss:\\s+([\\d.]+)'
"""


def template(*, fleet: str, project: str | None, zone: str | None) -> str:
    """A fleet file for the rehearsal cloud or, with `project` and `zone`, for Google Cloud.

    Raises ValueError, with a sentence, when a name can't be one, or only one of `project` and `zone` is there.
    """
    if (project is None) != (zone is None):
        raise ValueError("a project and a zone go together")
    cloud = EMULATOR if project is None else GOOGLE.format(project=_word(ProjectId(project)), zone=_word(Zone(zone)))
    return TEMPLATE.format(fleet=_word(FleetName(fleet)), cloud=cloud)


def _word(name: str) -> str:
    """A name as YAML text; in quotes where YAML would take it for something else, such as a fleet called `no`."""
    try:
        plain = scalar(name, plain=True) == name
    except Refused:
        plain = False
    return name if plain else json.dumps(name)
