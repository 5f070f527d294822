"""Shifts the wall clock of a Python process by what a file says: eight bytes, a little-endian double, seconds.

Its folder goes on PYTHONPATH, and ``FAULTHOUND_TEST_CLOCK`` names the file. Only ``time.time`` is shifted, as a time server or an
operator shifts the wall clock; monotonic time and boot time go on.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

if _named := os.environ.get("FAULTHOUND_TEST_CLOCK"):
    with open(_named, "rb") as _file:  # noqa: PTH123 before anything else is imported
        _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _real = time.time

    def _shifted() -> float:
        return _real() + float(struct.unpack_from("<d", _shift)[0])

    time.time = _shifted
