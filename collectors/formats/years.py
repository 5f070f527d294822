"""Which year a stamp without one is of: that of the stamps beside it, and where none of them has a year, of the file's time.

glog and syslog write no year, and a copied file's time is that of its copy.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.job_lines import STAMP_WITHIN, instant
from collectors.formats.kernel_log.kernel_times import DMESG_WALL, split

DAY_SECONDS = 86_400.0
LATER_SECONDS = 60 * DAY_SECONDS
"""What has no year may be so much later than what is beside it; if it were more, it is of the year before."""
EARLIEST_AT = 946_684_800.0  # the year 2000
_DATE = re.compile(r"\d{4}[-/]|\d\d/\d\d/")
_OF_A_SENTENCE = re.compile(r"\b(?!(?:time|timestamp|date|asctime|rank)\b)[A-Z]?[a-z]{3,}[\s:]")
"""Before a date: a word that shows that the line speaks of that date, as of a build."""


def stamped_at(head: bytes, written_at: float | None) -> float | None:
    """Return the newest instant with a year that lines of a text's head begin with; none is later than the file."""
    latest = None if written_at is None or written_at < EARLIEST_AT else written_at + DAY_SECONDS
    found = (_stamp(line) for line in head.decode(errors="replace").splitlines())
    known = (at for at in found if at is not None and at >= EARLIEST_AT and (latest is None or at <= latest))
    return max(known, default=None)


def latest_at(beside_at: float | None, written_at: float | None) -> float | None:
    """Return the latest instant that stamps without a year may be of. ``beside_at``: a stamp with a year, beside them."""
    if beside_at is None:
        return written_at
    if written_at is None or written_at + DAY_SECONDS < beside_at:
        return beside_at + LATER_SECONDS
    return min(written_at, beside_at + LATER_SECONDS)


def _stamp(line: str) -> float | None:
    text = line[:STAMP_WITHIN]
    if ":" not in text:
        return None
    if text.startswith("[") and DMESG_WALL.match(text):
        return split(text).at
    at = instant(text)
    before = _DATE.split(text, maxsplit=1)[0]
    return None if at is None or _OF_A_SENTENCE.search(before) else at
