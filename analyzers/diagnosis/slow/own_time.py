"""What the others wait for where no operation takes longer than usual: a worker that runs more of them, or none that is recorded.

A worker's own time is its step less its communication. It counts where all workers wait for one another in every step, and the
step's parts do not explain its length, or one worker runs more operations than any other ever does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow import stalls
from analyzers.diagnosis.slow.claim import DOUBTFUL, LIKELY, WORTH, finding, node_of, price, suspect_of, with_costs
from analyzers.diagnosis.slow.doubts import alike
from analyzers.diagnosis.slow.grouping import Floats, Mask
from analyzers.diagnosis.slow.levels import median_of_known
from analyzers.diagnosis.slow.op_table import COMMUNICATION, COMPUTE, LOADER, PAUSE, OpTable
from analyzers.diagnosis.slow.situation import SlowSituation, lengths
from analyzers.model.finding import Cause, Evidence, Finding, Suspect

FEWEST_STEPS, FEWEST_WORKERS = 4, 3
ITS_OWN = 0.7  # of what the others wait for, for one worker to be the one
MORE = 1.2  # times as many operations as its usual peer


@dataclass(frozen=True)
class OwnTime:
    """``worker``: the one that the others wait for most, ``share`` of it; ``seconds``: a step; ``costs``: a slowdown."""

    worker: int
    share: float
    seconds: float
    costs: float


def long_own_time(seen: SlowSituation) -> Iterator[Finding]:
    """Yield that workers wait for what one of them, or changing ones, do outside communication."""
    amounts = _amounts(seen.compute)
    if (seen.pipeline is not None and not any(map(_differ, amounts.values()))) or not _comparable(seen):
        return
    if np.nanmedian(amounts["operations"]) < 2:  # a CUDA graph: the waits for others are in it
        return
    computed = any(_has_more(amount).any() for amount in amounts.values())
    found = _computed(seen.table) if computed else _measured(seen.table)
    if found is None or found.costs < WORTH:
        return
    one = found.share > ITS_OWN
    worker = seen.table.workers[found.worker]
    unit = "s" if seen.table.unit == "s" else "units"
    text = f"outside communication {worker.name if one else 'one worker or another'} takes {found.seconds:.3g} {unit} more in a "
    text += "step than the others" if one else "step than the others, not always the same one"
    saved = f"without that the job would save {price(seen, found.costs)}"
    if more := _more(amounts, found.worker if one else None):
        shown = Evidence(
            text=f"{text}, as it has more {more}; {saved}", source=worker.source, rank=worker.rank if one else None
        )
        suspect = Suspect(
            kind="data", strength=LIKELY, why=f"{shown.text}: the work is divided unevenly", evidence=(shown,)
        )
        yield finding("slow_data", "slow", "data", suspect, evidence=with_costs(seen, shown), costs=found.costs)
        return
    filler, kind = stalls.filled_by(seen.table, found.worker if one else -1, found.seconds * len(seen.table.steps))
    why = f"{text}, {f'most of it in {filler}' if filler else 'in nothing that the traces have'}; {saved}"
    if one:
        suspect = suspect_of(worker, DOUBTFUL, why, node_of(seen, found.worker))
    else:
        shown = Evidence(text=why, source=worker.source)
        suspect = Suspect(kind="storage" if kind == LOADER else "code", strength=DOUBTFUL, why=why, evidence=(shown,))
    cause: Cause
    fault_class, cause = ("slow_host", "unknown") if one else ("slow_pauses", "code")
    if kind == LOADER:
        fault_class, cause = "slow_loader", "storage"
    yield finding(fault_class, "slow", cause, suspect, evidence=with_costs(seen, *suspect.evidence), costs=found.costs)


def _comparable(seen: SlowSituation) -> bool:
    """Whether all workers are of one stage, wait for one another, and their traces say when."""
    table = seen.table
    of_one_stage = len({worker.pp for worker in table.workers}) == 1 and alike(seen)
    large = len(table.workers) >= FEWEST_WORKERS and len(table.steps) >= FEWEST_STEPS
    return (
        of_one_stage and large and bool(np.isfinite(table.started).all()) and bool((table.kind == COMMUNICATION).any())
    )


def _amounts(compute: OpTable) -> dict[str, Floats]:
    """Return how much each worker has to do in each step, by what it is counted in; NaN where it has nothing."""
    shape = len(compute.workers), len(compute.steps)
    found = {"operations": np.bincount(compute.place, minlength=shape[0] * shape[1])}
    if len(compute.work) and np.isfinite(compute.work).all():
        found["work in its operations"] = np.bincount(compute.place, compute.work, shape[0] * shape[1])
    return {name: np.where(each > 0, each.astype(np.float64), np.nan).reshape(shape) for name, each in found.items()}


def _differ(amount: Floats) -> bool:
    """Whether in most steps one worker has much more to do than the usual one, or rows are lost."""
    usual = median_of_known(amount, axis=0)
    return bool(np.median(np.nan_to_num(amount).max(axis=0) >= MORE * np.nan_to_num(usual)))


def _has_more(amount: Floats) -> Mask:
    """Mark workers that have more to do than their peers usually have, and than any of them ever has: rows may be lost."""
    usual, most = median_of_known(amount, axis=1), np.nan_to_num(amount).max(axis=1)
    more: Mask = usual >= MORE * float(np.nanmedian(usual))
    found: Mask = more & (usual > most[~more].max(initial=0.0))
    return found


def _more(amounts: dict[str, Floats], worker: int | None) -> str:
    """Say of what a worker has more than its peers, and how much; None: of what changing ones have; "" where it is nothing."""
    for name, amount in amounts.items():
        if worker is None and _differ(amount):
            return name
        if worker is not None:
            usual = median_of_known(amount, axis=1)
            times = float(usual[worker] / np.nanmedian(np.delete(usual, worker)))
            if times >= MORE:
                return f"{name}: {times:.3g} times as much as its usual peer"
    return ""


def _computed(table: OpTable) -> OwnTime | None:
    """Return the same by what each worker computes: traces may lack the waits of a collective's members for one another."""
    places = len(table.workers) * len(table.steps)
    computes = table.kind == COMPUTE
    own = _covered(table.rows(computes), places).reshape(len(table.workers), -1)
    return _longest(own, lengths(table).reshape(own.shape).max(axis=0))


