"""The fleet file: what is read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpufleet.config.load import load
from tpufleet.config.reading import MAX_BYTES
from tpufleet.config.template import template
from tpufleet.errors import ConfigError
from tpufleet.model import Provider
from tpufleet.names import JobName, ParamName

FULL = r"""
fleet: sherlock
cloud: {provider: gcp, project: my-project, zones: [us-central1-b, us-central1-c]}
nodes:
  - {name: tpu, count: 2, accelerator: v2-8, runtime: tpu-ubuntu2204-base, spot: yes}
  - {name: big, accelerator: v3-32}
ssh: {user: holmes}
code: {repo: "https://github.com/matomatical/bitesizedGPT", ref: main, setup: [uv venv]}
jobs:
  gpt:
    workdir: jobs/gpt/
    command: [python, train.py, --lr, "{lr}", "{{plain}}", "{free}"]
    chips: 4
    device: cpu
    grid: {lr: [0.001, 1e-4, 1], name: [a, true]}
    env: {PYTHONUNBUFFERED: "1", LIBTPU_INIT_ARGS: --x=1}
    secrets: [WANDB_API_KEY]
    artifacts: ["checkpoints/**", ./out]
    time_limit: 12h
    stalled_after: 20m
    stop_on_nan: true
    mirror: 90s
    log_limit_mb: 5
    priority: -3
    max_parallel: 2
    metrics: {test_loss: 'testing loss:\s+([\d.]+)'}
    retries: 3
  pairs: {command: [x], zip: {a: [1, 2], b: [x, true]}, whole_host: true}
  points: {command: [x], points: [{a: 1, b: x}, {a: 0.5}]}
