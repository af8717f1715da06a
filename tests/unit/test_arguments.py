"""Options that may stand anywhere, and pairs typed on the command line."""

from __future__ import annotations

import pytest

from tpufleet.cli.arguments import axes, environment, hoisted, settings
from tpufleet.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("status --json", "--json status"),
        ("create --dry-run -q", "-q create --dry-run"),
        ("run gpt --config other.yaml --set a=b", "--config other.yaml run gpt --set a=b"),
        ("status --config=x.yaml", "--config=x.yaml status"),
        ("--json exec -- ls --json -q", "--json exec -- ls --json -q"),
        ("exec --json -- ls --json -q", "--json exec -- ls --json -q"),
        ("exec bash -c ls", "exec bash -c ls"),
        ("status --config", "--config status"),
    ],
)
def test_global_options_work_wherever_they_stand_but_not_behind_the_dashes(typed: str, meant: str) -> None:
    assert hoisted(typed.split()) == meant.split()


def test_values_are_typed_and_axes_are_split() -> None:
    assert settings(["lr=0.01", "name=x"]) == {"lr": 0.01, "name": "x"}
    assert axes(["seed=0,1", "lr=1e-3"]) == {"seed": (0, 1), "lr": (0.001,)}
    assert environment(["A=1=2"]) == {"A": "1=2"}


def test_a_name_given_twice_and_an_empty_value_are_slips() -> None:
    with pytest.raises(UsageError, match="twice"):
        settings(["lr=1", "lr=2"])
    with pytest.raises(UsageError, match="empty"):
        axes(["lr=1,,2"])


@pytest.mark.parametrize("pair", ["lr", "lr=", "=1", "l-r=1", "lr=\0"])
def test_a_pair_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(UsageError):
        settings([pair])
