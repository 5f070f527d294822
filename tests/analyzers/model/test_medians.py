"""Medians and spreads of few values, held against numpy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.model.medians import DEVIATION_BY_MEDIAN, median, spread


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_it_is_numpys_median(values: list[float]) -> None:
    """Held against numpy on drawn values, of even and of odd number."""
    assert median(np.array(values)) == np.median(values)


@given(st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")), max_size=40))
def test_a_spread_is_of_what_is_known(values: list[float]) -> None:
    """What is no number counts for nothing; without any value there is no spread."""
    known = np.array([one for one in values if np.isfinite(one)])
    wanted = DEVIATION_BY_MEDIAN * np.median(np.abs(known - np.median(known))) if len(known) else 0.0
    assert spread(np.array(values)) == wanted
