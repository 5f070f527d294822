"""From what was measured of a trace to findings: which kind of slowness, how sure, and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from analyzers.diagnosis.slow import outliers
from analyzers.diagnosis.slow.costs import Costs
from analyzers.diagnosis.slow.op_table import Worker
from analyzers.diagnosis.slow.situation import Situation
from analyzers.model.finding import Cause, Evidence, Finding, Suspect, Symptom
from analyzers.model.ranges import ranges

WORTH = 1.10  # a kind of slowness that costs less than this is shown as evidence, and is no verdict
LATENT = 1.01  # a worker that costs the job less does not slow it
MOST_NAMED = 4  # more slow workers than this, or than a quarter of all, share a cause that is not one machine's
ALWAYS = 0.8  # a machine that is slow is so in this share of its steps
FEWEST_STEPS, FEWEST_PEERS, FEWEST_TIMES = 3, 3, 4
UNLIKE = 0.03  # workers whose levels are spread like this are not of one kind
PROVEN, LIKELY, DOUBTFUL = 0.92, 0.8, 0.6


def findings(seen: Situation) -> Iterator[Finding]:
    """Yield a finding for each kind of slowness that is worth one; else one that nothing is wrong, or what cannot be decided."""
    made = [*_workers(seen), *_open(seen), *_replicas(seen), *_stage(seen), *_data(seen)]
    yield from sorted(made, key=lambda finding: -finding.costs) or (_healthy(seen),)


def unmeasured(why: str) -> Finding:
    """Return that a trace shows nothing that can be compared."""
    return _finding("slow_unmeasured", "unknown", "unknown", missing=(why,))


def _finding(
    fault_class: str, symptom: Symptom, cause: Cause, *suspects: Suspect, evidence: tuple[Evidence, ...] = (), **more: Any
) -> Finding:  # fmt: skip
    return Finding(
        analyzer="slow", family="timings", symptom=symptom, cause=cause, fault_class=fault_class, suspects=suspects,
        evidence=evidence, first_symptom=evidence[0] if evidence and not suspects else None, **more,
    )  # fmt: skip


def percent(slowdown: float) -> str:
    """Return which part of a step a slowdown is: 1.25 is ``20 %``."""
    return f"{100 * (1 - 1 / max(slowdown, 1.0)):.0f} %"


def _evidence(worker: Worker, text: str) -> Evidence:
    return Evidence(text=text, source=worker.source, rank=worker.rank)


def _workers(seen: Situation) -> Iterator[Finding]:
    """Yield the workers that are slower than their peers and that the job waits for."""
    slow = [number for number in seen.outliers.slow.tolist() if _cost(seen, number) >= LATENT or seen.pipeline is None]
    if not slow:
        return
    if len(slow) > MOST_NAMED or 4 * len(slow) > max(len(seen.table.workers), 4):
        yield _many(seen, slow)
        return
    if _once(seen):
        yield _too_few(seen, slow)
        return
    suspects = tuple(_suspect(seen, number) for number in slow)
    evidence = tuple(one for suspect in suspects for one in suspect.evidence[:1])
    yield _finding(
        "slow_worker", "slow", "machine", *suspects, together=True, evidence=(*evidence, *_told(seen)),
        costs=seen.together or 1.0, victims=_victims(seen, slow),
    )  # fmt: skip


def _once(seen: Situation) -> bool:
    """Whether a worker did the same work too few times for more than an accident, or a long microbatch, to show."""
    each = np.bincount(seen.compute.worker, minlength=1) / max(len(np.unique(seen.compute.operation)), 1)
    return float(np.median(each[each > 0])) < FEWEST_TIMES


def _too_few(seen: Situation, slow: list[int]) -> Finding:
    worker, times = seen.table.workers[slow[0]], float(np.exp(seen.outliers.excess[slow[0]]))
    text = f"{worker.name} took {times:.2f} times as long as its peers, and did each operation fewer than {FEWEST_TIMES} times"
    missing = "more steps would show whether it is always slow, or had more work once"
    return _finding(
        "slow_undecided", "slow", "unknown", evidence=(_evidence(worker, text),), missing=(missing,), costs=times
    )


def _victims(seen: Situation, slow: list[int]) -> tuple[int, ...]:
    guilty = {seen.table.workers[number].rank for number in slow}
    return tuple(sorted({one.rank for one in seen.table.workers if one.rank is not None and one.rank not in guilty}))


def _cost(seen: Situation, number: int) -> float:
    return (seen.by_worker or {}).get(number, 1.0)


def _suspect(seen: Situation, number: int) -> Suspect:
    worker, times = seen.table.workers[number], float(np.exp(seen.outliers.excess[number]))
    strength, doubt = _strength(seen, number)
    cost = _cost(seen, number)
    since = _since(seen, number)
    peers = int(seen.levels.peers[number]) - 1
    against = f"{peers} peers of its duty" if not seen.whole_batches else "it took before"
    said = f"{worker.name} takes {times:.2f} times as long for the same work as {against}{since}"
    price = f"this costs the job {percent(cost)} of every step" if seen.pipeline is not None else ""
    why = "; ".join(part for part in (said, price, doubt) if part)
    return Suspect(
        kind="rank", strength=strength, why=why, ranks=() if worker.rank is None else (worker.rank,),
        node=None if worker.rank is None else seen.topology.nodes.get(worker.rank),
        name=worker.name if worker.rank is None else "", evidence=(_evidence(worker, why),),
    )  # fmt: skip


def _since(seen: Situation, number: int) -> str:
    at = int(seen.outliers.changed_at[number])
    return f", since step {int(seen.table.steps[at])}" if at >= 0 else ""


def _strength(seen: Situation, number: int) -> tuple[float, str]:
    """Return how sure it is that a worker's machine is slow, and what speaks against."""
    by_step = seen.levels.by_step[number] - seen.levels.shared[number]
    at = max(int(seen.outliers.changed_at[number]), 0)
    known = by_step[at:][np.isfinite(by_step[at:])]
    share = float(np.mean(known > seen.outliers.excess[number] / 2)) if len(known) else 0.0
    if len(known) < FEWEST_STEPS:
        return DOUBTFUL, f"only {len(known)} step{'s' if len(known) > 1 else ''} of the trace: more would decide"
    if share < ALWAYS:
        return DOUBTFUL, f"only in {share:.0%} of the steps"
    if seen.whole_batches:
        return LIKELY, "whole batches do not show whether it computes or waits"
    if int(seen.levels.peers[number]) - 1 < FEWEST_PEERS and at == 0:
        return LIKELY, "two peers only show it"
    if _cost(seen, number) < WORTH:
        return LIKELY, ""
    return PROVEN, ""


