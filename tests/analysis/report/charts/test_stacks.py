"""Tests stacked shares: what is drawn has the heights of the data, and a missing day stays empty."""

import datetime as dt

import pytest

from analysis.report.charts.marks import DatedEvent
from analysis.report.charts.stacks import HEIGHT_PX, Layer, Period, slabs, stack_panel
from tests.analysis.report.charts import drawings

LAYERS = [
    Layer(key="a", label="Alpha", colour="var(--pool-1)"),
    Layer(key="b", label="Beta", colour="var(--pool-2)"),
    Layer(key="unknown", label="unknown", colour="var(--unknown)", is_hatched=True),
]
FIRST = dt.date(2026, 3, 2)


def period(day: int, alpha: float, beta: float, *, is_complete: bool = True) -> Period:
    """Return the shares of one day; the rest is unknown."""
    start = FIRST + dt.timedelta(days=day)
    ratios = {"a": alpha, "b": beta, "unknown": 1 - alpha - beta}
    return Period(
        from_day=start,
        to_day=start + dt.timedelta(days=1),
        ratios=ratios,
        words=f"{start}: Alpha {alpha}",
        is_complete=is_complete,
    )


def test_layers_fill_the_whole_height_in_their_order() -> None:
    """The first layer lies at the top, each next one below it, and the last ends at 0."""
    found = slabs(LAYERS, period(0, 0.5, 0.3))

    assert [slab.key for slab in found] == ["a", "b", "unknown"]
    assert [slab.high for slab in found] == pytest.approx([1, 0.5, 0.2])
    assert [slab.low for slab in found] == pytest.approx([0.5, 0.2, 0], abs=1e-12)


def test_a_layer_is_as_high_as_its_share() -> None:
    """The steps of each layer are its shares times the height of the plot, in the width of their days."""
    panel = stack_panel("s", "t", LAYERS, [period(0, 0.5, 0.3), period(1, 0.25, 0.5)])

    (alpha,) = drawings.elements(panel.wide, "path", fill="var(--pool-1)")
    (beta,) = drawings.elements(panel.wide, "path", fill="var(--pool-2)")
    assert {y / HEIGHT_PX for _, y in drawings.corners(alpha)} == {0, 0.5, 0.25}
    assert {y / HEIGHT_PX for _, y in drawings.corners(beta)} == {0.5, 0.8, 0.25, 0.75}
    width = max(x for x, _ in drawings.corners(alpha))
    assert {x for x, _ in drawings.corners(alpha)} == {0, width / 2, width}


def test_a_missing_day_stays_empty() -> None:
    """No layer reaches into a day without blocks: the area ends there and begins again."""
    panel = stack_panel("s", "t", LAYERS, [period(0, 0.5, 0.3), period(2, 0.5, 0.3)])

    (alpha,) = drawings.elements(panel.wide, "path", fill="var(--pool-1)")
    pieces = alpha.attrib["d"].count("M")
    width = max(x for x, _ in drawings.corners(alpha))
    assert pieces == 2
    assert not [x for x, _ in drawings.corners(alpha) if width / 3 + 1 < x < 2 * width / 3 - 1]


def test_a_period_that_is_there_only_in_part_has_a_dashed_frame() -> None:
    """One frame is drawn for each incomplete period, over its own width."""
    periods = [period(0, 0.5, 0.3, is_complete=False), period(1, 0.5, 0.3)]
    panel = stack_panel("s", "t", LAYERS, periods)

    assert len(list(drawings.elements(panel.wide, "path", stroke_dasharray="3,3"))) == 1


def test_unknown_blocks_are_hatched_and_not_only_coloured() -> None:
    """The layer of unknown blocks refers to a pattern of the same drawing."""
    panel = stack_panel("s", "t", LAYERS, [period(0, 0.5, 0.3), period(1, 0.5, 0.3)])

    (pattern,) = drawings.elements(panel.wide, "pattern")
    assert len(list(drawings.elements(panel.wide, "path", fill=f"url(#{pattern.attrib['id']})"))) == 1
    assert pattern.attrib["id"].startswith("s-wide-")


def test_each_period_shows_its_values_to_a_pointer() -> None:
    """The words of every period can be read with a pointer, and those of an event too."""
    periods = [period(0, 0.5, 0.3), period(1, 0.25, 0.5)]
    event = DatedEvent(x=FIRST + dt.timedelta(days=1), label="H", words="halving, block 840,000")
    panel = stack_panel("s", "t", LAYERS, periods, events=[event])

    shown = drawings.values_shown(panel.wide)
    assert [words for words in shown if "Alpha" in words] == [one.words for one in periods]
    assert "halving, block 840,000" in shown
    assert "H" in drawings.texts(panel.wide)
