"""Samples of one node and scope, joined along time: what a minute sent in six parts becomes one record a type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from collectors.records import Samples


def merged(samples: Iterable[Samples]) -> list[Samples]:
    """Join the records that have the same devices and metrics; ticks stay in the order in which they came."""
    alike: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Samples]] = defaultdict(list)
    for one in samples:
        alike[one.type, one.devices, one.metrics].append(one)
    return [_joined(parts) for parts in alike.values()]


def _joined(parts: Sequence[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    shape = (len(first.devices), len(first.metrics), -1)
    cubes = [np.frombuffer(part.values, part.type).reshape(shape) for part in parts]
    return msgspec.structs.replace(
        first,
        ticks=b"".join(part.ticks for part in parts),
        monotonic_ticks=b"".join(part.monotonic_ticks for part in parts),
        values=np.concatenate(cubes, axis=2).tobytes(),
    )
