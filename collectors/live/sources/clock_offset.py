"""The offset of the node's clock: by chronyd where it runs, and by the kernel (adjtimex)."""

from __future__ import annotations

import ctypes
import shutil

from collectors.files import programs
from collectors.live.sources.reporting import Number

CHRONY_SECONDS = 2.0  # chronyc answers from memory
UNSYNCHRONISED = 0x0040  # STA_UNSYNC
NANOSECONDS = 0x2000  # STA_NANO
CLOCK_ERROR = 5  # TIME_ERROR, the state that adjtimex returns


class _Timex(ctypes.Structure):
    """struct timex of linux/timex.h, as far as it is read; ``rest`` is room for what follows."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),  # ppm, times 65,536
        ("maximum_error", ctypes.c_long),  # microseconds, here and below
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    ]


def by_kernel() -> dict[str, Number | None]:
    """Return the kernel's state of its clock; raise OSError where it gives none.

    ``synchronised`` is 0 where no program disciplines the clock, or has not for long: the offset then means nothing.
    """
    timex = _Timex()  # modes 0: read only
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), "adjtimex gives no state of the clock")
    disciplined = not timex.status & UNSYNCHRONISED and state != CLOCK_ERROR
    return {
        "synchronised": float(disciplined),
        "offset_seconds": timex.offset / (1e9 if timex.status & NANOSECONDS else 1e6),
        "estimated_error_seconds": timex.estimated_error / 1e6,
        "maximum_error_seconds": timex.maximum_error / 1e6,
        "frequency_ppm": timex.frequency / 65536,
    }


def by_chrony(program: str) -> dict[str, Number | None]:
    """Return chronyd's state, empty where it does not run or answer.

    chronyc(1), ``-c tracking``: reference, its name, stratum, time, offset, last offset, RMS offset, frequency, residual
    frequency, skew, root delay, root dispersion, update interval, leap status. The offset is chronyc's "System time" with
    the sign of its csv form: the correction that remains.
    """
    found = shutil.which(program)
    if found is None:
        return {}
    try:
        output = programs.run([found, "-c", "-n", "tracking"], CHRONY_SECONDS, max_output_bytes=4096).output
        words = output.decode(errors="replace").strip().split(",")
        offset, delay, dispersion = float(words[4]), float(words[10]), float(words[11])
    except (OSError, ValueError, IndexError):
        return {}
    synchronised = float("not synchronised" not in words[-1].lower() and words[2] != "0")
    return {
        "chrony_synchronised": synchronised,
        "chrony_correction_seconds": offset,
        "chrony_root_error_seconds": dispersion + delay / 2,
        "chrony_stratum": float(words[2]) if words[2].isdigit() else None,
    }
