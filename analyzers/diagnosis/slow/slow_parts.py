"""Claims about what is no worker: the split into stages, the data, links, and hosts that stall."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.diagnosis.slow import paths, stalls
from analyzers.diagnosis.slow.claim import (
    DOUBTFUL,
    FEWEST_PEERS,
    LIKELY,
    MOST_NAMED,
    PROVEN,
    WORTH,
    evidence_of,
    finding,
    node_of,
    price,
    suspect_of,
    with_costs,
)
from analyzers.diagnosis.slow.doubts import alike
from analyzers.diagnosis.slow.op_table import LOADER, Worker
from analyzers.diagnosis.slow.paths import RECEIVER, SENDER
from analyzers.diagnosis.slow.pipeline import Pipeline
from analyzers.diagnosis.slow.since import risen
from analyzers.diagnosis.slow.situation import SlowSituation
from analyzers.diagnosis.slow.transfers import BACKWARD, FORWARD, even_edges
from analyzers.model.finding import Cause, Evidence, Finding, Kind, SlowPathClaim, Suspect

LINK_TIMES = 1.5  # a transfer that takes less than this times the others' is none of a slow link
USUAL = 0.5  # of the gaps: more of them in usual steps, and they are no pauses
GAPS = "what runs in the gaps of every step: sends, receives and stages, where the job is a pipeline"
ONE_REPLICA = 0.8  # its share of the time of long microbatches, for them to be its own
ONE_HOST = 0.7  # one host's share of what all stalls cost, for the stalls to be its own


def long_stage(seen: SlowSituation) -> Iterator[Finding]:
    """Yield a pipeline stage that is longer than the others on every replica."""
    if seen.costs is None or seen.pipeline is None or seen.costs.stages < WORTH:
        return
    loads = _loads(seen)
    longest = max(loads, key=lambda stage: loads[stage])
    if risen(seen, longest)[0] > 0:  # a split is uneven from the first step on
        return
    others = float(np.mean([load for stage, load in loads.items() if stage != longest]))
    replicas = len(seen.pipeline.replicas)
    times = loads[longest] / max(others, 1e-300)
    where = f"stage {longest} takes {times:.2f} times as long as the mean of the other {len(loads) - 1} stages"
    saved = f"an even split would save {price(seen, seen.costs.stages)}"
    source = next(worker for worker in seen.table.workers if worker.pp == longest)
    if replicas < 2:
        shown = Evidence(text=f"{where}; {saved}", source=source.source)
        missing = "a second replica would show whether the split is uneven or the machines of this stage are slow"
        yield finding(
            "slow_undecided", "slow", "unknown", evidence=(shown,), missing=(missing,), costs=seen.costs.stages
        )
        return
    shown = Evidence(text=f"{where}, on all {replicas} replicas alike; {saved}", source=source.source)
    suspect = Suspect(kind="stage", strength=PROVEN, why=shown.text, name=str(longest), evidence=(shown,))
    yield finding("slow_stage", "slow", "imbalance", suspect, evidence=with_costs(seen, shown), costs=seen.costs.stages)


def _loads(seen: SlowSituation) -> dict[int, float]:
    assert seen.pipeline is not None
    return {
        stage: float(np.median(array.sum(axis=0)))
        for stage, array in zip(seen.pipeline.stages, seen.pipeline.seconds, strict=True)
    }


def _of_one_worker(seen: SlowSituation, worker: Worker) -> Finding:
    """Return that one worker alone takes longer at times: longer data, or a machine that is slow at times."""
    assert seen.costs is not None
    longest = seen.costs.longest
    text = f"in {longest.steps:.0%} of the steps {worker.name} alone takes longer; without that the job would save"
    missing = f"how much work {worker.name} had then (a column `tokens`), or its clocks, power and temperature"
    shown = evidence_of(worker, f"{text} {price(seen, longest.costs)}")
    return finding("slow_undecided", "slow", "unknown", evidence=(shown,), missing=(missing,), costs=longest.costs)


def _in_whole_steps(seen: SlowSituation) -> Finding:
    """Return that workers take longer in some steps, for all of a step alike: its data, or cold caches after a restart."""
    assert seen.costs is not None
    saved = f"without that the job would save {price(seen, seen.costs.data)}"
    text = f"workers take longer in some steps, for all microbatches of a step alike, as with cold caches or longer data; {saved}"
    missing = "how much work workers had in each step (a column `tokens`), or when the job was started again"
    shown = (evidence_of(seen.table.workers[0], text),)
    return finding("slow_undecided", "slow", "unknown", evidence=shown, missing=(missing,), costs=seen.costs.data)


def uneven_data(seen: SlowSituation) -> Iterator[Finding]:
    """Yield that microbatches differ."""
    if seen.costs is None or seen.pipeline is None or max(seen.costs.data, seen.costs.longest.costs) < WORTH:
        return
    saved = f"even ones would save {price(seen, seen.costs.data)}"
    text = f"some microbatches take longer than others in all their operations, on changing workers; {saved}"
    source = seen.table.workers[0]
    longest = seen.costs.longest
    if longest.share > ONE_REPLICA and len(seen.pipeline.replicas) > 1:
        mine = [
            one for place, one in enumerate(seen.table.workers) if seen.pipeline.places[place][1] == longest.replica
        ]
        source = mine[0]
        if len(seen.pipeline.stages) < 2 and not np.isfinite(seen.compute.work).all():
            yield _of_one_worker(seen, source)
            return
        text = f"some microbatches of replica {source.dp} take longer than others in all its stages; {saved}"
        if len(mine) < 2:
            text = f"some microbatches of {source.name} are longer than others in all their operations; {saved}"
    if seen.costs.data < WORTH:
        return
    if seen.costs.in_whole_steps and len(seen.pipeline.stages) < 2 and not np.isfinite(seen.compute.work).all():
        yield _in_whole_steps(seen)
        return
    shown = Evidence(text=text, source=source.source)
    why = f"{text}: their sequence lengths differ, or what experts get"
    suspect = Suspect(kind="data", strength=LIKELY, why=why, evidence=(shown,))
    yield finding("slow_data", "slow", "data", suspect, evidence=with_costs(seen, shown), costs=seen.costs.data)


def slow_links(seen: SlowSituation) -> Iterator[Finding]:
    """Yield the links between stages on which transfers take longer than on the same links of other replicas."""
    if (
        seen.costs is None
        or seen.pipeline is None
        or seen.costs.links < WORTH
        or len(seen.pipeline.replicas) < FEWEST_PEERS
    ):
        return
    cells, every = _link_cells(seen)
    saved = f"as fast as the others they would save {price(seen, seen.costs.links)}"
    one_sided = [
        one for one in paths.patterns(sorted(cells.values()), every, _hosts(seen)) if one.kind in (SENDER, RECEIVER)
    ]
    suspects = [_one_sided(seen, one, saved) for one in one_sided]
    sided = {path for one in one_sided for path in one.paths}
    found: dict[tuple[int, int], float] = {}
    for cell in set(cells.values()) - sided:
        ends = (min(cell.source, cell.target), max(cell.source, cell.target))
        found[ends] = max(cell.times, found.get(ends, 0.0))
    for ends, times_as_long in sorted(found.items())[:MOST_NAMED]:
        workers = [seen.table.workers[end] for end in ends]
        ranks = tuple(sorted(one.rank for one in workers if one.rank is not None))
        stages = " – ".join(str(pp) for pp in sorted(one.pp for one in workers))
        where = " – ".join(str(one) for one in ranks) or f"stages {stages} of replica {workers[0].dp}"
        why = f"transfers between {where} take {times_as_long:.1f} times as long as between the same stages of other replicas"
        shown = evidence_of(workers[0], f"{why}; {saved}")
        suspects.append(
            Suspect(kind="link", strength=LIKELY, why=shown.text, ranks=ranks, name=where, evidence=(shown,))
        )
    if suspects:
        first = with_costs(seen, suspects[0].evidence[0])
        names = [worker.name for worker in seen.table.workers]
        listed = tuple(
            SlowPathClaim(source=names[one.source], target=names[one.target], times=one.times)
            for one in sorted(cells.values())
        )
        yield finding(
            "slow_link", "slow", "network", *suspects[:MOST_NAMED], together=True, evidence=first, paths=listed,
            costs=seen.costs.links,
        )  # fmt: skip


def _link_cells(seen: SlowSituation) -> tuple[dict[tuple[int, int], paths.SlowCell], list[tuple[int, int]]]:
    """Return the slow transfers by sending and receiving worker, and all that were compared."""
    assert seen.pipeline is not None
    played = seen.pipeline
    place = {(worker.pp, worker.dp): number for number, worker in enumerate(seen.table.workers)}
    slow: dict[tuple[int, int], paths.SlowCell] = {}
    every = []
    for way, onward in ((FORWARD, 1), (BACKWARD, -1)):
        times = played.transfer[way] / np.maximum(even_edges(played.transfer[way]), 1e-12)
        for stage, replica in np.ndindex(times.shape):
            ends = played.stages[stage], played.stages[(stage + onward) % len(played.stages)]
            source, target = (place.get((end, played.replicas[replica]), -1) for end in ends)
            if source < 0 or target < 0 or played.transfer[way][stage, replica] <= 0:
                continue
            every.append((source, target))
            if times[stage, replica] > LINK_TIMES:
                slow[source, target] = paths.SlowCell(source, target, float(times[stage, replica]))
    return slow, every


def _hosts(seen: SlowSituation) -> dict[int, str]:
    return {number: node for number in range(len(seen.table.workers)) if (node := node_of(seen, number))}


def _one_sided(seen: SlowSituation, one: paths.PathPattern, saved: str) -> Suspect:
    """Return a worker whose every transfer one way is slow, to whomever it is."""
    number = one.ends[0]
    times, worker = min(path.times for path in one.paths), seen.table.workers[number]
    what = (
        f"every transfer {'that' if one.kind == SENDER else 'to'} {worker.name}{' sends' if one.kind == SENDER else ''}"
    )
    why = f"{what} takes {times:.1f} times as long as between the same stages of other replicas; {saved}"
    return suspect_of(worker, LIKELY, why, node_of(seen, number))


def _are_usual(played: Pipeline) -> bool:
    """Whether most of the seconds in gaps are of the workers' usual steps: what ran or was waited for is not in the trace."""
    each = [idle.sum(axis=0) for idle in played.stalls]  # steps x replicas
    usual = sum(float(np.median(one, axis=0).sum()) * len(one) for one in each)
    return usual > USUAL * sum(float(one.sum()) for one in each)


