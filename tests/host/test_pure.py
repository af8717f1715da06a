"""The pure parts: slots, pins, endings, globs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tpufleet.host.endings import Ending, Hints, from_wait_status, tpu_trouble
from tpufleet.host.manifest import matches
from tpufleet.host.pin import pin_to_chips, pin_to_cpu
from tpufleet.host.slots import Wish, assign
from tpufleet.restart import Reason

FOUR = range(4)
LOG = Path("/runs/gpt")


def test_runs_take_the_lowest_chips_in_their_order() -> None:
    assert assign([Wish("a", 1), Wish("b", 1)], FOUR, [1, 3], [0, 2]) == {"a": (1,), "b": (3,)}


def test_slots_are_aligned() -> None:
    assert assign([Wish("a", 2)], FOUR, [1, 2], []) == {}
    assert assign([Wish("a", 2)], FOUR, [1, 2, 3], []) == {"a": (2, 3)}
    assert assign([Wish("a", 4)], range(8), range(3, 8), []) == {"a": (4, 5, 6, 7)}


def test_a_large_run_at_the_head_is_not_overtaken_on_the_chips_it_waits_for() -> None:
    queue = [Wish("large", 4), Wish("small", 1)]
    assert assign(queue, FOUR, [1, 2, 3], [0]) == {}
    assert assign(queue, range(8), [1, 2, 3, 7], [0, 4, 5, 6]) == {"small": (7,)}


def test_chips_that_people_hold_are_not_waited_for() -> None:
    assert assign([Wish("large", 4), Wish("small", 1)], FOUR, [1, 2, 3], []) == {"small": (1,)}


def test_a_run_without_chips_always_fits() -> None:
    assert assign([Wish("large", 4), Wish("cpu", 0)], FOUR, [], FOUR) == {"cpu": ()}


@given(
    st.lists(st.sampled_from([0, 1, 2, 4, 8]), max_size=12),
    st.sampled_from([1, 4, 8]),
    st.sets(st.integers(0, 7)),
    st.sets(st.integers(0, 7)),
)
def test_no_chip_is_ever_given_twice_or_taken_from_anyone(
    sizes: list[int], count: int, free: set[int], ours: set[int]
) -> None:
    present = set(range(count))
    free &= present
    given_chips = assign([Wish(str(n), size) for n, size in enumerate(sizes)], present, free, (ours & present) - free)
    chips = [chip for slot in given_chips.values() for chip in slot]
    assert len(chips) == len(set(chips))
    assert set(chips) <= free
    for run, slot in given_chips.items():
        assert len(slot) == sizes[int(run)]
        assert not slot or (slot[0] % len(slot) == 0 and slot == tuple(range(slot[0], slot[0] + len(slot))))


def test_one_chip_is_pinned_as_the_facts_say() -> None:
    pin = pin_to_chips([3], 4, LOG, "--given=1")
    assert pin.set == {
        "TPU_VISIBLE_CHIPS": "3",
        "TPU_VISIBLE_DEVICES": "3",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "PJRT_DEVICE": "TPU",
        "LIBTPU_INIT_ARGS": "--given=1 --runtime_metric_service_port=8434",
        "TPU_LOG_DIR": "/runs/gpt",
    }
    assert {"TPU_PROCESS_ADDRESSES", "TPU_PROCESS_PORT", "CLOUD_TPU_TASK_ID", "TPU_HOST_BOUNDS"} <= set(pin.unset)
    assert {"TPU_CHIPS_PER_HOST_BOUNDS", "TPU_VISIBLE_DEVICE_PATHS"} <= set(pin.unset)


@pytest.mark.parametrize(
    ("chips", "on_host", "bounds", "mesh"),
    [
        ([0, 1], 4, "1,2,1", "8474"),
        ([2, 3], 4, "1,2,1", "8475"),
        ([0, 1, 2, 3], 4, "2,2,1", None),
        (list(range(8)), 8, "2,4,1", None),
    ],
)
def test_several_chips_have_their_bounds_and_pairs_a_mesh_controller_each(
    chips: list[int], on_host: int, bounds: str, mesh: str | None
) -> None:
    pin = pin_to_chips(chips, on_host, LOG)
    assert pin.set["TPU_CHIPS_PER_PROCESS_BOUNDS"] == bounds
    assert pin.set["TPU_VISIBLE_CHIPS"] == ",".join(map(str, chips))
    assert pin.set.get("TPU_MESH_CONTROLLER_PORT") == mesh


def test_all_chips_of_one_worker_of_a_slice_do_not_wait_for_the_other_workers() -> None:
    pin = pin_to_chips(FOUR, 4, LOG, multi_host=True)
    assert pin.set["TPU_SKIP_MDS_QUERY"] == "1"
    assert pin.set["TPU_CHIPS_PER_HOST_BOUNDS"] == "2,2,1"
    assert not set(pin.set) & set(pin.unset)


def test_a_cpu_run_has_no_tpu_variable() -> None:
    pin = pin_to_cpu()
    assert pin.set == {"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu"}
    assert "TPU_VISIBLE_CHIPS" in pin.unset


@pytest.mark.parametrize(
    ("status", "hints", "ending"),
    [
        (0, Hints(), Ending(0, None)),
        (3 << 8, Hints(), Ending(3, Reason.EXIT_NONZERO)),
        (3 << 8, Hints(disk_is_full=True), Ending(3, Reason.DISK_FULL)),
        (127 << 8, Hints(), Ending(127, Reason.COMMAND_NOT_FOUND)),
        (3 << 8, Hints(tpu=Reason.TPU_BUSY), Ending(3, Reason.TPU_BUSY)),
        (signal.SIGABRT, Hints(tpu=Reason.TPU_INIT_FAILED), Ending(134, Reason.TPU_INIT_FAILED)),
        (signal.SIGSEGV, Hints(memory_ran_out=True), Ending(139, Reason.SIGNAL)),
        (signal.SIGKILL, Hints(), Ending(137, Reason.SIGNAL)),
        (signal.SIGKILL, Hints(memory_ran_out=True), Ending(137, Reason.OUT_OF_MEMORY)),
        (signal.SIGKILL, Hints(memory_ran_out=True, killed_by_us=True), Ending(137, Reason.SIGNAL)),
    ],
)
def test_an_ending_is_told_from_the_wait_status_and_what_the_host_shows(
    status: int, hints: Hints, ending: Ending
) -> None:
    assert from_wait_status(status, hints) == ending


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"The TPU is already in use by process with pid 7. Not attempting to load libtpu.so", Reason.TPU_BUSY),
        (b"Internal error when accessing libtpu multi-process lockfile. Run", Reason.TPU_BUSY),
        (b"TPU initialization failed: open(/dev/vfio/0): Device or resource busy", Reason.TPU_BUSY),
        (b"open(/dev/accel0): Operation not permitted: Operation not permitted", Reason.TPU_BUSY),
        (b"jax: TPU initialization failed: No ba16c7433 device found.", Reason.TPU_INIT_FAILED),
        (b"OSError: [Errno 16] Device or resource busy: '/mnt/data'", None),
        (b"loss: 2.3", None),
    ],
)
def test_what_the_log_says_of_the_tpu(said: bytes, reason: Reason | None) -> None:
    assert tpu_trouble(said) is reason


def test_a_full_group_neither_starts_nor_keeps_a_chip() -> None:
    waiting = [Wish("a", 4, "gpt", 1), Wish("b", 1, "gpt", 2), Wish("c", 1, "gpt", 2), Wish("d", 1)]
    assert assign(waiting, FOUR, FOUR, [], {"gpt": 1}) == {"b": (0,), "d": (1,)}


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("checkpoints/a/b", "checkpoints/**", True),
        ("checkpoints", "checkpoints/**", False),
        ("a/b/c.svg", "**/*.svg", True),
        ("c.svg", "**/*.svg", True),
        ("a/c.svg", "*.svg", False),
        ("a/x/b", "a/*/b", True),
        ("a/x/y/b", "a/**/b", True),
    ],
)
def test_artifact_globs_stop_at_directories_unless_they_say_so(path: str, pattern: str, *, expected: bool) -> None:
    assert matches(path.split("/"), pattern.split("/")) is expected
