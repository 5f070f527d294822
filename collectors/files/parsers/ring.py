"""A probe's ring, which its job may write as it likes."""

from __future__ import annotations

from typing import Any

from collectors.formats.probe_ring import parse as parse_ring
from collectors.records import block


def parse(data: bytes, most: int | None, step: int, timing: int) -> dict[str, Any]:
    """Return a ring's identity, and as a block its newest ``most`` entries and the steps after number ``step``.

    ``timings``: (number, phase, step, seconds, end of the step in UTC seconds or None) after number ``timing``.
    """
    image = parse_ring(data, most)
    steps = image.steps_since(step)
    ends = {number: end / 1e9 for _, number, end in image.steps}
    return {
        "pid": image.pid,
        "start_ticks": image.start_ticks,
        "swallowed": image.swallowed,
        "role": image.role,
        "records": block.encode([image.record(), *([steps] if steps else [])]),
        "step": image.steps[-1][0] if steps else step,
        "timings": [
            (number, phase, of, nanoseconds / 1e9, ends.get(of))
            for number, phase, of, nanoseconds in image.timings
            if number > timing
        ],
    }
