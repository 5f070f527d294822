"""Bounds in time: `make bench` asserts them on a quiet machine; on a busy one a test proves only that nothing waits for ever."""

from __future__ import annotations

import os

ENFORCED = os.environ.get("FAULTHOUND_BOUNDS") == "1"
LOADED_TIMES, LOADED_LEAST_SECONDS = 10.0, 45.0


def in_time(took_seconds: float, bound_seconds: float) -> bool:
    """Return whether something took less than its bound, or, where bounds are not enforced, less than a loaded machine's.

    conftest.py marks every test that calls this as ``bound``: `make bench` runs those one at a time.
    """
    return took_seconds < (bound_seconds if ENFORCED else max(LOADED_LEAST_SECONDS, LOADED_TIMES * bound_seconds))
