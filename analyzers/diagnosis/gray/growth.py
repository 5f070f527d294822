"""How fast the errors of a GPU grow: a count does not show when, so that it takes two readings with a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.gray.names import CORRECTED, NVLINK, RECOVERIES, REMAPPED, REPLAYS, UNCORRECTED
from analyzers.diagnosis.gray.readings import Floats, GpuReadings
from analyzers.diagnosis.gray.under_load import Gpu

FEWEST_SECONDS = 60.0
BURST_OF = 3  # with so many readings of growth or more, errors in one of them only are an excursion
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A kind of error. ``least``: of an hour, below which it is not looked at; ``absolute``: one by itself is a fault."""

    fault: str
    words: str
    least: float
    strength: float
    absolute: bool = False


ERRORS: Mapping[str, ErrorKind] = {
    UNCORRECTED: ErrorKind("memory", "uncorrectable memory errors", 0.0, 0.75, absolute=True),
    REMAPPED: ErrorKind("memory", "rows of its memory that were remapped", 0.0, 0.7, absolute=True),
    CORRECTED: ErrorKind("memory", "memory errors that were corrected", 60.0, 0.6),
    NVLINK: ErrorKind("links", "NVLink errors (CRC, replay)", 60.0, 0.65),
    RECOVERIES: ErrorKind("links", "NVLink recoveries", 2.0, 0.65),
    REPLAYS: ErrorKind("links", "PCIe replays", 60.0, 0.6),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """What one kind of error grew by. ``lasts``: in more than one reading, and not only long ago."""

    kind: str
    gpu: Gpu
    count: float
    seconds: float
    lasts: bool
    since: float | None

    @property
    def an_hour(self) -> float:
        """Return the rate."""
        return self.count * HOUR / self.seconds


def growths(gpu: Gpu) -> Iterator[Growth]:
    """Yield the growth of each kind of error; of several sources the one that saw most."""
    for kind, error in ERRORS.items():
        found = [
            one for scope in sorted(_scopes(gpu.read, kind)) if (one := _growth(gpu, kind, scope, error)) is not None
        ]
        if found:
            yield max(found, key=lambda one: one.an_hour)


def _scopes(read: GpuReadings, kind: str) -> set[str]:
    return {scope for of_kind, scope, _, _ in read.counted if of_kind == kind}


def _growth(gpu: Gpu, kind: str, scope: str, error: ErrorKind) -> Growth | None:
    gained: dict[float, float] = {}
    first, last = np.inf, -np.inf
    for (of_kind, of_scope, _, _), (at, values) in gpu.read.counted.items():
        if of_kind == kind and of_scope == scope and len(at) > 1:
            first, last = min(first, float(at[0])), max(last, float(at[-1]))
            for instant, count in zip(at[1:].tolist(), _steps(values).tolist(), strict=True):
                gained[instant] = gained.get(instant, 0.0) + count
    if last - first < FEWEST_SECONDS:
        return None
    when = sorted(instant for instant, count in gained.items() if count > 0)
    recent = bool(when) and when[-1] >= (first + last) / 2
    lasts = (recent and (len(when) > 1 or len(gained) < BURST_OF)) or (bool(when) and error.absolute)
    return Growth(kind, gpu, sum(gained.values()), last - first, lasts, when[0] if when else None)


def _steps(values: Floats) -> Floats:
    """Return the growth between readings; a counter that begins anew has grown by nothing that is known."""
    return np.clip(np.diff(values), 0.0, None)
