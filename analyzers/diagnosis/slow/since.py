"""Slowness that begins at a step and by which no worker stands out from its peers: of all workers, a stage, or of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.diagnosis.slow.claim import SHARED, WORTH, evidence_of, finding, listed
from analyzers.diagnosis.slow.grouping import Floats, Ints
from analyzers.diagnosis.slow.levels import LEAST_NOISE, SHORTEST, median_of_known, rise, rises, turn
from analyzers.diagnosis.slow.situation import SlowSituation
from analyzers.model.finding import Finding
from analyzers.model.medians import MEDIAN_ERROR

TIMES = 8.0  # the noise of a rise
MISSING = "what changed then: the code, the lengths of sequences, clocks and power of the machines, the network"


def slower_since(seen: SlowSituation) -> Iterator[Finding]:
    """Yield that computations, or else steps, take longer than before, on all that do the same."""
    pp = np.array([worker.pp for worker in seen.table.workers])
    parts = [(f"all {len(pp):,} workers take", np.flatnonzero(pp >= pp.min()), *_rise(_common(seen)))]
    parts += [
        (f"stage {stage} takes on all its replicas", np.flatnonzero(pp == stage), *risen(seen, stage))
        for stage in _stages(seen)
    ]
    found = [_of_those(seen, *one) for one in parts if one[2] > 0]
    if not found:
        size, at = _rise(_logs(seen.step_seconds))
        found = [("steps take, and not by their computations,", size, at, MISSING)] if size > 0 else []
    for who, size, at, missing in found:
        times = float(np.exp(size))
        text = f"{who} {times:.2f} times as long as before, since step {int(seen.table.steps[at])}"
        shown = evidence_of(seen.table.workers[0], text)
        yield finding("slow_together", "slow", "unknown", evidence=(shown,), missing=(missing,), costs=times)


def _of_those(seen: SlowSituation, who: str, members: Ints, size: float, at: int) -> tuple[str, float, int, str]:
    """Return who of a stage, or of all, takes longer than before, by how much, since when, and what is missing.

    What most or half of them share is no rise of all: those that rise by less than half of it are left out.
    """
    own = seen.levels.by_step[members]
    known = np.isfinite(own[:, :at]).any(axis=1) & np.isfinite(own[:, at:]).any(axis=1)
    own = np.where(np.isfinite(own), own, median_of_known(own, axis=1)[:, None]) + seen.levels.step_level
    each = rises(np.nan_to_num(own), np.full(len(members), at))[0]
    grown = known & (each > size / 2)
    if grown.all() or not grown.any():
        return who, size, at, MISSING
    those = listed([seen.table.workers[number] for number in members[grown].tolist()])
    named = f"{those} ({np.count_nonzero(grown):,} of {len(members):,}) take"
    return named, float(np.median(each[grown])), at, SHARED


def _common(seen: SlowSituation) -> Floats:
    """Return what workers share in each step, unknown where fewer than half of them have it."""
    return np.where(
        2 * np.isfinite(seen.levels.by_step).sum(axis=0) >= len(seen.table.workers), seen.levels.step_level, np.nan
    )


def risen(seen: SlowSituation, stage: int) -> tuple[float, int]:
    """Return the rise of a stage that all its replicas share, and the index of its step; 0 without one."""
    members = np.array([worker.pp == stage for worker in seen.table.workers])
    if len(_stages(seen)) < 2 or not members.any():
        return 0.0, 0
    return _rise(median_of_known(seen.levels.by_step[members], axis=0))


def _stages(seen: SlowSituation) -> list[int]:
    found = sorted({worker.pp for worker in seen.table.workers})
    return found if len(found) > 1 else []


def _logs(seconds: Floats) -> Floats:
    return np.log(np.where(seconds > 0, seconds, np.nan))


def _rise(series: Floats) -> tuple[float, int]:
    """Return by how much a series of logarithms rises, and where; 0 where that is not worth telling, or within its noise."""
    if len(series) < 2 * SHORTEST or not np.isfinite(series).all():
        return 0.0, 0
    at = int(turn(series[None])[0])
    size, noise = rise(series, at)
    error = MEDIAN_ERROR * max(noise, LEAST_NOISE) * np.sqrt(1 / at + 1 / (len(series) - at))
    return (size, at) if size > np.log(WORTH) and size > TIMES * error else (0.0, 0)
