"""Tables of two columns whose text goes over several rows, as ``dcgmi`` prints them: ``| name | text |``, ``|      | more |``.

A row that was filled to its end goes on in the next, which is joined to it. Any other row without a name is of the name above it.
"""

from __future__ import annotations

import re

_ROW = re.compile(rb"^\| (?P<name>[^|]{8,60})\| (?P<text>[^|]{16,160})\|\s*$")
CONTINUED = b"\n|     "
"""Begins a row without a name; a text without it has no such table."""
_MARGIN = 2  # blanks before the bar that the program leaves of a row which it fills
_WORD_ENDS = 12  # blanks before the bar beyond which a row was not filled


def joined(lines: list[bytes]) -> list[bytes]:
    """Return the lines with each text in its first row; rows that it went on in are empty, so that lines keep their numbers."""
    rows = list(lines)
    head, name, full = -1, b"", False
    for at, line in enumerate(lines):
        found = _ROW.match(line) if line.startswith(b"| ") else None
        if found is None:
            head = -1
            continue
        text, blanks = found["text"], len(found["text"]) - len(found["text"].rstrip())
        if found["name"].strip():
            head, name = at, found["name"]
        elif head >= 0 and full:
            rows[head], rows[at] = rows[head] + text.rstrip() + (b" " if _MARGIN < blanks <= _WORD_ENDS else b""), b""
            full = blanks <= _WORD_ENDS
            continue
        elif head >= 0:
            head = at
        else:
            continue
        full = blanks <= _WORD_ENDS
        rows[head] = b"| " + name + b"| " + text.rstrip() + (b" " if _MARGIN < blanks <= _WORD_ENDS else b"")
    return [row + b" |" if row.startswith(b"| ") and row is not lines[at] else row for at, row in enumerate(rows)]