def stalled_hosts(seen: SlowSituation) -> Iterator[Finding]:
    """Yield that hosts stall: one, by its loader or for what the trace does not have; or all and any, in pauses."""
    if seen.costs is None or seen.pipeline is None or seen.costs.stalls < WORTH:
        return
    if (
        not alike(seen) and min(worker.pp for worker in seen.table.workers) < 0
    ):  # they wait for stages that no column names
        return
    number, alone = seen.costs.stalled
    filler, kind = stalls.filled_by(seen.table, number, seen.pipeline.stalled(number))
    shown_alone = alone >= WORTH and kind == LOADER  # beside a loader that all have
    one_host = number >= 0 and (shown_alone or np.log(alone) > ONE_HOST * np.log(seen.costs.stalls))
    if number >= 0 and not one_host:
        filler, kind = stalls.filled_by(seen.table, -1, seen.pipeline.stalled(-1))
    if not one_host and _are_usual(seen.pipeline):
        missing = GAPS
        if kind == LOADER:
            missing = f"whether {filler}, which all hosts wait for in most steps, took less before: steps of then would show it"
        yield finding("slow_unmeasured", "unknown", "unknown", missing=(missing,))
        return
    costs = alone if shown_alone else seen.costs.stalls
    saved = f"without that the job would save {price(seen, costs)}"
    filled = f", in {filler} for the most part" if filler else ""
    cause: Cause
    if one_host:
        worker = seen.table.workers[number]
        why = f"the host of {worker.name} lets its device wait in every step{filled}; {saved}"
        suspect = suspect_of(worker, DOUBTFUL, why, node_of(seen, number))
        fault_class, cause = "slow_host", "unknown"
    else:
        why = f"hosts let their devices wait in some steps, not always the same ones{filled}; {saved}"
        shown = Evidence(text=why, source=seen.table.workers[0].source)
        of_kind: Kind = "storage" if kind == LOADER else "code"
        suspect = Suspect(kind=of_kind, strength=DOUBTFUL, why=why, evidence=(shown,))
        fault_class, cause = "slow_pauses", "code"
    if kind == LOADER:
        fault_class, cause = "slow_loader", "storage"
    evidence = with_costs(seen, *suspect.evidence)
    yield finding(fault_class, "slow", cause, suspect, evidence=evidence, costs=costs)
