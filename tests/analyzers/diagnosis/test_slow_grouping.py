"""Array functions of the slow analyzer, held against plain ones."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.diagnosis.slow.grouping import combined, grouped_median, numbered, row_median, runs
from analyzers.diagnosis.slow.levels import rise

VALUES = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(st.integers(0, 6), VALUES), max_size=60))
def test_medians_of_groups_are_those_of_each_group(rows: list[tuple[int, float]]) -> None:
    """Groups in any order, of any size, some without a value."""
    groups, values = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows])
    found = grouped_median(values, groups, 8)
    for group in range(8):
        mine = values[groups == group]
        assert np.isnan(found[group]) if not len(mine) else found[group] == np.median(mine)


@given(st.lists(st.lists(st.none() | VALUES, min_size=3, max_size=3), min_size=1, max_size=9))
def test_medians_of_rows_leave_out_what_is_unknown(rows: list[list[float | None]]) -> None:
    """A row may be known in all, some or none of its places."""
    known = np.array([[one is not None for one in row] for row in rows])
    values = np.array([[one if one is not None else np.nan for one in row] for row in rows])
    for row, found in zip(rows, row_median(values, known), strict=True):
        mine = [one for one in row if one is not None]
        assert found == np.median(mine) if mine else np.isnan(found)


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62 - 1), max_size=40))
def test_distinct_values_are_numbered_as_by_numpy(values: list[int]) -> None:
    """Values that lie close together, and values far apart."""
    array = np.array(values, np.int64)
    for found, wanted in zip(numbered(array), np.unique(array, return_inverse=True), strict=True):
        assert found.tolist() == wanted.tolist()


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 10**9), st.integers(0, 2)), min_size=1, max_size=40))
def test_combinations_are_numbered_in_the_order_of_their_columns(rows: list[tuple[int, int, int]]) -> None:
    """As the distinct rows of a matrix are."""
    matrix = np.array(rows, np.int64)
    assert combined(*matrix.T).tolist() == np.unique(matrix, axis=0, return_inverse=True)[1].ravel().tolist()


@given(st.lists(VALUES, min_size=2, max_size=30), st.data())
def test_a_rise_is_the_difference_of_two_medians(series: list[float], data: st.DataObject) -> None:
    """Before and after a place, and the spread of what is left about them."""
    at = data.draw(st.integers(1, len(series) - 1))
    before, after = np.array(series[:at]), np.array(series[at:])
    size, noise = rise(np.array(series), at)
    rest = np.concatenate([before - np.median(before), after - np.median(after)])
    assert size == np.median(after) - np.median(before)
    assert np.isclose(noise, 1.4826 * np.median(np.abs(rest - np.median(rest))))


@given(st.lists(st.integers(0, 2), max_size=40))
def test_runs_are_of_equal_neighbours(values: list[int]) -> None:
    """Where each begins, and how long it is."""
    wanted = [(key, len(list(run))) for key, run in groupby(values)]
    begins, lengths = runs(np.array(values, np.int64))
    assert [(values[begin], length) for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)] == wanted
    assert begins.tolist() == [sum(length for _, length in wanted[:number]) for number in range(len(wanted))]