def _measured(table: OpTable) -> OwnTime | None:
    """Return what the others wait for: in each step the longest own time less the median; None where too little is whole."""
    count, steps = len(table.workers), len(table.steps)
    talks = table.kind == COMMUNICATION
    spoken = _covered(table.rows(talks), count * steps).reshape(count, steps)
    calls = np.bincount(table.place[talks], minlength=count * steps).reshape(count, steps)
    whole = calls >= np.maximum(np.median(calls, axis=0), 1)
    ran = np.isin(table.kind, (COMPUTE, COMMUNICATION, LOADER, PAUSE))
    length = lengths(table.rows(ran)).reshape(count, steps)
    longest = length.max(axis=0)
    return _longest(np.where(whole & (length > 0), longest - spoken, np.nan), longest)


def _longest(own: Floats, length: Floats) -> OwnTime | None:
    """Return who has the longest own time in each step, and by how much it is longer than the median one's."""
    known = np.isfinite(own).sum(axis=0) >= FEWEST_WORKERS
    if np.count_nonzero(known) < FEWEST_STEPS:
        return None
    own = own[:, known]
    most, over = np.nanargmax(own, axis=0), np.nanmax(own, axis=0) - np.nanmedian(own, axis=0)
    by_worker = np.bincount(most, over, len(own))
    worker = int(np.argmax(by_worker))
    part = float(over.sum() / max(float(length[known].sum()), 1e-300))
    return OwnTime(
        worker, float(by_worker[worker] / max(over.sum(), 1e-300)), float(over.mean()), 1 / max(1 - part, 1e-9)
    )


def _covered(rows: OpTable, places: int) -> Floats:
    """Return the seconds of each worker's step in which at least one of these operations ran."""
    idle = np.bincount(rows.place, stalls.gaps(rows.started, rows.started + rows.seconds, rows.place), places)
    covered: Floats = lengths(rows) - idle
    return covered
