"""Progress bars as tqdm writes them, by their descriptions: which may be the training's.

A bar may be where it has no description, or one of training: data sets, downloads, shards and evaluations have another.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TEXT_BYTES = 4096  # of the end of new lines, in which the newest bar is looked for
LARGEST = 1 << 53
_BAR = re.compile(
    rb"(?:^|[\r\n])(?P<of>[^\r\n|%]{0,80}?)[ ]{0,3}\d{1,3}%\|[^\r\n|]{0,400}\| {0,20}(?P<done>\d{1,15})/(?P<total>\d{1,15}) "
    rb"\[[\d:]{1,12}<[\d:?]{1,12}, {1,4}[\d.?]{1,12}(?:it/s|s/it)"
)
_OF_TRAINING = re.compile(r"\b(?:train\w*|epochs?|steps?|iter(?:ation)?s?)\b", re.IGNORECASE)
_OF_OTHERS = re.compile(
    r"\b(?:val\w*|eval\w*|test\w*|sanity|predict\w*|infer\w*|load\w*|map|filter\w*|token\w*|download\w*|fetch\w*|shards?|split"
    r"|datasets?|pack\w*|pre\w{0,3}process\w*|process\w*|generat\w*|extract\w*|sav\w*|cach\w*|sampl\w*)\b",
    re.IGNORECASE,
)


class Shown(NamedTuple):
    """What a bar shows: whose it is, its count, and its total."""

    of: str
    done: int
    total: int


def shown_in(data: bytes) -> list[Shown]:
    """Return the bars in the end of new lines, the newest of each, of which none is known to be another's than the training's."""
    found: dict[tuple[str, int], Shown] = {}
    for bar in _BAR.finditer(data[-TEXT_BYTES:]):
        of = re.sub(r"\d+", "0", bar["of"].decode(errors="replace")).strip(" :\x1b[A")
        done, total = int(bar["done"]), int(bar["total"])
        if 0 <= done <= total < LARGEST and not is_of_others(of) and (not of or is_of_training(of)):
            found.pop((of, total), None)
            found[of, total] = Shown(of, done, total)
    return list(found.values())


def is_of_training(of: str) -> bool:
    """Whether a bar's description is one of training."""
    return _OF_TRAINING.search(of) is not None


def is_of_others(of: str) -> bool:
    """Whether a bar's description is one of something else: data sets, downloads, evaluations."""
    return _OF_OTHERS.search(of) is not None
