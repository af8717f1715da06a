"""The fleet file: what is refused, where the error points, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpufleet.config.checks import SET_BY_RUNNER
from tpufleet.config.load import load
from tpufleet.errors import ConfigError
from tpufleet.host.pin import pin_to_chips, pin_to_cpu

BASE = """\
fleet: sherlock
nodes:
  - name: tpu
    accelerator: v2-8
"""  # four lines: what a case adds begins in line 5


def refusal(directory: Path, text: str) -> ConfigError:
    path = directory / "tpufleet.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.exit_code == 2
    return caught.value


def job(*lines: str) -> str:
    """A job whose first line after `command` is line 8."""
    return BASE + "jobs:\n  gpt:\n    command: [python]\n" + "".join(f"    {line}\n" for line in lines)


SYNTAX = {
    "an empty file": ("", "1:1", "is empty"),
    "only comments": ("# x\n\n", "1:1", "is empty"),
    "text instead of keys": ("hello\n", "1:1", "the fleet file must be a mapping"),
    "a list instead of keys": ("- a\n- b\n", "1:1", "the fleet file must be a mapping"),
    "a colon in text": (BASE + "ssh: a: b\n", "5:7", "a ':' is not expected here"),
    "a wrong indentation": (BASE + "   count: 2\n", "5:4", "fits no line above"),
    "an item indented wrongly": (BASE + " - name: x\n", "5:2", "fits no line above"),
    "a tab": ("fleet: x\nnodes:\n\t- name: tpu\n", "3:1", "a tab can't indent → use spaces"),
    "an open quote": (BASE + 'ssh: {user: "x}\n', "5:13", "does not end"),
    "an open bracket": ("fleet: x\ncloud: {zones: [a\nnodes: []\n", "3:6", "closing bracket is missing"),
    "a star, meant as text": (job("artifacts: [*.pt]"), "8:17", "quote the text"),
    "a second document": (BASE + "---\nfleet: y\n", "5:1", "second document"),
    "an alias": (BASE + "ssh: *x\n", "5:6", "aliases (`*name`) are not allowed"),
    "an anchor": (BASE + "ssh: &x {}\n", "5:6", "anchors (`&name`) are not allowed"),
    "a tag": (BASE + "ssh: !!python/object/apply:os.system [ls]\n", "5:6", "tags (`!name`) are not allowed"),
    "a merge key": (BASE + "ssh:\n  <<: {user: x}\n", "6:3", "merge"),
    "a key twice": (BASE + "ssh: {}\nfleet: y\n", "6:1", "`fleet` is here twice (first in line 1)"),
    "a number as a key": (job("env: {1: x}"), "8:11", "must be text, not '1' → quote it: \"1\""),
    "a list as a key": (BASE + "? [a]\n: 1\n", "5:3", "a key must be text"),
    "ESC in the text": (BASE + "# \x1b[2J\n", "5:3", "control character (U+001B)"),
    "bidi in the text": (BASE + "# \u202e\n", "5:3", "control character (U+202E)"),
    "ESC by an escape": (job(r'env: {A: "\e[2J"}'), "8:14", "`A` holds a control character (U+001B)"),
    "a lone surrogate": (job(r'env: {A: "\ud800"}'), "8:14", "control character (U+D800)"),
    "a code point that is none": (job(r'env: {A: "\Uffffffff"}'), "8:12", "can't be read as YAML"),
    "nested too deep": ("fleet: " + "[" * 5000, "1:28", "nested more than 20 deep"),
    "nested too deep below a key twice": ("a: 1\na: " + "[" * 5000, "2:24", "nested"),
    "nothing after a key": (BASE + "jobs:\n", "5:1", "`jobs` has no value"),
    "a number that is none": (BASE + "    count: .nan\n", "5:12", "not a finite number"),
    "a number beyond all": (BASE + "    count: 1e999\n", "5:12", "not a finite number"),
    "an octal number": (BASE + "    count: 010\n", "5:12", "read in two ways"),
    "a number in sixties": (BASE + "    count: 1:30\n", "5:12", "read in two ways"),
    "a very long number": (BASE + f"    count: {'9' * 5000}\n", "5:12", "more than 18 digits"),
}

FORM = {
    "no fleet": ("nodes: []\n", "1:1", "the fleet file needs `fleet`"),
    "no nodes": ("fleet: x\n", "1:1", "the fleet file needs `nodes`"),
    "a key of a pool missing": ("fleet: x\nnodes:\n  - name: tpu\n", "3:5", "a node pool needs `accelerator`"),
    "a key misspelt": (
        BASE + "    acelerator: v2-8\n",
        "5:5",
        "not a key of a node pool → did you mean `accelerator`?",
    ),
    "a section misspelt": (BASE + "job: {}\n", "5:1", "`job` is not a key of the fleet file → did you mean `jobs`?"),
    "a key in the wrong section": (BASE + "accelerator: v2-8\n", "5:1", "`accelerator` is a key of a node pool"),
    "a key like nothing": (BASE + "    zzz: 1\n", "5:5", "it has name, accelerator, count"),
    "a count in quotes": (BASE + '    count: "2"\n', "5:12", "must be a whole number, not the text '2' → write 2 wit"),
    "a count with a fraction": (BASE + "    count: 1.5\n", "5:12", "must be a whole number, not 1.5"),
    "a flag in quotes": (BASE + '    spot: "true"\n', "5:11", "must be true or false"),
    "a number as a flag": (BASE + "    spot: 1\n", "5:11", "must be true or false, not 1"),
    "a number in env": (job("env: {A: 1}"), "8:14", '`A` must be text, not 1 → quote it: "1"'),
    "yes in env": (job("env: {A: yes}"), "8:14", '`A` must be text, not yes → quote it: "yes"'),
    "a number in a command": (job("artifacts: [x, 2]"), "8:20", "an item of `artifacts` must be text, not 2 → quote"),
    "a commit that looks like a number": (BASE + "code: {repo: ., ref: 1234567}\n", "5:22", 'quote it: "1234567"'),
    "a placeholder without quotes": (job("artifacts: [{lr}]"), "8:17", 'not a mapping → quote it: "{lr}"'),
    "a command that is text": (BASE + "jobs: {a: {command: python x.py}}\n", "5:21", "must be a list, not the text"),
    "a grid that is a list": (job("grid: [1]"), "8:11", "`grid` must be a mapping"),
    "a point of the grid without a list": (
        job("grid: {lr: 1}"),
        "8:16",
        "must be a list, not 1 → put it into brackets",
    ),
    "a list in the grid": (job("grid: {lr: [[1]]}"), "8:17", "an item of `lr` must be text, a number, or true or fal"),
    "points that are a mapping": (job("points: {a: 1}"), "8:13", "`points` must be a list, not a mapping"),
    "a list in a point": (
        job("points: [{a: [1]}]"),
        "8:18",
        "`a` must be text, a number, or true or false, not a list",
    ),
    "a name in a point": (job("points: [{l-r: 1}]"), "8:15", "'l-r' must be letters"),
    "a parameter's name": (job("grid: {l-r: [1]}"), "8:12", "`grid`: 'l-r' must be letters"),
    "a job's name": (BASE + "jobs: {'../x': {command: [a]}}\n", "5:8", "`jobs`: '../x' must be lower-case"),
    "a fleet's name": ("fleet: Sherlock H\nnodes: []\n", "1:8", "`fleet`: 'Sherlock H' must be lower-case letters"),
    "a fleet that is a number": ("fleet: 7\nnodes: []\n", "1:8", '`fleet` must be text, not 7 → quote it: "7"'),
    "a user of the system": (BASE + "ssh: {user: root}\n", "5:13", "not one of the system's own"),
    "a ref that is an option": (BASE + "code: {repo: ., ref: --x}\n", "5:22", "must be a branch"),
    "a zone": (BASE + "cloud: {zones: [us]}\n", "5:17", "an item of `zones`: 'us' must be a zone such as"),
    "an unknown provider": (
        BASE + "cloud: {provider: emulater}\n",
        "5:19",
        "must be emulator, gcp or inventory, not the text 'emulater' → did you mean `emulator`?",
    ),
    "a list of people that is not there": (BASE + "people: p.csv\n", "5:9", "'p.csv' is not there → `tpufleet people"),
    "a length of time without a unit": (BASE + "    ttl: 8\n", "5:10", '`ttl` must be text, not 8 → quote it: "8"'),
    "a length of time in words": (
        BASE + "    ttl: a day\n",
        "5:10",
        "must be a length of time such as 90s, 30m",
    ),
    "a label's name": (BASE + "    labels: {Team: x}\n", "5:14", "`labels`: 'Team' must be lower-case letters"),
    "a label's value": (BASE + "    labels: {team: A B}\n", "5:20", "`team`: 'A B' must be lower-case letters"),
    "a network": (BASE + "cloud: {network: --x}\n", "5:18", "`network`: '--x' must be a resource's name such as"),
    "a service account": (BASE + "cloud: {service_account: me}\n", "5:26", "must be a service account's address such"),
    "a key of a job that comes later": (job("engine: ray"), "8:5", "`engine` is not supported yet"),
    "a section that is text": (BASE + "ssh: operator\n", "5:6", "`ssh` must be a mapping"),
}

MEANING = {
    "an operator called like a group": (
        BASE + "ssh: {user: operator}\n",
        "5:13",
        "'operator' can't be the operator: the VMs have a group of that name",
    ),
    "no node": ("fleet: x\nnodes: []\n", "2:8", "the fleet file needs `nodes`, at least one"),
    "an unknown type": ("fleet: x\nnodes: [{name: a, accelerator: v9-8}]\n", "2:32", "'v9-8' → use one of v2-8"),
    "a size that the type hasn't": ("fleet: x\nnodes: [{name: a, accelerator: v2-7}]\n", "2:32", "'v2-7' → use one of"),
    "no nodes of a pool": (BASE + "    count: 0\n", "5:12", "`count` must be from 1 to 500, not 0"),
    "too many nodes": (BASE + "    count: 501\n", "5:12", "not 501"),
    "a pool twice": (BASE + "  - {name: tpu, accelerator: v3-8}\n", "5:12", "'tpu' is here twice"),
    "a name too long": (BASE.replace("tpu", "t" * 59), "3:11", "longer than a node's name can be"),
    "a hostile runtime": (BASE + "    runtime: $(x)\n", "5:14", "'$(x)' is not a runtime version"),
    "gcp without a project": (BASE + "cloud: {provider: gcp}\n", "5:19", "the provider gcp needs a `project`"),
    "gcp without zones": (
        BASE + "cloud: {provider: gcp, project: my-project}\n",
        "5:8",
        "the provider gcp needs `zones`",
    ),
    "a zone twice": (BASE + "cloud: {zones: [us-east1-d, us-east1-d]}\n", "5:29", "'us-east1-d' is here twice"),
    "two directories in one": (BASE + "cloud: {emulator: {path: ['a:b']}}\n", "5:27", "can't be a directory on PATH"),
    "nodes made before they were asked for": (BASE + "cloud: {emulator: {create_seconds: -1}}\n", "5:36", "from 0 to"),
    "a repository that is an option": (BASE + "code: {repo: --upload-pack=x}\n", "5:14", "can't begin with '-'"),
    "a helper of git": (BASE + "code: {repo: 'ext::sh -c ls'}\n", "5:14", "hosts can't clone: 'ext::sh -c ls'"),
    "an unsafe address": (BASE + "code: {repo: 'http://x/y'}\n", "5:14", "hosts can't clone"),
    "no repository": (BASE + "code: {repo: ''}\n", "5:14", "is not an address or a directory"),
    "a set-up line of nothing": (BASE + "code: {repo: ., setup: ['']}\n", "5:25", "`setup` is empty"),
    "a command of nothing": (BASE + "jobs: {a: {command: []}}\n", "5:21", "must begin with a program"),
    "three chips": (job("chips: 3"), "8:12", "`chips` must be 1, 2, 4 or 8, not 3"),
    "more chips than a host has": (
        job("chips: 8"),
        "8:12",
        "8 chips on one host are more than the fleet's hosts have (4)",
    ),
    "an unknown device": (job("device: gpu"), "8:13", "`device` must be tpu or cpu"),
    "retries without end": (job("retries: -1"), "8:14", "`retries` must be from 0 to 1000, not -1"),
    "a directory above": (job("workdir: a/../../b"), "8:14", "below the clone, which 'a/../../b' is not"),
    "a directory elsewhere": (job("workdir: /etc"), "8:14", "below the clone"),
    "a person's directory": (job("artifacts: [ok, ~/x]"), "8:21", "must stay below the clone, unlike '~/x'"),
    "artifacts above": (job("artifacts: ['../*']"), "8:17", "must stay below the clone"),
    "an axis without values": (job("grid: {lr: []}"), "8:16", "`lr` has no values"),
    "a value twice": (job("grid: {lr: [1, '1']}"), "8:20", "'1' is here twice"),
    "a grid without end": (
        job(*["grid:"], *[f"  {x}: [{', '.join(map(str, range(25)))}]" for x in "abc"]),
        "9:7",
        "15,625 runs; at most 10,000",
    ),
    "lists of different lengths": (
        job("zip: {a: [1, 2], b: [1]}"),
        "8:25",
        "`b` has 1 of 2 values: lists of `zip` are taken together",
    ),
    "lists without values": (job("zip: {a: []}"), "8:10", "`zip` has no values"),
    "a row twice": (job("zip: {a: [1, 1], b: [x, X]}"), "8:18", "'1 x' is here twice"),
    "an axis in grid and zip": (job("grid: {a: [1]}", "zip: {a: [2]}"), "9:11", "`a` is in `grid` too"),
    "points beside a grid": (
        job("grid: {a: [1]}", "points: [{a: 1}]"),
        "9:5",
        "`points` are all there is to run: `grid` beside them",
    ),
    "points beside zip": (job("points: [{a: 1}]", "zip: {a: [1]}"), "8:5", "`zip` beside them can't be meant"),
    "a point of nothing": (job("points: [{a: 1}, {}]"), "8:22", "a point has no values"),
    "a point twice": (job("points: [{a: 1, b: x}, {b: x, a: 1}]"), "8:28", "'a: 1, b: x' is here twice"),
    "rows without end": (
        job(f"zip: {{a: {list(range(101))}}}", f"grid: {{b: {list(range(100))}}}"),
        "9:11",
        "the grid stands for 10,100 runs",
    ),
    "a name of the grid misspelt": (
        BASE + "jobs:\n  gpt:\n    command: [x, '{width}', '{{wdth}}']\n    zip: {wdth: [1]}\n",
        "8:11",
        "nothing uses `wdth`, and nothing gives {width} a value → did you mean `width`?",
    ),
    "a whole host of four": (job("whole_host: true", "chips: 4"), "9:12", "a whole host has the chips it has"),
    "a whole host for nothing": (job("whole_host: true", "device: cpu"), "8:17", "device: cpu has no use for"),
    "a limit of nothing": (job("time_limit: 0s"), "8:17", "`time_limit` must be longer than nothing"),
    "stalled at once": (job("stalled_after: 0m"), "8:20", "`stalled_after` must be longer than nothing"),
    "mirrored all the time": (job("mirror: 0m"), "8:13", "`mirror` must be longer than nothing"),
    "none at once": (job("max_parallel: 0"), "8:19", "`max_parallel` must be from 1 to 10000, not 0"),
    "more urgent than all": (job("priority: 1001"), "8:15", "`priority` must be from -1000 to 1000, not 1001"),
    "no log": (job("log_limit_mb: 0"), "8:19", "`log_limit_mb` must be from 1 to 100000, not 0"),
    "a variable that is none": (job("env: {'A B': x}"), "8:11", "'A B' can't be the name of an environment variable"),
    "a variable of the contract": (job("env: {TPUFLEET_RUN_ID: x}"), "8:11", "is set by tpufleet itself"),
    "a variable of the pin": (
        job("env: {TPU_VISIBLE_CHIPS: '0'}"),
        "8:11",
        "TPU_VISIBLE_CHIPS is set by tpufleet itse",
    ),
    "a secret of the pin": (job("secrets: [PJRT_DEVICE]"), "8:15", "is set by tpufleet itself"),
    "a secret in the open": (job("env: {KEY: x}", "secrets: [KEY]"), "9:15", "KEY is in `env` too"),
    "a broken pattern": (job("metrics: {loss: '('}"), "8:21", "is not a regular expression: missing ), unterminated"),
    "a pattern that repeats beyond all": (
        job("metrics: {loss: '(a{99999999999})'}"),
        "8:21",
        "not a regular expression",
    ),
    "a pattern nested beyond all": (job(f"metrics: {{loss: '{'(' * 900}'}}"), "8:21", "not a regular expression"),
    "a pattern without a group": (
        job("metrics: {loss: 'loss: .*'}"),
        "8:21",
        "has 0 groups → put the number into one group",
    ),
    "a pattern with two groups": (job("metrics: {loss: '(a)(b)'}"), "8:21", "the pattern of `loss` has 2 groups"),
    "a pattern without end": (job(f"metrics: {{loss: '({'a' * 1000})'}}"), "8:21", "longer than 1000 characters"),
}


@pytest.mark.parametrize("case", [*SYNTAX, *FORM, *MEANING])
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, case: str) -> None:
    text, place, words = {**SYNTAX, **FORM, **MEANING}[case]
    error = refusal(tmp_path, text)
    said = f"{error.message} → {error.hint}" if error.hint else error.message
    assert (error.where, words in said) == (f"{tmp_path}/tpufleet.yaml:{place}", True), said
    assert "\n" not in error.message, "one mistake, one sentence"
    assert not any(jargon in said for jargon in ("Input should", "Value error", "NoneType", "str", "dict", "object"))


def test_all_problems_are_told_at_once_in_the_files_order(tmp_path: Path) -> None:
    error = refusal(tmp_path, BASE + '    count: "2"\n    spott: true\njobs:\n  gpt: {command: [a], chips: 010}\n')
    assert str(error) == (
        f"{tmp_path}/tpufleet.yaml:5:12: `count` must be a whole number, not the text '2'\n"
        f"  {tmp_path}/tpufleet.yaml:6:5: `spott` is not a key of a node pool (did you mean `spot`?)\n"
        f"  {tmp_path}/tpufleet.yaml:8:30: `chips` can be read in two ways: '010' "
        "(write a plain decimal number, or quote it as text)"
    )
    assert error.hint == "write 2 without quotes"


def test_a_misspelt_key_is_told_before_the_one_that_is_missing(tmp_path: Path) -> None:
    error = refusal(tmp_path, "fleeet: x\nnodes:\n  - {nme: tpu, accelerator: v2-8}\n")
    assert error.hint == "did you mean `fleet`?"
    assert error.message.splitlines()[1:] == [
        f"  {tmp_path}/tpufleet.yaml:1:1: the fleet file needs `fleet`",
        f"  {tmp_path}/tpufleet.yaml:3:5: a node pool needs `name`",
        f"  {tmp_path}/tpufleet.yaml:3:6: `nme` is not a key of a node pool (did you mean `name`?)",
    ]


def test_at_most_five_further_problems_are_listed(tmp_path: Path) -> None:
    error = refusal(tmp_path, BASE + "".join(f"x{n}: 1\n" for n in range(9)))
    lines = error.message.splitlines()
    assert len(lines) == 7
    assert lines[-1] == "  … and 3 more"


def test_an_unknown_keys_content_is_not_told_as_well(tmp_path: Path) -> None:
    error = refusal(tmp_path, BASE + "jbos:\n  gpt:\n    command:\n    chips: 010\n")
    assert error.message == "`jbos` is not a key of the fleet file"


def test_an_address_with_a_token_is_refused_and_not_repeated(tmp_path: Path) -> None:
    error = refusal(tmp_path, BASE + "code: {repo: 'https://me:ghp_hidden@github.com/me/it'}\n")
    assert "token" in error.message
    assert "ghp_hidden" not in f"{error} {error.hint}"


def test_a_long_or_hostile_value_is_cut_and_escaped_in_the_message(tmp_path: Path) -> None:
    error = refusal(tmp_path, f"fleet: '{'x' * 5000}\u00a0'\nnodes: []\n")
    assert len(error.message) < 250
    assert error.message.isprintable()


def test_every_variable_of_the_pin_is_kept_from_env() -> None:
    pins = [pin_to_cpu(), pin_to_chips([0], 4, Path("/x")), pin_to_chips([0, 1], 4, Path("/x"))]
    names = {name for pin in pins for name in (*pin.set, *pin.unset)}
    assert names - {"LIBTPU_INIT_ARGS"} <= SET_BY_RUNNER, "LIBTPU_INIT_ARGS is added to, not replaced"
