"""From what was measured of a trace to findings: all kinds of slowness, or that there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from analyzers.diagnosis.slow.claim import MOST_NAMED, WORTH, evidence_of, finding, price, suspect_of, with_costs
from analyzers.diagnosis.slow.costs import without_workers
from analyzers.diagnosis.slow.doubts import ITS_STAGE, alike, work_times
from analyzers.diagnosis.slow.op_table import COMMUNICATION
from analyzers.diagnosis.slow.outliers import LEAST
from analyzers.diagnosis.slow.own_time import long_own_time
from analyzers.diagnosis.slow.since import slower_since
from analyzers.diagnosis.slow.situation import SlowSituation
from analyzers.diagnosis.slow.slow_parts import long_stage, slow_links, stalled_hosts, uneven_data
from analyzers.diagnosis.slow.slow_workers import open_sets, slow_replicas, slow_workers, unsure_workers
from analyzers.diagnosis.slow.transfers import is_transfer
from analyzers.model.finding import Finding, Suspect
from analyzers.model.ranges import ranges

UNSEEN = float(np.log(1.25))  # a trace that does not show so much leaves it open whether a job is healthy
MORE_STEPS = "more steps, or clocks, power and other work of each machine, would show it"
BLIND = float(np.log(2.0))  # a trace that does not show a worker of half the speed shows none
UNPLAYED = "whether a stage, the data or a link holds the job up: when operations started, which the trace lacks, would show it"
OTHER_UNIT = float(np.log(100.0))  # a machine that is slower by as much would hold the job up altogether
DEAR = 1.2  # a job that loses a sixth to workers that are not alike is not called healthy
UNLIKE = 0.03  # workers whose levels are spread like this are not of one kind


def findings(seen: SlowSituation) -> Iterator[Finding]:
    """Yield a finding for each kind of slowness that is worth one; else one that nothing is wrong, or what cannot be decided."""
    if (pair := _of_two_units(seen)) is not None:
        first, other = (seen.table.workers[number].name for number in pair)
        yield unmeasured(f"the unit of time of each trace: that of {first} is another than that of {other}")
        return
    made = [
        *slow_workers(seen),
        *open_sets(seen),
        *slow_replicas(seen),
        *long_stage(seen),
        *uneven_data(seen),
        *slow_links(seen),
        *stalled_hosts(seen),
    ] or [*slower_since(seen), *long_own_time(seen), *unsure_workers(seen)]
    yield from sorted(made, key=lambda finding: -finding.costs) or (_healthy(seen),)


def _of_two_units(seen: SlowSituation) -> tuple[int, int] | None:
    """Return two workers of one duty of which one takes a hundred times as long, the more unusual one first."""
    levels = seen.levels
    for duty in np.unique(levels.duty).tolist():
        members = np.flatnonzero((levels.duty == duty) & np.isfinite(levels.level))
        if len(members) > 1 and float(np.ptp(levels.level[members])) > OTHER_UNIT:
            ends = members[np.argsort(levels.level[members])][[0, -1]].tolist()
            first, other = sorted(ends, key=lambda number: -abs(float(levels.level[number])))
            return first, other
    return None


def unmeasured(why: str) -> Finding:
    """Return that a trace shows nothing that can be compared."""
    return finding("slow_unmeasured", "unknown", "unknown", missing=(why,))


def _healthy(seen: SlowSituation) -> Finding:
    """Return that no kind of slowness costs the job much, and what was seen of it."""
    latent = tuple(_latent(seen, number) for number in seen.outliers.slow.tolist())
    compared = int(np.count_nonzero(seen.levels.peers > 1))
    if not compared:
        return unmeasured("no two workers of the traces have the same duty: traces of more ranks would be comparable")
    if _waits_inside(seen):
        return unmeasured(
            "a step is one operation, with its waits for others in it: traces without CUDA graphs would show its parts"
        )
    if unseen := _without_trace(seen):
        why = f"{unseen} left no trace, and may be the one that the others wait for"
        return unmeasured(f"{why}: traces of all ranks would show it")
    if numbered := _alone_in_its_steps(seen):
        return unmeasured(
            f"{numbered} has no step whose number the others have: steps that are numbered alike can be compared"
        )
    if (lone := _alone_of_its_model(seen)) and (seen.costs is None or seen.costs.ideal >= WORTH):
        return unmeasured(
            f"{lone} is the only one of its stage with its model of device: a second one would show its pace"
        )
    if (latent or seen.outliers.spread > UNLIKE) and not alike(seen) and min(one.pp for one in seen.table.workers) < 0:
        return replace(unmeasured(f"whether ranks that take longer have more work: {ITS_STAGE}"), rejected=latent)
    spread_text, limit_text = (f"{float(np.exp(one) - 1):.1%}" for one in (seen.outliers.spread, seen.outliers.limit))
    if len({worker.pp for worker in seen.table.workers}) > 1 and not seen.table.has_starts:
        text = f"no worker of {len(seen.table.workers):,} takes {limit_text} longer than its peers"
        shown = evidence_of(seen.table.workers[0], text)
        return finding("slow_unmeasured", "unknown", "unknown", evidence=(shown,), missing=(UNPLAYED,))
    at_times = _at_times(seen)
    if seen.outliers.spread > UNLIKE and (found := _waited_for(seen) or _long_at_times(seen, at_times)) is not None:
        return found
    if (found := _dear(seen)) is not None:
        return found
    if seen.outliers.spread > UNLIKE:
        fault_class = "unlike_machines"
        how = (
            "steadily, and none stands apart: unlike shares of the work, or unlike machines"
            if at_times < WORTH
            else "from step to step, and none stands apart"
        )
        text = f"the workers differ by {spread_text} and more, {how}{_saved(seen)}"
    elif latent:
        fault_class, text = "latent_worker", latent[0].why
    else:
        fault_class = "even_pace"
        workers = f"{len(seen.table.workers):,}"
        text = f"no worker of {workers} takes {limit_text} longer than its peers, the least that shows, or longer than before"
        if seen.outliers.limit > BLIND:
            why = "whether a worker is slower by less: more steps, or steps that vary less, would show it"
            return replace(unmeasured(why), evidence=(evidence_of(seen.table.workers[0], text),))
    shown = evidence_of(seen.table.workers[0], text)
    missing = ("more steps would show whether a worker is slower by less",) if seen.outliers.limit > UNSEEN else ()
    return finding(fault_class, "healthy", "none", evidence=with_costs(seen, shown), rejected=latent, missing=missing)


def _saved(seen: SlowSituation) -> str:
    """Say what the job would save if its workers were alike, where neither stages nor data are uneven."""
    costs = seen.costs
    if costs is None or costs.ideal < WORTH or max(costs.stages, costs.data) >= WORTH:
        return ""
    return f"; were they as fast as their mean, the job would save {price(seen, costs.ideal)}"


def _dear(seen: SlowSituation) -> Finding | None:
    """Return that the job loses too much to workers that differ to be healthy, though none is shown to; None: it does not."""
    costs = seen.costs
    unsure = seen.outliers.spread > UNLIKE or seen.outliers.limit > UNSEEN
    if costs is None or costs.ideal < DEAR or not unsure or not (saved := _saved(seen)):
        return None
    shown = with_costs(seen, evidence_of(seen.table.workers[0], f"the workers differ, and none stands apart{saved}"))
    missing = (f"who holds the job up: {MORE_STEPS}",)
    return finding("slow_undecided", "slow", "unknown", evidence=shown, missing=missing, costs=costs.ideal)


def _waited_for(seen: SlowSituation) -> Finding | None:
    """Return that the job waits for one worker, where all differ too much to say that it stands apart; None: it does not."""
    level = np.where(seen.levels.peers > 1, seen.levels.level, -np.inf)
    number = int(np.nanargmax(level))
    if seen.pipeline is None or level[number] < float(np.log(WORTH)):
        return None
    healed = without_workers(
        seen.pipeline, np.array([number]), seen.levels.level, np.zeros_like(seen.outliers.changed_at)
    )
    costs = seen.pipeline.slowdown(healed)
    if costs < WORTH:
        return None
    worker, times = seen.table.workers[number], float(np.exp(level[number]))
    text = (
        f"{worker.name} takes {times:.2f} times as long as the median of its peers, which costs {price(seen, costs)}; "
        f"the others differ by {float(np.exp(seen.outliers.spread) - 1):.1%} and more among themselves"
    )
    missing = f"whether {worker.name} is always so: {MORE_STEPS}"
    shown = with_costs(seen, evidence_of(worker, text))
    return finding("slow_undecided", "slow", "unknown", evidence=shown, missing=(missing,), costs=costs)


def _at_times(seen: SlowSituation) -> float:
    """Return how many times as long steps take because operations are longer in some of them than they usually are."""
    if seen.pipeline is None:
        return 1.0
    usual = (np.broadcast_to(np.median(one, axis=1, keepdims=True), one.shape) for one in seen.pipeline.seconds)
    return seen.pipeline.slowdown(tuple(usual))


def _long_at_times(seen: SlowSituation, costs: float) -> Finding | None:
    """Return that operations take longer in some steps, by so much that the job is not healthy; None: it is not so."""
    if costs < float(np.exp(UNSEEN)):
        return None
    text = f"operations take longer in some steps than they usually do; else the job would save {price(seen, costs)}"
    missing = "what runs then: an evaluation, garbage collection, longer data, or other work on these machines"
    shown = with_costs(seen, evidence_of(seen.table.workers[0], text))
    return finding("slow_undecided", "slow", "unknown", evidence=shown, missing=(missing,), costs=costs)


def _alone_in_its_steps(seen: SlowSituation) -> str:
    """Name a worker that has most of its steps without any other: their numbers are its own."""
    known = np.isfinite(seen.levels.by_step)
    if len(known) < 2:
        return ""
    alone = (known & (known.sum(axis=0) == 1)).sum(axis=1) * 2 > np.maximum(known.sum(axis=1), 1)
    return seen.table.workers[int(np.argmax(alone))].name if alone.any() else ""


def _alone_of_its_model(seen: SlowSituation) -> str:
    """Name a worker that is compared with none, because those of its stage have other models of device."""
    places = [(worker.pp, worker.cp) for worker in seen.table.workers]
    lone = np.flatnonzero((seen.levels.peers == 1) & np.isfinite(seen.levels.level)).tolist()
    return next((seen.table.workers[number].name for number in lone if places.count(places[number]) > 1), "")


def _without_trace(seen: SlowSituation) -> str:
    """Name the ranks that the job has and of which there is no trace, by their number or else by their place."""
    workers = seen.table.workers
    traced = sorted({worker.rank for worker in workers if worker.rank is not None})
    places = {(worker.pp, worker.dp) for worker in workers}
    stages, replicas = ({place[axis] for place in places} for axis in (0, 1))
    holes = sorted((pp, dp) for pp in stages for dp in replicas if (pp, dp) not in places)
    if not (unseen := sorted({*range(seen.topology.world_size or 0)} - {*traced})) and not holes:
        # Where a tensor-parallel group has one trace, every fourth rank is there, or every eighth.
        apart = min((after - one for one, after in pairwise(traced)), default=1)
        unseen = sorted({*range(traced[0], traced[-1], apart)} - {*traced}) if traced else []
    if unseen and len(traced) == len(workers):
        return f"rank{'s' if len(unseen) > 1 else ''} {ranges(unseen)}"
    return ", ".join(f"pp{pp}/dp{dp}" for pp, dp in holes[:MOST_NAMED])


def _waits_inside(seen: SlowSituation) -> bool:
    """Whether each worker's step is one operation, and the trace lacks what it waits for: other ranks, or other stages."""
    table, compute = seen.table, seen.compute
    own = compute.worker * len(compute.steps) + compute.step
    if len(np.unique(own)) < len(own):
        return False
    if any(is_transfer(name) for name in table.operations):
        return False
    return len({worker.pp for worker in table.workers}) > 1 or not (table.kind == COMMUNICATION).any()


def _latent(seen: SlowSituation, number: int) -> Suspect:
    worker, times = seen.table.workers[number], float(np.exp(seen.outliers.excess[number]))
    per = " for each unit of work" if abs(np.log(work_times(seen, number))) > LEAST else ""
    why = f"{worker.name} takes {times:.2f} times as long{per} as its peers, and the job does not wait for it"
    return suspect_of(worker, 0.1, why)
