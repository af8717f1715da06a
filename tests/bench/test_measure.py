"""The arithmetic of the benchmarks; their times themselves are never tested."""

from __future__ import annotations

from tests.bench.measure import Row, Skipped, in_turn, ratios, table
from tests.bench.rig import where_possible


def test_works_take_turns_so_that_a_slow_moment_falls_on_all_of_them() -> None:
    order: list[str] = []

    def work(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    measured = in_turn(2, {"a": lambda: work("a", 3.0), "b": lambda: work("b", 2.0)})
    assert order == ["a", "b", "a", "b"]
    assert measured == {"a": [3.0, 3.0], "b": [2.0, 2.0]}


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_the_table_shows_the_median_and_the_spread() -> None:
    last = table([Row("exec, 20 hosts", "a loop", [0.5, 0.7, 4.0])]).splitlines()[-1]
    assert [cell.strip() for cell in last.strip("|").split("|")] == [
        "exec, 20 hosts",
        "a loop",
        "0.70",
        "0.50–4.00",
        "3",
    ]


def test_a_benchmark_whose_peer_is_missing_says_so_and_is_not_run() -> None:
    def measure() -> list[Row]:
        raise AssertionError("it was run")

    assert where_possible("copies", ["no-such-program"], measure) == [
        Skipped("copies", "no-such-program is not installed")
    ]
    assert where_possible("copies", [], list) == []
