"""Provisioning as a person sees it: stock-outs, quotas, queues, lost answers, adopted nodes, leftovers."""

from __future__ import annotations

import signal

import pytest

from tests.project import Project, until

ZONES = ("us-central1-b", "us-central1-c")


@pytest.fixture
def two_zones(project: Project) -> Project:
    """One v2-8 wanted, in either of two zones; the rehearsal cloud is up."""
    cloud(project, f"zones: [{', '.join(ZONES)}]")
    project.run("emulator", "start")
    return project


def cloud(project: Project, more: str) -> None:
    edit(project, "provider: emulator,", f"provider: emulator, {more},")


def pool(project: Project, more: str) -> None:
    edit(project, "accelerator: v2-8}", f"accelerator: v2-8, {more}}}")


def edit(project: Project, old: str, new: str) -> None:
    file = project.directory / "tpufleet.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def fault(project: Project, *words: str) -> None:
    project.run("emulator", "fault", *words)


def nodes(project: Project) -> dict[str, tuple[str, str]]:
    """Name -> zone and state, as `status` has it."""
    return {node["name"]: (node["zone"], node["state"]) for node in project.json("status")["nodes"]}


def forget(project: Project) -> None:
    """The journal is lost."""
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (project.directory / ".tpufleet" / name).unlink(missing_ok=True)


def made(project: Project) -> list[str]:
    """The zones in which nodes were made that are (or were) billed, by the cloud's own book."""
    book = project.json("emulator", "book")
    return [node["name"].split("/")[3] for node in book["nodes"] if node["nodeSeconds"]]


def test_a_stock_out_sends_to_the_next_zone_which_is_found_again_without_local_state(two_zones: Project) -> None:
    fault(two_zones, "stockout", "--zone", ZONES[0])
    done = two_zones.run("create")
    assert "us-central1-b: no capacity [EID: 0x" in done.stderr
    assert "trying us-central1-c" in done.stderr
    assert nodes(two_zones) == {"tpu-0": (ZONES[1], "READY")}
    forget(two_zones)
    assert "nothing to do" in two_zones.run("create").stdout
    proof = two_zones.json("delete", "--yes")["proof"]
    assert proof == [{"zone": zone, "nodes": 0, "queued_resources": 0, "granted": True} for zone in ZONES]


def test_when_no_zone_has_chips_the_end_says_what_was_tried_for_how_long_and_the_exit_code_is_3(
    two_zones: Project,
) -> None:
    for zone in ZONES:
        fault(two_zones, "stockout", "--zone", zone)
    done = two_zones.run("create", "--timeout", "1s", ok=False)
    assert done.exit_code == 3
    assert "no v2-8 to be had in 1 s: us-central1-b (1 try), us-central1-c (1 try)" in done.stderr
    assert "There is no more capacity in the zone" in done.stderr
    assert "→ tpufleet create --timeout 12h" in done.stderr
    assert nodes(two_zones) == {}
    assert made(two_zones) == []


def test_chips_that_come_free_while_it_waits_are_taken(two_zones: Project) -> None:
    for zone in ZONES:
        fault(two_zones, "stockout", "--zone", zone)
    with two_zones.popen("create", "--timeout", "60s") as waiting:
        assert waiting.stderr
        assert any("in 2 s (try 3" in line for line in waiting.stderr)
        fault(two_zones, "stockout", "--zone", ZONES[0], "--end")
        waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "READY")}


def test_a_zone_that_was_not_granted_is_left_out_and_the_others_are_used(project: Project) -> None:
    cloud(project, "zones: [mars-north1-a, us-central1-c]")
    project.run("create")
    assert nodes(project) == {"tpu-0": ("us-central1-c", "READY")}


def test_a_quota_is_named_with_its_limit_and_region_and_not_waited_for(two_zones: Project) -> None:
    fault(two_zones, "quota", "v2-8", "--limit", "0", "--region", "us-central1")
    done = two_zones.run("create", ok=False)
    assert done.exit_code == 4
    assert "TPUV2sPerProjectPerRegionForTPUAPI" in done.stderr
    assert "region us-central1 is 0" in done.stderr
    assert nodes(two_zones) == {}


def test_a_missing_permission_is_named_with_the_command_that_grants_it(two_zones: Project) -> None:
    fault(two_zones, "api", "403", "--method", "CreateNode")
    done = two_zones.run("create", ok=False)
    assert done.exit_code == 4
    assert "tpu.nodes.create" in done.stderr
    assert "gcloud projects add-iam-policy-binding rehearsal" in done.stderr


@pytest.mark.parametrize("queued", [False, True])
def test_a_create_whose_answer_was_lost_makes_one_node_not_two(two_zones: Project, queued: bool) -> None:
    if queued:
        pool(two_zones, "queued: true")
    fault(two_zones, "api", "--lost-answer", "--method", "CreateQueuedResource" if queued else "CreateNode")
    two_zones.run("create")
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "READY")}
    assert made(two_zones) == [ZONES[0]]


