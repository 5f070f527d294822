"""How long steps took as a line: its shape, its bounds, and a single long step that stays visible."""

from __future__ import annotations

from service.reports import sparkline
from service.reports.instants import span


def test_the_line_has_the_values_shape() -> None:
    """From zero to the longest; nothing where there is nothing to draw."""
    assert sparkline.text([1.0, 8.0, 4.0]) == "▂█▅"
    assert sparkline.text([]) == sparkline.text([0.0, 0.0]) == ""
    assert sparkline.points([1.0, 2.0], 10, 4) == "0.0,2.0 10.0,0.0"
    assert sparkline.points([1.0], 10, 4) == sparkline.points([0.0, 0.0], 10, 4) == ""


def test_one_long_step_of_many_stays() -> None:
    """A line has so many cells; the longest of its part is what a cell shows."""
    values = [1.0] * 1_000
    values[503] = 9.0

    line = sparkline.text(values)

    assert len(line) == sparkline.CELLS
    assert line.count("█") == 1


def test_a_span_has_its_largest_unit() -> None:
    """Seconds, minutes, hours and days; never negative."""
    assert [span(seconds) for seconds in (-1, 95.9, 120, 7_199, 7_200, 172_800)] == [
        "0 s", "95 s", "2 min", "119 min", "2 h", "2 d"
    ]  # fmt: skip
