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


class Mcelog:
    """The report that is being printed; each gives one severity, by its words or by its status register."""

    def __init__(self) -> None:
        self._left = 0

    @property
    def busy(self) -> bool:
        """True inside a report whose severity no line has given yet."""
        return self._left > 0

    def feed(self, line: str) -> str:
        """Return the severity of the report, with the first line that gives it; else nothing."""
        if line.startswith(HEADINGS):
            self._left = REPORT_LINES
            return ""
        if not self._left:
            return ""
        self._left -= 1
        severity = _WORDS.get(line.strip(), "")
        if not severity and (found := _STATUS.match(line)):
            severity = "uncorrected" if int(found["status"], 16) >> UNCORRECTED_BIT & 1 else "corrected"
        if severity:
            self._left = 0
        return severity
