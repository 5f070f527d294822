"""The short label of a program's own with which its ranks begin their lines: ``[r2] ``, ``r2: ``, ``rank2: ``.

One line shows nothing: ``[r2]`` may be a replica, a request or a reference. The labels of a log are ranks where most lines have
one, all in one shape, where they are a world's numbers, 0 to the highest, several lines each, and where no line contradicts that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SHARE = 0.6  # of the lines
LINES_EACH = 2  # on average: a table has one row a rank

_SHAPES = (
    r"\[r(\d{1,5})\]:?[ \t]", r"\(r(\d{1,5})\):?[ \t]", r"<r(\d{1,5})>:?[ \t]", r"r(\d{1,5}) ?[:|][ \t]",
    r"[Rr]ank[ _-]?(\d{1,5}) ?[:|][ \t]",
)  # fmt: skip
_EACH = tuple(re.compile(shape) for shape in _SHAPES)
LABEL = re.compile("|".join(_SHAPES))
_OTHER = re.compile(r"(?i)\b(?:global[ _-]?)?rank[ :=_-]{0,2}(\d{1,7})\b")
_WORLD = re.compile(r"(?i)\b(?:world[ _-]?size|nranks|nproc|num_processes)\b\W{0,3}(\d{1,7})")
_OF_OTHERS = re.compile(r"(?i)\breplicas?\b|\brequests?\b|\bregions?\b")
"""What else is numbered so."""


def are_ranks(lines: Sequence[str]) -> bool:
    """Return whether the labels of these lines are the ranks of one job."""
    shape = next((each for each in _EACH if any(map(each.match, lines))), None)
    found = [(label, line) for line in lines if shape is not None and (label := shape.match(line))]
    numbers = {int(label[1]) for label, _ in found}
    if len(found) < SHARE * len(lines) or len(numbers) < 2 or numbers != set(range(len(numbers))):
        return False
    if len(found) < LINES_EACH * len(numbers) or any(map(_OF_OTHERS.search, lines)):
        return False
    if any(int(size) != len(numbers) for line in lines for size in _WORLD.findall(line)):
        return False
    return all(int(rank) == int(label[1]) for label, line in found for rank in _OTHER.findall(line[label.end() :]))


def rank_of(label: re.Match[str]) -> str:
    """Return the number of a label."""
    return next(number for number in label.groups() if number is not None)
