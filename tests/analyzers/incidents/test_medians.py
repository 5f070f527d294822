import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.incidents.job_views.medians import median


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_it_is_numpys_median(values: list[float]) -> None:
    """Held against numpy on drawn values, of even and of odd number."""
    assert median(np.array(values)) == np.median(values)