def test_an_operation_that_never_ends_is_said_with_its_name_and_the_next_create_goes_on(two_zones: Project) -> None:
    fault(two_zones, "hang-operation", "tpu-0")
    done = two_zones.run("create", "--timeout", "1s", ok=False)
    assert done.exit_code == 4
    assert "still CREATING in us-central1-b after 1 s (operation operation-" in done.stderr
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "CREATING")}
    fault(two_zones, "clear")
    two_zones.run("create")
    assert made(two_zones) == [ZONES[0]]


def test_a_startup_script_that_metadata_cannot_hold_is_refused_and_nothing_is_made(two_zones: Project) -> None:
    (two_zones.directory / "boot.sh").write_text("#" * 250_000)
    pool(two_zones, "startup_script: boot.sh")
    done = two_zones.run("create", ok=False)
    assert done.exit_code == 2
    assert "the startup script is too large" in done.stderr
    assert nodes(two_zones) == {}


def test_ctrl_c_while_nodes_are_made_leaves_nothing_unknown(two_zones: Project) -> None:
    fault(two_zones, "hang-operation", "tpu-0")
    with two_zones.popen("create") as creating:
        until(lambda: nodes(two_zones), "the node is asked for")
        creating.send_signal(signal.SIGINT)
        _, err = creating.communicate(timeout=30)
    assert creating.returncode == 130
    assert "Run the same command again" in err
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "CREATING")}
    two_zones.run("delete", "--yes")
    assert nodes(two_zones) == {}


def test_a_node_in_the_queue_is_waited_for_and_left_there_when_the_time_is_over(two_zones: Project) -> None:
    pool(two_zones, "queued: true, valid_until: 6h")
    fault(two_zones, "stockout", "--zone", ZONES[0])
    done = two_zones.run("create", "--timeout", "1s", ok=False)
    assert done.exit_code == 3
    assert "waits in the queue of us-central1-b (WAITING_FOR_RESOURCES)" in done.stderr
    queue = two_zones.json("status")["queued"]
    assert [(item["name"], item["zone"], item["state"]) for item in queue] == [
        ("tpu-0", ZONES[0], "WAITING_FOR_RESOURCES")
    ]
    fault(two_zones, "clear")
    two_zones.run("create")
    assert made(two_zones) == [ZONES[0]]
    proof = two_zones.json("delete", "--yes")["proof"]
    assert all(item["queued_resources"] == 0 for item in proof)


def test_a_suspended_queued_resource_is_deleted_and_asked_for_anew(two_zones: Project) -> None:
    pool(two_zones, "queued: true, spot: true")
    two_zones.run("create")
    fault(two_zones, "preempt", "tpu-0")
    assert {item["state"] for item in two_zones.json("status")["queued"]} <= {"SUSPENDING", "SUSPENDED"}
    done = two_zones.run("create")
    assert "deleting (its queued resource is SUSPEND" in done.stderr
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "READY")}


def test_a_node_that_vanished_is_made_anew(two_zones: Project) -> None:
    two_zones.run("create")
    fault(two_zones, "vanish", "tpu-0")
    assert nodes(two_zones) == {}
    two_zones.run("create")
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "READY")}


def test_a_node_made_by_hand_is_adopted_used_and_given_back(two_zones: Project) -> None:
    by_hand(two_zones)
    two_zones.run("--config", "other.yaml", "adopt", "hand-0", "--release")
    two_zones.run("create")
    would = two_zones.json("adopt", "hand-0", "--dry-run")
    assert (would["changed"], would["dry_run"]) == (True, True)
    assert two_zones.json("adopt", "hand-0")["changed"] is True
    assert "nothing to do" in two_zones.run("adopt", "hand-0").stdout
    two_zones.run("create")
    assert set(nodes(two_zones)) == {"tpu-0", "hand-0"}
    assert "hand-0-w0" in two_zones.run("exec", "--on", "hand-0", "--", "hostname").stdout
    assert two_zones.json("adopt", "hand-0", "--release")["changed"] is True
    assert two_zones.json("delete", "--yes")["deleted"] == ["tpu-0"]
    assert two_zones.json("adopt", "hand-0")["changed"] is True
    assert two_zones.json("delete", "--yes")["deleted"] == ["hand-0"]


def test_what_belongs_to_another_fleet_is_not_taken(two_zones: Project) -> None:
    by_hand(two_zones)
    done = two_zones.run("adopt", "hand-0", ok=False)
    assert done.exit_code == 4
    assert "it belongs to the fleet other" in done.stderr
    missing = two_zones.run("adopt", "nothing", ok=False)
    assert missing.exit_code == 4
    assert "no node nothing in us-central1-b, us-central1-c" in missing.stderr


