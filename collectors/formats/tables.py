"""Tables that a reporter wrote of runs, ranks or nodes: each cell is read as a line of its own.

A table that says what errors mean, or what to do about them, reports nothing: its heading shows which it is.
"""

from __future__ import annotations

import re

_ROW = re.compile(r"\s{0,4}\|.{1,4000}\|\s*$")
_RULE = re.compile(r"\s{0,4}\|(?:\s{0,40}:?-{2,200}:?\s{0,40}\|){1,40}\s*$")
_REPORTS = re.compile(
    r"(?i)\b(?:nodes?|hosts?|ranks?|gpus?|runs?|attempts?|jobs?|trials?|pods?|workers?|config(?:uration)?s?|settings?|setup|steps?|"
    r"dates?|times?|outcomes?|results?|status|batch|sizes?|versions?|builds?|dir|folder|seconds)\b"
)
_EXPLAINS = re.compile(
    r"(?i)\b(?:mean(?:s|ing)?|causes?|reasons?|fix(?:es)?|solutions?|actions?|remed(?:y|ies)|descriptions?|explanations?|why|how|"
    r"classes|class|severity|recommend\w*|advice|handl\w+|docs?|examples?|rules?|expected|tests?|patterns?|kinds?|formats?|gives|words?|"
    r"reads?|checks?|detect\w*|signals?|symptoms?)\b"
)
_MARKS = "`*_ "


def cells_of(head: str) -> dict[int, list[str]]:
    """Return the cells of each row of such tables, by the row's line, counted from 1."""
    found: dict[int, list[str]] = {}
    heading, reports = "", False
    for number, line in enumerate(head.splitlines(), 1):
        if not _ROW.match(line):
            heading, reports = "", False
        elif _RULE.match(line):
            reports = _REPORTS.search(heading) is not None and _EXPLAINS.search(heading) is None
        elif reports:
            found[number] = [cell.strip(_MARKS) for cell in line.strip().strip("|").split("|")]
        else:
            heading = line
    return found