def _many(seen: Situation, slow: list[int]) -> Finding:
    """Return that many workers are slow at once: what they share is at fault, and no machine by itself."""
    names = ", ".join(seen.table.workers[number].name for number in slow[:MOST_NAMED])
    text = f"{len(slow):,} of {len(seen.table.workers):,} workers take longer than their peers, such as {names}"
    missing = "what these workers share: rack, power, cooling, switch, model of device, or their part of the data"
    return _finding(
        "slow_together", "slow", "unknown", evidence=(_evidence(seen.table.workers[slow[0]], text), *_told(seen)),
        missing=(missing,), costs=seen.together or 1.0,
    )  # fmt: skip


def _open(seen: Situation) -> Iterator[Finding]:
    """Yield the sets of workers of which some are slow where it is not shown which."""
    for members in seen.outliers.open:
        workers = [seen.table.workers[number] for number in members.tolist()]
        apart = float(np.exp(np.ptp(seen.levels.level[members])))
        names = " and ".join(worker.name for worker in workers[:MOST_NAMED])
        text = f"{names} take up to {apart:.2f} times as long as one another for the same work: some are slow, or some fast"
        missing = "a third replica, or the steps before it began, would show which of them is slow"
        yield _finding(
            "slow_undecided",
            "slow",
            "unknown",
            evidence=(_evidence(workers[0], text),),
            missing=(missing,),
            costs=apart,
        )


def _replicas(seen: Situation) -> Iterator[Finding]:
    """Yield replicas whose stages are all slow alike: machines that share something, or more work in every microbatch."""
    slow = outliers.slow_replicas(seen.table, seen.levels)
    if not len(slow):
        return
    workers = [seen.table.workers[number] for number in slow.tolist()]
    replicas = sorted({worker.dp for worker in workers})
    others = np.setdiff1d(np.arange(len(seen.table.workers)), slow)
    times = float(np.exp(np.median(seen.levels.shared[slow]) - np.median(seen.levels.shared[others])))
    named = f"replica{'s' if len(replicas) > 1 else ''} {ranges(replicas)}"
    text = f"all stages of {named} take {times:.2f} times as long as those of the others, in every microbatch"
    missing = f"clocks, power and temperature of the machines of {named}, and how much work it gets, would decide"
    shown = _evidence(workers[0], text)
    yield _finding("slow_together", "slow", "unknown", evidence=(shown,), missing=(missing,), costs=times)


