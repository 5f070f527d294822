"""Samples of one node and scope, joined along time: what a minute sent in six parts becomes one record a type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from collectors.records import Samples


def merged(samples: Iterable[Samples]) -> list[Samples]:
    """Join the records that have the same devices and metrics; ticks stay in the order in which they came.

    Those since one boot, and all with or all without monotonic ticks: these are joined as well.
    """
    alike: dict[tuple[Any, ...], list[Samples]] = defaultdict(list)
    for one in samples:
        monotonic = len(one.monotonic_ticks) == len(one.ticks)
        alike[one.type, one.devices, one.metrics, one.boot_id, monotonic].append(one)
    return [_joined(parts) for parts in alike.values()]


def _joined(parts: Sequence[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    names = len(first.devices), len(first.metrics)  # either may be none: how many ticks there are the values do not say
    cubes = [np.frombuffer(part.values, part.type).reshape(*names, len(part.ticks) // 8) for part in parts]
    return msgspec.structs.replace(
        first,
        ticks=b"".join(part.ticks for part in parts),
        monotonic_ticks=b"".join(
            part.monotonic_ticks for part in parts if len(part.monotonic_ticks) == len(part.ticks)
        ),
        values=np.concatenate(cubes, axis=2).tobytes(),
    )
