"""What a test reads in a sentence: its numbers. The words are for people, and golden renderings hold them."""

from __future__ import annotations

import re


def numbers_in(sentence: str | None) -> list[float]:
    """Return the numbers of a sentence in their order; those within a name (gpu-3, v2) are none of its own."""
    return [float(number) for number in re.findall(r"(?<![\w.:/-])\d+(?:\.\d+)?(?![\w:/-])", sentence or "")]
