"""Before the evening and after it: `people check` and `workshop end`, on both kinds of hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_json import documented
from tests.evening import KINDS, Evening


@pytest.fixture(params=KINDS)
def evening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Evening]:
    evening = Evening.make(tmp_path / "project", request.param)
    yield evening
    evening.project.stop()


def train(evening: Evening, name: str) -> str:
    """What a training of `name`'s in a changed clone says; it is in ~/runs then."""
    change = (
        "git init -q tale; cd tale; git -c user.name=x -c user.email=x commit -q --allow-empty -m x; echo new > mine"
    )
    evening.output(name, change)
    code = evening.project.directory / "code/train.py"
    evening.output(name, f"cat > train.py <<'END'\n{code.read_text()}\nEND\n")
    return evening.output(name, "on-chip -- python3 train.py")


def test_what_people_agreed_to_leave_comes_home_and_everything_else_goes(evening: Evening) -> None:
    project = evening.project
    evening.invite("ada", "--share")
    evening.invite("linus")
    project.run("people", "apply")
    assert train(evening, "ada").startswith("chip 0 TPU")
    assert train(evening, "linus").startswith("chip 1 TPU")
    evening.output("ada", "cd runs/*/ && ln -s /etc/passwd passwd && mkfifo pipe && ln -s / all && echo x > .hidden")

    (project.directory / ".tpufleet/signups.json").write_text("{}")

    foreseen = project.json("workshop", "end", "--dry-run")
    assert (foreseen["revoked"], foreseen["agreed"], foreseen["nodes"]) == (["ada", "linus"], ["ada"], ["tpu-0"])
    assert evening.ssh("ada", "true").returncode == 0, "a dry run changes nothing"

    ended = project.json("workshop", "end", "--yes")
    assert (ended["revoked"], ended["people"], ended["problems"]) == (["ada", "linus"], {"ada": 5}, [])
    assert set(ended) == documented("workshop end")
    home = Path(ended["home"])
    kept = sorted(str(file.relative_to(home)) for file in home.rglob("*") if file.is_file())
    run = next((home / "ada/tpu-0-w0/runs").iterdir()).name
    assert kept == [
        "ada/tpu-0-w0/.collected.json",
        "ada/tpu-0-w0/code/tale.diff",
        f"ada/tpu-0-w0/runs/{run}/checkpoints/step-00000003/weights",
        f"ada/tpu-0-w0/runs/{run}/completions.jsonl",
        f"ada/tpu-0-w0/runs/{run}/metrics.jsonl",
        f"ada/tpu-0-w0/runs/{run}/run.json",
        "people.yaml",
    ]
    weights = home / f"ada/tpu-0-w0/runs/{run}/checkpoints/step-00000003/weights"
    assert weights.read_bytes() == bytes(range(256)) * 1000
    assert "+new" in (home / "ada/tpu-0-w0/code/tale.diff").read_text()
    assert ended["proof"] == [{"zone": "us-central1-b", "nodes": 0, "queued_resources": 0, "granted": True}]
    assert project.json("people", "list")["people"] == []
    assert "ada" in Path(ended["list"]).read_text()
    left = {file.name for file in (project.directory / ".tpufleet").iterdir()}
    assert not left & {"signups.json", "people.json"}, "the next evening begins anew"

    again = project.json("workshop", "end", "--yes")
    assert (again["revoked"], again["list"], again["files"]) == ([], None, 0)
    assert weights.exists(), "typed again, it takes nothing away"


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["revoked", "fetching what ada has", "deleting"])
def test_killed_at_any_moment_and_typed_again_it_ends_the_same(evening: Evening, moment: str) -> None:
    project = evening.project
    evening.invite("ada", "--share")
    project.run("people", "apply")
    train(evening, "ada")
    with project.popen("workshop", "end", "--yes") as ending:
        assert ending.stderr
        assert any(moment in line for line in ending.stderr), "it came that far"
        ending.kill()
    ended = project.json("workshop", "end", "--yes")
    assert (ended["problems"], ended["proof"][0]["nodes"]) == ([], 0)
    home = project.directory / "artifacts/sherlock/people"
    assert (home / "people.yaml").exists()
    assert [file.stat().st_size for file in home.rglob("weights")] == [256_000]
    assert project.json("people", "list")["people"] == []


@pytest.mark.faults
def test_a_host_that_cannot_be_heard_keeps_the_fleet_until_its_things_are_home(evening: Evening) -> None:
    project = evening.project
    evening.invite("ada", "--share")
    project.run("people", "apply")
    train(evening, "ada")
    project.run("emulator", "fault", "partition", "tpu-0-w0")
    refused = project.run("workshop", "end", "--yes", ok=False)
    assert refused.exit_code == 6
    assert "not everything is home, so the fleet stays" in refused.stderr
    project.run("emulator", "fault", "partition", "tpu-0-w0", "--end")
    assert [node["state"] for node in evening.status()["nodes"]] == ["READY"]
    ended = project.json("workshop", "end", "--yes")
    assert (ended["people"], ended["revoked"], ended["proof"][0]["nodes"]) == ({"ada": 5}, ["ada"], 0)


def test_a_visit_finds_what_each_person_will_find_and_leaves_no_key_behind(evening: Evening) -> None:
    project = evening.project
    evening.invite("ada")
    evening.invite("linus")
    assert set(project.json("people", "apply")) == documented("people apply")
    well = project.json("people", "check")
    assert set(well) == documented("people check")
    assert [(one["name"], one["seat"], one["faults"]) for one in well["people"]] == [
        ("ada", "tpu-0-w0:0", []),
        ("linus", "tpu-0-w0:1", []),
    ]
    for name in ("ada", "linus"):
        assert len(evening.output(name, "cat .ssh/authorized_keys").splitlines()) == 1

    evening.output("ada", "sed -i '/tpufleet/a export TPU_VISIBLE_CHIPS=3' .bashrc")
    bad = project.run("--json", "people", "check", ok=False)
    assert bad.exit_code == 6
    assert "something is wrong for 1 of 2 people: ada is pinned to 3" in bad.stderr
    found = json.loads(bad.stdout.splitlines()[0])["people"]
    assert [(one["name"], one["faults"]) for one in found] == [("ada", ["is pinned to 3"]), ("linus", [])]

    unknown = project.run("people", "check", "nobody", ok=False)
    assert (unknown.exit_code, "'nobody' is not in the list" in unknown.stderr) == (2, True), unknown.stderr
