"""How fast the errors of a GPU or a port grow: a count does not show when, so that it takes two readings with a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.gray.names import (
    CORRECTED,
    NVLINK,
    PORT,
    PORT_RECOVERIES,
    RECOVERIES,
    REMAPPED,
    REPLAYS,
    UNCORRECTED,
)
from analyzers.diagnosis.gray.readings import DeviceReadings, Floats
from analyzers.diagnosis.gray.under_load import Subject

FEWEST_SECONDS = 60.0
MOST_NEEDED = 3  # readings that show growth, or most of fewer: what comes once is an excursion
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A kind of error. ``least``: of an hour, below which it is not looked at; ``absolute``: one by itself is a fault."""

    fault_class: str
    words: str
    least: float
    strength: float
    absolute: bool = False


ERRORS: Mapping[str, ErrorKind] = {
    UNCORRECTED: ErrorKind("gray_memory", "uncorrectable memory errors", 0.0, 0.75, absolute=True),
    REMAPPED: ErrorKind("gray_memory", "rows of its memory that were remapped", 0.0, 0.7, absolute=True),
    CORRECTED: ErrorKind("gray_memory", "memory errors that were corrected", 60.0, 0.6),
    NVLINK: ErrorKind("gray_links", "NVLink errors (CRC, replay)", 60.0, 0.65),
    RECOVERIES: ErrorKind("gray_links", "NVLink recoveries", 2.0, 0.65),
    REPLAYS: ErrorKind("gray_links", "PCIe replays", 60.0, 0.6),
    PORT: ErrorKind("gray_port", "errors of its link", 60.0, 0.6),
    PORT_RECOVERIES: ErrorKind("gray_port", "recoveries of its link", 2.0, 0.6),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """What one kind of error grew by. ``lasts``: in several readings, not only long ago; None: two readings do not show it."""

    kind: str
    subject: Subject
    count: float
    seconds: float
    lasts: bool | None
    since: float | None

    @property
    def an_hour(self) -> float:
        """Return the rate."""
        return self.count * HOUR / self.seconds


def growths(gpu: Subject) -> Iterator[Growth]:
    """Yield the growth of each kind of error; of several sources the one that saw most."""
    for kind, error in ERRORS.items():
        found = [
            one for scope in sorted(_scopes(gpu.read, kind)) if (one := _growth(gpu, kind, scope, error)) is not None
        ]
        if found:
            yield max(found, key=lambda one: one.an_hour)


def _scopes(read: DeviceReadings, kind: str) -> set[str]:
    return {scope for of_kind, scope, _, _ in read.counted if of_kind == kind}


def _growth(gpu: Subject, kind: str, scope: str, error: ErrorKind) -> Growth | None:
    first, last, count, readings = np.inf, -np.inf, 0.0, 0
    grew: set[float] = set()
    for (of_kind, of_scope, _, _), (at, values) in gpu.read.counted.items():
        if of_kind == kind and of_scope == scope and len(at) > 1:
            first, last, readings = min(first, float(at[0])), max(last, float(at[-1])), max(readings, len(at) - 1)
            if (steps := _steps(values)).any():
                count += float(steps.sum())
                grew.update(at[1:][steps > 0].tolist())
    if last - first < FEWEST_SECONDS:
        return None
    recent = bool(grew) and max(grew) >= (first + last) / 2
    lasts: bool | None = recent and len(grew) >= min(MOST_NEEDED, readings // 2 + 1)
    if error.absolute:
        lasts = bool(grew)
    elif readings == 1 and grew:
        lasts = None
    return Growth(kind, gpu, count, last - first, lasts, min(grew, default=None))


def _steps(values: Floats) -> Floats:
    """Return the growth between readings; a counter that begins anew has grown by nothing that is known."""
    return np.maximum(values[1:] - values[:-1], 0.0)
