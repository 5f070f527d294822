"""The wall clock of the service: the one place that reads it."""

from __future__ import annotations

import time


def now() -> float:
    """Return UTC seconds since 1970."""
    return time.time()
