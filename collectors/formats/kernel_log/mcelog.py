"""Reports of mcelog, which decodes a machine check into lines of words: a heading, its banks, what the error was.

Formats: mcelog 1.0 to 204 (``mcelog.c``, ``intel.c``), of which older versions wrote another heading.
"""

from __future__ import annotations

import re

HEADINGS = ("Hardware event. This is not a software error.", "HARDWARE ERROR. This is *NOT* a software problem!")
REPORT_LINES = 40
_STATUS = re.compile(r"STATUS (?P<status>[0-9a-f]{8,16})\b")
UNCORRECTED_BIT = 61  # of IA32_MCi_STATUS
_WORDS = {
    "Uncorrected error": "uncorrected",
    "Processor context corrupt": "uncorrected",
    "Corrected error": "corrected",
}


def severity(line: str, left: int) -> tuple[str, int]:
    """Return the severity of a report, with the first line that gives it, else ""; and how many further lines it may have.

    ``left``: the number that the line before gave, 0 outside of a report.
    """
    if line.startswith(HEADINGS):
        return "", REPORT_LINES
    if not left:
        return "", 0
    said = _WORDS.get(line.strip(), "")
    if not said and (found := _STATUS.match(line)):
        said = "uncorrected" if int(found["status"], 16) >> UNCORRECTED_BIT & 1 else "corrected"
    return said, 0 if said else left - 1
