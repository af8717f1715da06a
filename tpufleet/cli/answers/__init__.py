"""What `--json` answers, verb by verb: the contract of docs/json.md as types.

The commands don't import this: it is what the tests hold every answer against, and what the document is checked by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpufleet.cli.answers import fleet, people, runs
from tpufleet.cli.answers.base import Answer

ANSWERS: Mapping[str, Sequence[type[Answer]]] = {
    "init": [fleet.Init],
    "create": [fleet.Created, fleet.Plan],
    "status": [fleet.Status],
    "top": [fleet.Top],
    "adopt": [fleet.Adopted],
    "exec": [fleet.Executed],
    "sync": [fleet.Synced],
    "run": [runs.Started],
    "runs": [runs.Runs],
    "logs": [runs.Log, runs.Logs],
    "stop": [runs.Stopped],
    "collect": [runs.Collected],
    "report": [runs.Reported],
    "watch": [runs.Watched, runs.Unit],
    "people add": [people.Changed],
    "people seat": [people.Changed],
    "people swap": [people.Changed],
    "people list": [people.People],
    "people revoke": [people.Revoked],
    "people apply": [people.PeopleApplied],
    "people check": [people.Checked],
    "people card": [people.Cards],
    "board": [people.Board],
    "workshop end": [people.Ended, people.Ending],
    "delete": [fleet.Deleted, fleet.Plan],
    "doctor": [fleet.Doctor],
    "ssh-config": [fleet.SshConfig],
    "emulator start": [fleet.Emulator],
    "emulator stop": [fleet.Emulator],
    "emulator status": [fleet.Emulator],
    "emulator env": [fleet.Environment],
    "emulator book": [fleet.Book],
    "emulator settings": [fleet.Settings],
    "emulator step": [fleet.Step],
    "emulator fault list": [fleet.Faults],
    "emulator fault clear": [fleet.Faults],
    "emulator fault": [fleet.Fault],
}
