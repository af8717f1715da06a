"""A job and the values asked for -> runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tpufleet.errors import UsageError
from tpufleet.model import JobSpec
from tpufleet.names import ParamName, RunId
from tpufleet.sweep import expand, parse_value, run_id

LR, SEED = ParamName("lr"), ParamName("seed")
GPT = JobSpec(
    command=("python", "train.py", "--lr", "{lr}", "--seed={seed}", "{{plain}}"),
    grid={LR: (0.001, 0.003), SEED: (0, 1)},
    env={"NOTE": "seed {seed}"},
)


def test_the_grid_is_a_product_with_readable_ids() -> None:
    runs = expand("gpt", GPT)
    assert [run.id for run in runs] == [
        "gpt-lr0.001-seed0",
        "gpt-lr0.001-seed1",
        "gpt-lr0.003-seed0",
        "gpt-lr0.003-seed1",
    ]


def test_placeholders_are_filled_in_command_and_environment_and_doubled_braces_stay() -> None:
    run = expand("gpt", GPT)[3]
    assert run.command == ("python", "train.py", "--lr", "0.003", "--seed=1", "{plain}")
    assert run.env == {"NOTE": "seed 1"}


def test_set_fixes_an_axis_and_grid_replaces_one() -> None:
    runs = expand("gpt", GPT, settings={LR: 0.01}, grid={SEED: (7, 8, 9)})
    assert [run.params for run in runs] == [{"lr": 0.01, "seed": seed} for seed in (7, 8, 9)]


def test_a_value_that_is_set_is_part_of_the_id_also_without_an_axis() -> None:
    job = JobSpec(command=("train", "--width={width}"), grid={SEED: (0,)})
    assert expand("gpt", job, settings={ParamName("width"): 64})[0].id == "gpt-seed0-width64"


# ------------------------------------------------------------------------------------------ values that belong together

SIZE, WIDTH = ParamName("size"), ParamName("width")
PAIRS = JobSpec(
    command=("train", "{seed}", "{width}"), grid={SEED: (0, 1)}, zip={SIZE: ("small", "big"), WIDTH: (64, 512)}
)
POINTS = JobSpec(command=("train", "{width}"), points=({SIZE: "small", WIDTH: 64}, {WIDTH: 512, SEED: 7}))


def ids(job: JobSpec, **asked: dict[ParamName, Any]) -> list[str]:
    return [run.id for run in expand("j", job, **asked)]


def test_lists_of_zip_are_taken_together_and_times_the_grid() -> None:
    assert ids(PAIRS) == [
        "j-seed0-sizesmall-width64",
        "j-seed0-sizebig-width512",
        "j-seed1-sizesmall-width64",
        "j-seed1-sizebig-width512",
    ]


def test_points_are_the_runs_each_with_its_own_order_of_values() -> None:
    assert ids(POINTS) == ["j-sizesmall-width64", "j-width512-seed7"]
    assert expand("j", POINTS)[1].command == ("train", "512")


def test_set_chooses_among_values_that_belong_together_and_fixes_the_others() -> None:
    assert ids(PAIRS, settings={SIZE: "big", SEED: 5}) == ["j-seed5-sizebig-width512"]
    assert ids(POINTS, settings={WIDTH: 64.0}) == ["j-sizesmall-width64"]
    with pytest.raises(UsageError, match="no point with size=huge") as refused:
        expand("j", PAIRS, settings={SIZE: "huge"})
    assert refused.value.hint == "it has size: big, small"


def test_grid_adds_an_axis_to_points_and_cannot_take_a_value_out_of_its_row() -> None:
    job = JobSpec(command=("train", "{width}", "{lr}"), points=({WIDTH: 64},))
    assert ids(job, grid={LR: (1, 2)}) == ["j-width64-lr1", "j-width64-lr2"]
    with pytest.raises(UsageError, match="width belong together"):
        expand("j", PAIRS, grid={WIDTH: (1, 2)})


def test_more_rows_than_make_sense_are_refused_as_well() -> None:
    many = JobSpec(command=("x",), grid={SEED: tuple(range(200))}, zip={WIDTH: tuple(range(200))})
    with pytest.raises(UsageError, match="40,000"):
        expand("j", many)


# -------------------------------------------------------------------------------------------------------------- slips


def test_a_name_that_nothing_uses_is_a_slip_and_is_refused() -> None:
    with pytest.raises(UsageError, match="no use for 'sed'") as refused:
        expand("gpt", GPT, settings={ParamName("sed"): 1})
    assert refused.value.hint == "did you mean seed?"


def test_a_placeholder_without_a_value_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"\{lr\}"):
        expand("gpt", JobSpec(command=("train", "{lr}")))


def test_a_placeholder_cannot_reach_into_objects() -> None:
    assert expand("j", JobSpec(command=("{0.__class__}", "{a[0]}")))[0].command == ("{0.__class__}", "{a[0]}")


def test_more_runs_than_make_sense_are_refused_before_they_are_made() -> None:
    with pytest.raises(UsageError, match="1,000,000"):
        expand("j", JobSpec(command=("x",), grid={ParamName(c): tuple(range(100)) for c in "abc"}))


def test_the_same_point_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="two points"):
        expand("j", JobSpec(command=("x",), grid={SEED: (1, 1)}))


def test_values_that_look_alike_as_file_names_get_different_ids() -> None:
    assert run_id("j", {"text": "A/b"}) != run_id("j", {"text": "a-b"})
    assert run_id("j", {"x": True}) == "j-xtrue"


@given(
    st.dictionaries(
        st.from_regex(ParamName.pattern, fullmatch=True), st.text() | st.integers() | st.floats(), max_size=6
    )
)
def test_every_id_is_a_safe_file_name(params: dict[str, str | int | float]) -> None:
    assert RunId(run_id("job", params))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("false", False),
        ("1_000", "1_000"),
        ("nan", "nan"),
    ],
)
def test_typed_values_read_as_what_they_look_like(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)