"""
REPOSITORY = Path(__file__).parents[2]


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "tpufleet.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_key_of_the_design_arrives_with_its_type(tmp_path: Path) -> None:
    spec = load(written(tmp_path, FULL))
    assert (spec.fleet, spec.ssh.user) == ("sherlock", "holmes")
    assert (spec.cloud.provider, spec.cloud.project) == (Provider.GCP, "my-project")
    assert spec.cloud.zones == ("us-central1-b", "us-central1-c")
    assert [(pool.name, pool.count, pool.spot, pool.type.hosts) for pool in spec.nodes] == [
        ("tpu", 2, True, 1),
        ("big", 1, False, 4),
    ]
    assert spec.code is not None and spec.code.setup == ("uv venv",)
    job = spec.jobs[JobName("gpt")]
    assert job.command[3:] == ("{lr}", "{{plain}}", "{free}")
    assert [*map(repr, job.grid[ParamName("lr")])] == ["0.001", "0.0001", "1"]
    assert job.grid[ParamName("name")] == ("a", True)
    assert job.env["PYTHONUNBUFFERED"] == "1"
    assert (job.chips, job.device, job.retries, job.secrets) == (4, "cpu", 3, ("WANDB_API_KEY",))
    times = (job.time_limit, job.stalled_after, job.mirror)
    assert [time.seconds for time in times if time] == [12 * 3600, 20 * 60, 90]
    assert (job.stop_on_nan, job.log_limit_mb, job.priority, job.max_parallel) == (True, 5, -3, 2)
    pairs, points = spec.jobs[JobName("pairs")], spec.jobs[JobName("points")]
    assert (pairs.whole_host, dict(pairs.zip)) == (True, {"a": (1, 2), "b": ("x", True)})
    assert [dict(point) for point in points.points] == [{"a": 1, "b": "x"}, {"a": 0.5}]


def test_the_rehearsal_cloud_needs_neither_project_nor_zones(tmp_path: Path) -> None:
    spec = load(written(tmp_path, "fleet: x\nnodes: [{name: tpu, accelerator: v2-8}]"))
    assert (spec.cloud.project, spec.cloud.zones) == ("rehearsal", ("us-central1-b",))


def test_zones_that_are_named_are_kept_on_the_rehearsal_cloud(tmp_path: Path) -> None:
    text = "fleet: x\nnodes: [{name: tpu, accelerator: v2-8}]\ncloud: {zones: [europe-west4-a], project: my-project}"
    cloud = load(written(tmp_path, text)).cloud
    assert (cloud.project, cloud.zones) == ("my-project", ("europe-west4-a",))


@pytest.mark.parametrize(
    "repo",
    [
        *("https://github.com/me/it", "ssh://git@host/it.git", "git@github.com:me/it.git"),
        *(".", "../code", "~/code", "/srv/code", "file:///srv/code", "dir/a:b", "two words"),
    ],
)
def test_a_repository_is_an_address_or_a_directory(tmp_path: Path, repo: str) -> None:
    text = f"fleet: x\nnodes: [{{name: tpu, accelerator: v2-8}}]\ncode: {{repo: '{repo}'}}"
    code = load(written(tmp_path, text)).code
    assert code is not None and code.repo == repo


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(tmp_path: Path) -> None:
    text = "\ufefffleet: x\r\nnodes:\r\n  - name: tpu\r\n    accelerator: v2-8\r\n"
    assert load(written(tmp_path, text)).nodes[0].name == "tpu"


def test_this_repositorys_own_file_loads() -> None:
    assert load(REPOSITORY / "tpufleet.yaml").fleet == "sherlock"


# ------------------------------------------------------------------------------------------ files that are no text


def test_a_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no fleet file here") as caught:
        load(tmp_path / "tpufleet.yaml")
    assert caught.value.where == str(tmp_path / "tpufleet.yaml")
    assert "tpufleet init" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (Path(), "this is a directory"),
        (Path("/dev/null"), "this is not a file"),
        (Path("x\0y"), "can't be read"),
        (Path("x" * 300), "can't be read"),
        (Path(__file__) / "below", "can't be read"),
    ],
)
def test_what_is_not_a_file_is_refused(tmp_path: Path, path: Path, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(tmp_path / path)


def test_a_file_larger_than_a_mebibyte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(written(tmp_path, b"#" * (MAX_BYTES + 1)))


def test_bytes_that_are_not_utf8_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load(written(tmp_path, "fleet: x\n# é ".encode() + b"\xff"))
    assert str(caught.value.where).endswith("tpufleet.yaml:2:5")


# ------------------------------------------------------------------------------------------------- what init writes


def test_the_file_for_a_rehearsal_loads_and_stays_on_this_machine(tmp_path: Path) -> None:
    spec = load(written(tmp_path, template(fleet="baker-street", project=None, zone=None)))
    assert (spec.fleet, spec.cloud.provider, [*spec.jobs]) == ("baker-street", Provider.EMULATOR, ["train"])


def test_the_file_for_google_cloud_has_project_and_zone(tmp_path: Path) -> None:
    spec = load(written(tmp_path, template(fleet="x", project="my-project", zone="europe-west4-a")))
    assert (spec.cloud.provider, spec.cloud.project) == (Provider.GCP, "my-project")
    assert spec.cloud.zones == ("europe-west4-a",)


def test_what_the_template_has_in_comments_loads_too(tmp_path: Path) -> None:
    text = template(fleet="x", project=None, zone=None)
    for off, on in (
        ("# spot: true ", "spot: true "),
        ("# setup: [", "setup: ["),
        ("# env: {", "env: {"),
        ("# metrics: ", "metrics: "),
        ("#   loss: ", "  loss: "),
        ("  provider: emulator ", "  # "),
        ("# provider: gcp ", "provider: gcp "),
        ("# project: ", "project: "),
        ("# zones: ", "zones: "),
    ):
        assert text.count(off) == 1
        text = text.replace(off, on)
    spec = load(written(tmp_path, text))
    (job,) = spec.jobs.values()
    assert spec.cloud.provider is Provider.GCP and spec.nodes[0].spot and job.env and job.metrics


@pytest.mark.parametrize("fleet", ["no", "on", "null", "true"])
def test_a_fleet_may_be_called_like_a_word_of_yaml(tmp_path: Path, fleet: str) -> None:
    assert load(written(tmp_path, template(fleet=fleet, project=None, zone=None))).fleet == fleet


@pytest.mark.parametrize(
    ("fleet", "project", "zone"),
    [("Bad name", None, None), ("x", "P: [", "us-central1-b"), ("x", "my-project", "b]"), ("x", "my-project", None)],
)
def test_a_template_is_not_made_of_names_that_are_none(fleet: str, project: str | None, zone: str | None) -> None:
    with pytest.raises(ValueError, match=r"must be|go together"):
        template(fleet=fleet, project=project, zone=zone)
