"""How long steps took, as a line of blocks for a terminal and as the points of a line for a page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
CELLS = 48  # of the line; each is the longest of its part


def cells(values: Sequence[float]) -> list[float]:
    """Return at most ``CELLS`` values, each the largest of as many neighbours: a single long step stays visible."""
    if len(values) <= CELLS:
        return list(values)
    edges = [round(place * len(values) / CELLS) for place in range(CELLS + 1)]
    return [max(values[first:last]) for first, last in pairwise(edges)]


def text(values: Sequence[float]) -> str:
    """Return the line in blocks, from zero to the longest; empty without values."""
    shown = cells(values)
    most = max(shown, default=0.0)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(len(BLOCKS) * value / most))] for value in shown) if most > 0 else ""


def points(values: Sequence[float], width: float, height: float) -> str:
    """Return the points of an SVG polyline, from zero at the bottom to the longest at the top; empty without values."""
    shown = cells(values)
    most = max(shown, default=0.0)
    if most <= 0 or len(shown) < 2:
        return ""
    step = width / (len(shown) - 1)
    return " ".join(f"{place * step:.1f},{height * (1 - value / most):.1f}" for place, value in enumerate(shown))
