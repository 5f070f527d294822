"""Where something of several lines begins that the newest lines of a log may not hold whole."""

from __future__ import annotations

HELD_BYTES = 1 << 16  # what begins before the last so many bytes is whole
TRACEBACKS = (b"Traceback (most recent call last):", b"Root Cause (first observed failure)", b"Failures:")
REPORTS = (
    b"MnRtt/Rnk", b"Etpt(TF)", b"STRAGGLER", b" performance:", b" performing ", b"Score=", b"perf scores: {",
    b"straggler_det_callback",
)  # fmt: skip
"""Lines of reports of stragglers."""
END = b"Straggler report processing time"


def unfinished(data: bytes, *, held_before: bool) -> int | None:
    """Return where the line begins from which something may go on, None where all is whole.

    ``held_before``: what begins with the first line has waited once.
    """
    earliest = max(0, len(data) - HELD_BYTES)
    begin = max(earliest, data.find(b"\n") + 1 if held_before else 0)
    found = [offset for mark in TRACEBACKS if (offset := data.find(mark, begin)) >= 0]
    report = _report(data, earliest)
    if report is not None and not (held_before and report == 0):
        found.append(report)
    return data.rfind(b"\n", 0, min(found)) + 1 if found else None


def _report(data: bytes, begin: int) -> int | None:
    """Return where the report begins that the last lines are of. One that other lines follow is whole."""
    found, end = None, len(data)
    while end > begin:
        start = max(begin, data.rfind(b"\n", begin, end - 1) + 1)
        line = data[start:end]
        is_of_report = END not in line and any(mark in line for mark in REPORTS)
        if line.strip() and not is_of_report:
            break
        found = start if is_of_report else found
        end = start
    return found
