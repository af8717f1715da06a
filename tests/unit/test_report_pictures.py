"""Axes, curves, marks and the words on the page: pure functions."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from tpufleet.report import html, text
from tpufleet.report.curves import Curve, CurveReader, spread, thin
from tpufleet.report.marks import MOST, colour_class, shape
from tpufleet.report.scale import Scale, span_of, steps_of, tick_label
from tpufleet.report.svg import Series, chart, outside

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


def curve_of(*points: tuple[float, float]) -> Curve:
    reader = CurveReader(100)
    for step, value in points:
        reader.add(step, value)
    return reader.curve()


def test_thinning_keeps_the_ends_and_the_spike() -> None:
    points = [(float(i), 1.0) for i in range(10_000)]
    points[5_123] = (5_123.0, 99.0)
    kept = thin(points, 100)
    assert len(kept) <= 100
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert (5_123.0, 99.0) in kept
    assert kept == sorted(kept)


def test_a_very_long_curve_stays_small_while_it_is_read_and_keeps_its_lowest_point() -> None:
    reader = CurveReader(50)
    for step in range(30_000):
        reader.add(step, -7.0 if step == 12_345 else math.sin(step))
    assert len(reader.points) < 8_000
    assert len(reader.curve().points) <= 50
    assert reader.curve().lowest == (12_345, -7.0)


@given(st.lists(st.tuples(FINITE, FINITE), max_size=60), st.integers(4, 40))
def test_thinning_never_exceeds_its_limit_and_invents_nothing(points: list[tuple[float, float]], limit: int) -> None:
    ascending = sorted(dict(points).items())
    kept = thin(ascending, limit)
    assert len(kept) <= max(limit, 0) or len(ascending) <= limit
    assert set(kept) <= set(ascending)


@given(st.integers(0, 500), st.integers(2, 50))
def test_spread_indexes_hold_the_first_and_the_last(amount: int, limit: int) -> None:
    chosen = list(spread(amount, limit))
    assert len(chosen) == min(amount, limit)
    if chosen:
        assert (chosen[0], chosen[-1]) == (0, amount - 1)


def test_ticks_are_round_and_inside_the_axis() -> None:
    assert Scale(1.6, 4.2).ticks(5) == [2.0, 3.0, 4.0]
    assert Scale(0, 2000).ticks(5) == [0.0, 500.0, 1000.0, 1500.0, 2000.0]
    assert [tick_label(t) for t in (0, 0.5, 1000, 50_000, 1_500_000, 1e-5)] == [
        "0",
        "0.5",
        "1,000",
        "50k",
        "1.5M",
        "1e-05",
    ]


def test_values_over_orders_of_magnitude_get_a_logarithmic_axis() -> None:
    axis = span_of([0.01, 0.5, 6.0])
    assert axis.log
    assert axis.ticks(5) == pytest.approx([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5])


def test_one_diverged_value_does_not_press_the_others_flat() -> None:
    assert span_of([2 + i / 100 for i in range(100)] + [1e30]).high < 10


@given(st.lists(FINITE, min_size=1, max_size=40))
def test_any_finite_values_have_an_axis_with_their_lowest_on_it(values: list[float]) -> None:
    axis = span_of(values)
    assert axis.low < axis.high
    assert -1e-9 <= axis.at(min(values)) <= 1 + 1e-9
    assert all(math.isfinite(tick) for tick in axis.ticks(5))
    steps = steps_of(values)
    assert steps.low < steps.high or steps.high == steps.low + 1


def test_every_run_of_a_full_picture_has_its_own_mark() -> None:
    marks = {(colour_class(i), shape(i)) for i in range(MOST)}
    assert len(marks) == MOST


def test_labels_beside_curves_never_overlap_and_stay_in_order() -> None:
    series = [Series(f"run-{i}", curve_of((0, 3), (100, 2 + i / 1000)), i) for i in range(MOST)]
    markup = html.fragment(chart("test_loss", series, labels=True))
    heights = [float(part.split('y="')[1].split("%")[0]) for part in markup.split('<text x="41"')[1:]]
    ordered = sorted(heights)
    assert len(heights) == MOST
    assert ordered == heights[::-1]
    assert all(later - earlier > 5 for earlier, later in itertools.pairwise(ordered))


def test_pointing_at_a_curve_tells_its_run_and_values() -> None:
    series = [Series("gpt-seed0", curve_of((0, 3), (100, 1.79), (200, 1.85)), 0)]
    markup = html.fragment(chart("test_loss", series, labels=False))
    assert "<title>gpt-seed0: test_loss 1.850 at step 200, lowest 1.790 at step 100</title>" in markup


def test_the_loss_of_the_untrained_model_does_not_take_half_of_the_picture() -> None:
    falling = [(float(step), 2.5 - step / 1000) for step in range(100, 800, 100)]
    series = [Series("a", curve_of((0, 5.835), *falling), 0), Series("b", curve_of((0, 5.8), *falling), 1)]
    assert outside(series) == "Values up to 5.835 lie above the picture."
    assert ">2.2</text>" in html.fragment(chart("test_loss", series, labels=True))
    assert outside([Series("a", curve_of(*falling), 0)]) is None


def test_a_picture_without_a_finite_point_is_a_sentence() -> None:
    markup = html.fragment(chart("loss", [Series("a", curve_of((1, math.nan)), 0)], labels=True))
    assert markup == '<p class="quiet">No finite value of loss came home.</p>'


def test_numbers_are_written_for_people() -> None:
    values = (1.787, 23.412, 1280.0, 0.0003, math.nan, -2.5, 3e9, 0.0, math.inf)
    words = ["1.787", "23.41", "1,280", "3.00e−04", "NaN", "−2.500", "3.00e+09", "0", "∞"]
    assert [text.number(v) for v in values] == words
    assert text.measured(2.0) == "2.000"
    assert [text.size(n) for n in (812, 1_400_000, 999_999, 5 * 10**13)] == ["812 B", "1.4 MB", "1.0 MB", "50.0 TB"]
    spans = [text.duration(timedelta(seconds=s)) for s in (48, 242, 12_000, 187_200)]
    assert spans == ["48 s", "4 min 02 s", "3 h 20 min", "2 d 4 h"]


def test_long_names_keep_both_ends() -> None:
    assert text.shorten("gpt-" + "x" * 40 + "-seed3", 16) == "gpt-xxx…xx-seed3"


@given(st.text(alphabet=st.characters(), max_size=50))
def test_cleaned_text_can_be_written_and_holds_no_control_characters(dirty: str) -> None:
    cleaned = text.clean(dirty)
    cleaned.encode("utf-8")
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in cleaned)


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [("script", {}), ("iframe", {}), ("a", {"href": "https://example.org"}), ("a", {"href": "javascript:x"}),
     ("p", {"onclick": "x"}), ("p", {"style": "x"}), ("p><script", {})],
)  # fmt: skip
def test_markup_that_could_run_or_lead_away_cannot_be_built(tag: str, attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="in a report"):
        html.el(tag, **attributes)


def test_texts_and_attribute_values_are_escaped() -> None:
    element = html.el("p", '<b>&"', title="\"'><x>")
    assert html.fragment(element) == '<p title="&quot;&#x27;&gt;&lt;x&gt;">&lt;b&gt;&amp;"</p>'