def _stage(seen: Situation) -> Iterator[Finding]:
    """Yield a pipeline stage that is longer than the others on every replica."""
    if seen.costs is None or seen.pipeline is None or seen.costs.stages < WORTH:
        return
    loads = _loads(seen)
    longest = max(loads, key=lambda stage: loads[stage])
    others = float(np.mean([load for stage, load in loads.items() if stage != longest]))
    replicas = len(seen.pipeline.replicas)
    times = loads[longest] / max(others, 1e-300)
    where = f"stage {longest} takes {times:.2f} times as long as the mean of the other {len(loads) - 1} stages"
    price = f"an even split would save {percent(seen.costs.stages)} of every step"
    source = next(worker for worker in seen.table.workers if worker.pp == longest)
    if replicas < 2:
        shown = Evidence(text=f"{where}; {price}", source=source.source)
        missing = "a second replica would show whether the split is uneven or the machines of this stage are slow"
        yield _finding(
            "slow_undecided", "slow", "unknown", evidence=(shown,), missing=(missing,), costs=seen.costs.stages
        )
        return
    shown = Evidence(text=f"{where}, on all {replicas} replicas alike; {price}", source=source.source)
    suspect = Suspect(kind="stage", strength=PROVEN, why=shown.text, name=str(longest), evidence=(shown,))
    yield _finding("slow_stage", "slow", "imbalance", suspect, evidence=(shown, *_told(seen)), costs=seen.costs.stages)


def _loads(seen: Situation) -> dict[int, float]:
    assert seen.pipeline is not None
    return {
        stage: float(np.median(array.sum(axis=0)))
        for stage, array in zip(seen.pipeline.stages, seen.pipeline.seconds, strict=True)
    }


def _data(seen: Situation) -> Iterator[Finding]:
    """Yield that microbatches differ."""
    if seen.costs is None or seen.costs.data < WORTH:
        return
    source = seen.table.workers[0]
    text = (
        "some microbatches take longer than others in all their operations, on changing workers; "
        f"even ones would save {percent(seen.costs.data)} of every step"
    )
    shown = Evidence(text=text, source=source.source)
    why = f"{text}: their sequence lengths differ, or what experts get"
    suspect = Suspect(kind="data", strength=LIKELY, why=why, evidence=(shown,))
    yield _finding("slow_data", "slow", "data", suspect, evidence=(shown, *_told(seen)), costs=seen.costs.data)


def _told(seen: Situation) -> tuple[Evidence, ...]:
    """Return what else the steps show, as sentences."""
    if seen.costs is None or seen.pipeline is None:
        return ()
    source, parts = seen.table.workers[0].source, seen.costs.by_operation
    times = ", ".join(f"{name} {parts[name]:.2f}" for name in sorted(parts, key=lambda name: -parts[name])[:4])
    shown = [
        f"{_length(seen)} {_ideal(seen):.2f} times what it would with every operation as long as the mean of its kind",
        f"without the slow workers, how many times as long a step takes by the unevenness of one operation: {times}",
    ]
    if len(seen.pipeline.stages) > 1:
        stages = ", ".join(f"{stage} {times:.2f}" for stage, times in sorted(seen.costs.by_stage.items())[:8])
        shown.append(f"by that of one stage: {stages}")
    shown.append(f"by the split into stages: {seen.costs.stages:.2f}; by uneven microbatches: {seen.costs.data:.2f}")
    return tuple(Evidence(text=one, source=source) for one in shown)


def _length(seen: Situation) -> str:
    real = seen.step_seconds
    known = real[np.isfinite(real)]
    length = float(np.median(known)) if len(known) else float(np.median(seen.pipeline.base)) if seen.pipeline else 0.0
    return f"a step takes {length:.3g} s," if seen.table.unit == "s" else "a step takes"


def _ideal(seen: Situation) -> float:
    costs: Costs | None = seen.costs
    return (costs.ideal if costs else 1.0) * (seen.together or 1.0)


def _healthy(seen: Situation) -> Finding:
    """Return that no kind of slowness costs the job much, and what was seen of it."""
    latent = tuple(_latent(seen, number) for number in seen.outliers.slow.tolist())
    source = seen.table.workers[0]
    compared = int(np.count_nonzero(seen.levels.peers > 1))
    if not compared:
        return unmeasured("no two workers of the traces have the same duty: traces of more ranks would be comparable")
    spread_text = f"{float(np.exp(seen.outliers.spread) - 1):.1%}"
    if seen.outliers.spread > UNLIKE:
        text = f"the workers differ by {spread_text} and more for the same work, steadily, and none stands apart: unlike machines"
        return _finding(
            "unlike_machines", "healthy", "none", evidence=(_evidence(source, text), *_told(seen)), rejected=latent
        )
    text = f"no worker of {len(seen.table.workers):,} takes longer than its peers, beyond {spread_text}, or longer than before"
    if latent:
        text = latent[0].why
    name = "latent_worker" if latent else "even_pace"
    return _finding(name, "healthy", "none", evidence=(_evidence(source, text), *_told(seen)), rejected=latent)


def _latent(seen: Situation, number: int) -> Suspect:
    worker, times = seen.table.workers[number], float(np.exp(seen.outliers.excess[number]))
    why = f"{worker.name} takes {times:.2f} times as long as its peers, and the job does not wait for it"
    return Suspect(
        kind="rank",
        strength=0.1,
        why=why,
        ranks=() if worker.rank is None else (worker.rank,),
        evidence=(_evidence(worker, why),),
    )
