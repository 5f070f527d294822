"""A finding of this analyzer, and the sentences that go with every one."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzers.diagnosis.slow.op_table import Worker
from analyzers.diagnosis.slow.situation import SlowSituation
from analyzers.model.finding import Cause, Evidence, Finding, Suspect, Symptom
from analyzers.model.ranges import ranges

WORTH = 1.10  # a kind of slowness that costs less than this is shown as evidence, and is no verdict
MOST_NAMED = 4  # more slow workers than this, or than a quarter of all, share a cause that is not one machine's
FEWEST_PEERS = 3
PROVEN, LIKELY, DOUBTFUL = 0.92, 0.8, 0.6
SHARED = "what these workers share: rack, power, cooling, switch, model of device, or their part of the data"


def finding(
    fault_class: str, symptom: Symptom, cause: Cause, *suspects: Suspect, evidence: tuple[Evidence, ...] = (), **more: Any
) -> Finding:  # fmt: skip
    """Return a finding; its first symptom is its first evidence, where it names no suspect."""
    return Finding(
        analyzer="slow", family="timings", symptom=symptom, cause=cause, fault_class=fault_class, suspects=suspects,
        evidence=evidence, first_symptom=evidence[0] if evidence and not suspects else None, **more,
    )  # fmt: skip


def percent(slowdown: float) -> str:
    """Return which part of a step a slowdown is: 1.25 is ``20 %``."""
    return f"{100 * (1 - 1 / max(slowdown, 1.0)):.0f} %"


def price(seen: SlowSituation, slowdown: float) -> str:
    """Return what a slowdown costs: ``20 % of every step, 77 GPU hours a day (16 ranks, a GPU each)``, or rank hours."""
    known = seen.topology.world_size
    count = known or max(len(seen.topology.ranks), len(seen.table.workers))
    hours = 24 * count * (1 - 1 / max(slowdown, 1.0))
    ranks = f"{count:,} ranks" if known else f"{count:,} ranks are known"
    unit, each = ("GPU", ", a GPU each") if seen.on_gpus else ("rank", "")
    return f"{percent(slowdown)} of every step, {'' if known else 'at least '}{hours:,.0f} {unit} hours a day ({ranks}{each})"


def evidence_of(worker: Worker, text: str) -> Evidence:
    """Return a sentence about a worker."""
    return Evidence(text=text, source=worker.source, rank=worker.rank)


def suspect_of(worker: Worker, strength: float, why: str, node: str | None = None) -> Suspect:
    """Return a worker as a suspect, by its rank or else by its name."""
    ranks, name = ((), worker.name) if worker.rank is None else ((worker.rank,), "")
    return Suspect(
        kind="rank", strength=strength, why=why, ranks=ranks, node=node, name=name, evidence=(evidence_of(worker, why),)
    )


def listed(workers: list[Worker]) -> str:
    """Name workers: two each, more by their ranks, or a few of them where ranks are not known."""
    ranks = [worker.rank for worker in workers if worker.rank is not None]
    if len(workers) > 2 and len(ranks) == len(workers):
        return f"ranks {ranges(ranks)}"
    others = f" and {len(workers) - MOST_NAMED:,} more" if len(workers) > MOST_NAMED else ""
    return " and ".join(worker.name for worker in workers[:MOST_NAMED]) + others


def node_of(seen: SlowSituation, number: int) -> str | None:
    """Return the host of a worker, None where that is not known."""
    rank = seen.table.workers[number].rank
    return None if rank is None else seen.topology.nodes.get(rank)


def with_costs(seen: SlowSituation, *shown: Evidence) -> tuple[Evidence, ...]:
    """Return evidence, and after it what each kind of slowness costs."""
    if seen.costs is None or seen.pipeline is None:
        return shown
    source, parts = seen.table.workers[0].source, seen.costs.by_operation
    times = ", ".join(f"{name} {parts[name]:.2f}" for name in sorted(parts, key=lambda name: -parts[name])[:4])
    costs = [
        f"{_length(seen)} {seen.costs.ideal:.2f} times (T / T_ideal) what it would if each operation took its kind's mean",
        f"without slow workers, how many times as long a step takes by the unevenness of one operation: {times}",
    ]
    if len(seen.pipeline.stages) > 1:
        stages = ", ".join(f"{stage} {times:.2f}" for stage, times in sorted(seen.costs.by_stage.items())[:8])
        costs.append(f"by that of one stage: {stages}")
    others = {
        "the split into stages": seen.costs.stages, "uneven microbatches": seen.costs.data, "links": seen.costs.links,
        "hosts that stall": seen.costs.stalls,
    }  # fmt: skip
    costs.append("; ".join(f"by {name}: {times:.2f}" for name, times in others.items()))
    return (*shown, *(Evidence(text=one, source=source) for one in costs))


def _length(seen: SlowSituation) -> str:
    real = seen.step_seconds
    known = real[np.isfinite(real)]
    length = float(np.median(known)) if len(known) else float(np.median(seen.pipeline.base)) if seen.pipeline else 0.0
    some = f" ({len(seen.table.steps)} of {seen.table.all_steps} steps are compared)" if seen.table.all_steps else ""
    return f"a step takes {length:.3g} s{some}," if seen.table.unit == "s" else f"a step takes{some}"
