"""Several lines in one: their ends are escaped (JSON, a ``repr``, Kubernetes), or they are filled up to a terminal's width."""

from __future__ import annotations

import re

from collectors.formats.job_log.tracebacks import HEADER

MAX_LINES = 400
_END = re.compile(r"\\{1,3}n")
_SIGNS = re.compile(r"\\{1,3}([\"'/])")
_CLOSES = re.compile(r"(?:\\n|[\"'}\]),\s]){1,12}$")
_BLANKS = " " * 16
_FILLED = re.compile(  # so many blanks and then what a line of its own begins with
    r"(?<! ) {16,2000}(?=File \"|\d{4}-\d\d-\d\d[ T]\d\d:|(?:[A-Za-z_]\w{0,60}\.){1,8}[A-Z]\w{0,60}(?:Error|Exception)\b)"
)


def lines_of(text: str) -> list[str]:
    """Return the lines that stand in one; an empty one ends an escaped traceback. Any other text is its one line."""
    at = text.find(HEADER)
    if at >= 0 and "\\n" in text[at:]:
        parts = _END.split(_CLOSES.sub("", text[at:]))[:MAX_LINES]
        return [*(_SIGNS.sub(r"\1", part) for part in parts), ""]
    return _FILLED.split(text)[:MAX_LINES] if _BLANKS in text else [text]