def test_a_name_that_is_taken_and_a_node_that_is_paid_otherwise_stand_in_the_plan(two_zones: Project) -> None:
    by_hand(two_zones)
    edit(two_zones, "name: tpu", "name: hand")
    plan = two_zones.run("create", "--dry-run", ok=False)
    assert plan.exit_code == 4
    assert "in the way: hand-0 in us-central1-b belongs to the fleet other" in plan.stdout
    two_zones.run("--config", "other.yaml", "adopt", "hand-0", "--release")
    refused = two_zones.run("create", ok=False)
    assert "hand-0 in us-central1-b is not tpufleet's; tpufleet adopt hand-0 takes it in" in refused.stderr
    two_zones.run("adopt", "hand-0")
    two_zones.run("create")
    pool(two_zones, "spot: true")
    refused = two_zones.run("create", ok=False)
    assert (refused.exit_code, "is on demand, the file wants spot" in refused.stderr) == (4, True)


def test_a_plan_for_google_needs_no_credentials(project: Project) -> None:
    edit(project, "{provider: emulator,", "{provider: gcp, project: my-project, zones: [us-central1-b],")
    project.env = {"HOME": str(project.directory), "NO_GCE_CHECK": "true", "GOOGLE_APPLICATION_CREDENTIALS": ""}
    plan = project.run("create", "--dry-run")
    assert "the cloud was not asked (no Google credentials can be used" in plan.stderr
    assert "the new nodes cost about 4.50 USD an hour" in plan.stdout
    refused = project.run("create", ok=False)
    assert (refused.exit_code, "gcloud auth application-default login" in refused.stderr) == (4, True)


def by_hand(project: Project) -> None:
    """A node hand-0 on the project's cloud, made by the fleet `other` of another file."""
    text = (project.directory / "tpufleet.yaml").read_text()
    other = text.replace("fleet: sherlock", "fleet: other").replace("name: tpu", "name: hand")
    (project.directory / "other.yaml").write_text(other)
    project.run("--config", "other.yaml", "create")


def test_orphans_are_found_by_label_in_zones_that_the_file_does_not_name(two_zones: Project) -> None:
    two_zones.run("create")
    edit(two_zones, f"zones: [{ZONES[0]}, {ZONES[1]}]", f"zones: [{ZONES[1]}]")
    assert nodes(two_zones) == {"tpu-0": (ZONES[0], "READY")}  # the journal remembers the zone
    forget(two_zones)
    assert nodes(two_zones) == {}
    would = two_zones.json("delete", "--orphans", "--dry-run")["actions"]
    assert [(action["node"], action["zone"]) for action in would] == [("tpu-0", ZONES[0])]
    gone = two_zones.json("delete", "--orphans", "--yes")
    assert gone["deleted"] == ["tpu-0"]
    assert gone["proof"] == [{"zone": "-", "nodes": 0, "queued_resources": 0, "granted": True}]


def test_expired_nodes_are_deleted_when_asked(two_zones: Project) -> None:
    pool(two_zones, "ttl: 1h")
    two_zones.run("create")
    assert "ends in 59 min" in two_zones.run("status").stdout
    assert two_zones.json("delete", "--expired", "--yes")["deleted"] == []
    edit(two_zones, "ttl: 1h", "ttl: 1s")
    two_zones.run("delete", "--yes")
    two_zones.run("create", ok=False)
    until(lambda: nodes(two_zones) == {} or two_zones.json("delete", "--expired", "--yes")["deleted"], "its end")
    assert nodes(two_zones) == {}


def test_a_surplus_twin_in_another_zone_is_deleted(two_zones: Project) -> None:
    edit(two_zones, f"zones: [{ZONES[0]}, {ZONES[1]}]", f"zones: [{ZONES[1]}]")
    two_zones.run("create")
    forget(two_zones)
    edit(two_zones, f"zones: [{ZONES[1]}]", f"zones: [{ZONES[0]}]")
    two_zones.run("create")
    edit(two_zones, f"zones: [{ZONES[0]}]", f"zones: [{ZONES[0]}, {ZONES[1]}]")
    done = two_zones.run("create", "--yes")
    assert "has tpu-0 as well" in done.stderr
    assert len(nodes(two_zones)) == 1


def test_the_plan_shows_prices_and_what_would_be_deleted(two_zones: Project) -> None:
    plan = two_zones.run("create", "--dry-run").stdout
    assert "4.50" in plan
    assert "the new nodes cost about 4.50 USD an hour" in plan
    assert "under a TRC grant 0" in plan
    two_zones.run("create")
    edit(two_zones, "name: tpu", "name: other")
    plan = two_zones.run("create", "--dry-run").stdout
    assert "delete  tpu-0" in plan
    assert "not in the file" in plan
    cloud(two_zones, "trc: true")
    assert "the new nodes cost 0 USD an hour (TRC grant)" in two_zones.run("create", "--dry-run").stdout
