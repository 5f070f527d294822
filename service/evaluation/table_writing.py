"""What was learned as ``calibration.toml``, the table that judging reads (analyzers/verdict/curves.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date

from analyzers.verdict.curves import Curve, Key


def to_toml(curves: Mapping[Key, Curve], source: str, day: date) -> str:
    """Return the table as TOML. ``source``: what it was learned from."""
    return "\n".join(_lines(curves, source, day))


def _lines(curves: Mapping[Key, Curve], source: str, day: date) -> Iterator[str]:
    yield "# How often a claim comes true, by its kind and the strength of its evidence: [strength, probability], straight"
    yield "# between two points. Family of evidence, fault class, and whether one is named or a set (docs/learn.md)."
    yield f"source = {json.dumps(source, ensure_ascii=False)}"
    yield f"date = {day.isoformat()}"
    for (family, name, claim), curve in curves.items():
        points = ", ".join(f"[{strength}, {probability}]" for strength, probability in curve.points)
        yield ""
        yield f"[curve.{family}.{name}.{claim}]"
        yield f'learned_on = "{curve.learned_on}"'
        yield f"n = {curve.n}"
        yield f"right = {curve.right}"
        yield f"points = [{points}]"
    yield ""
