"""Claims about workers: one that is slow, several, and those of which it does not show which."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.diagnosis.slow import outliers
from analyzers.diagnosis.slow.claim import (
    DOUBTFUL,
    FEWEST_PEERS,
    LIKELY,
    MOST_NAMED,
    PROVEN,
    SHARED,
    WORTH,
    evidence_of,
    finding,
    listed,
    node_of,
    price,
    suspect_of,
    with_costs,
)
from analyzers.diagnosis.slow.costs import without_workers
from analyzers.diagnosis.slow.doubts import (
    compared,
    doubt,
    has_other_stage,
    is_longer_by_tokens,
    of_known_work,
    of_one_kind,
    several,
    work_times,
)
from analyzers.diagnosis.slow.outliers import LEAST
from analyzers.diagnosis.slow.situation import SlowSituation
from analyzers.model.finding import Finding, Suspect
from analyzers.model.ranges import ranges

ALWAYS = 0.8  # a machine that is slow is so in this share of its steps
AS_SLOW = 0.5  # of another's excess, from which on a worker may be slow by the same cause
LATENT = 1.01  # a worker that costs the job less does not slow it
FEWEST_STEPS, FEWEST_TIMES = 3, 4
FIRST_OR_LAST = "the first and the last rank may have other duties: an embedding, a loss, the log"


def slow_workers(seen: SlowSituation) -> Iterator[Finding]:
    """Yield the workers that are slower than their peers and that the job waits for."""
    slow = [
        number for number in seen.outliers.slow.tolist() if cost_of(seen, number) >= LATENT or seen.pipeline is None
    ]
    alike = _as_slow(seen, slow)
    if (_is_many(seen, alike) and (seen.together or LATENT) >= LATENT) or of_one_kind(seen, slow):
        yield _many(seen, alike)
        return
    if not slow:
        return
    if _once(seen):
        yield _too_few(seen, slow)
        return
    doubts = [(number, found) for number in slow if (found := doubt(seen, number) or _at_times(seen, number))]
    if doubts:
        yield _doubtful(seen, doubts)
        return
    suspects = tuple(_suspect(seen, number) for number in slow)
    evidence = tuple(one for suspect in suspects for one in suspect.evidence[:1])
    yield finding(
        "slow_worker", "slow", "machine", *suspects, together=True, evidence=with_costs(seen, *evidence),
        costs=seen.together or 1.0, victims=_victims(seen, slow),
    )  # fmt: skip


def _as_slow(seen: SlowSituation, slow: list[int]) -> list[int]:
    """Return the workers that are about as slow as these, or all slow ones where none is given.

    Where many are slow, a step waits for another of them each time, and each alone costs little.
    """
    excess = seen.outliers.excess
    least = AS_SLOW * min((float(excess[number]) for number in slow), default=0.0)
    return [number for number in seen.outliers.slow.tolist() if excess[number] >= least]


def _is_many(seen: SlowSituation, slow: list[int]) -> bool:
    return len(slow) > MOST_NAMED or 4 * len(slow) > max(len(seen.table.workers), 4)


def _once(seen: SlowSituation) -> bool:
    """Whether a worker did the same work too few times for more than an accident, or a long microbatch, to show."""
    each = np.bincount(seen.compute.worker, minlength=1) / max(len(np.unique(seen.compute.operation)), 1)
    return float(np.median(each[each > 0])) < FEWEST_TIMES


def _too_few(seen: SlowSituation, slow: list[int]) -> Finding:
    worker, times = seen.table.workers[slow[0]], float(np.exp(seen.outliers.excess[slow[0]]))
    text = f"{worker.name} took {times:.2f} times as long as its peers, and did each operation fewer than {FEWEST_TIMES} times"
    missing = "more steps would show whether it is always slow, or had more work once"
    return finding(
        "slow_undecided", "slow", "unknown", evidence=(evidence_of(worker, text),), missing=(missing,), costs=times
    )


def _at_times(seen: SlowSituation, number: int) -> tuple[str, str] | None:
    """Return that a worker is slow in some steps only, where it is not known whether the job waits for it then."""
    share = _slow_share(seen, number)[1]
    if seen.pipeline is not None or seen.whole_batches or share >= ALWAYS:
        return None
    return f"only in {share:.0%} of the steps, and what that costs the job is not known", "more steps, with starts"


def _doubtful(seen: SlowSituation, doubts: list[tuple[int, tuple[str, str]]]) -> Finding:
    evidence = []
    for number, (why, _) in doubts:
        worker, times = seen.table.workers[number], float(np.exp(seen.outliers.excess[number]))
        evidence.append(
            evidence_of(
                worker, f"{worker.name} takes {times:.2f} times as long{_for_what(seen, number)} as its peers: {why}"
            )
        )
    missing = tuple(dict.fromkeys(decides for _, (_, decides) in doubts))
    return finding(
        "slow_undecided", "slow", "unknown", evidence=tuple(evidence), missing=missing, costs=seen.together or 1.0
    )


def _victims(seen: SlowSituation, slow: list[int]) -> tuple[int, ...]:
    guilty = {seen.table.workers[number].rank for number in slow}
    return tuple(sorted({one.rank for one in seen.table.workers if one.rank is not None and one.rank not in guilty}))


def cost_of(seen: SlowSituation, number: int) -> float:
    """Return how many times as long steps take because of a worker."""
    return (seen.by_worker or {}).get(number, 1.0)


def _suspect(seen: SlowSituation, number: int) -> Suspect:
    worker, times = seen.table.workers[number], float(np.exp(seen.outliers.excess[number]))
    strength, doubt = _strength(seen, number)
    cost = cost_of(seen, number)
    since = _since(seen, number)
    peers = int(seen.levels.peers[number]) - 1
    against = f"{peers} peer{'s' if peers != 1 else ''} of its duty" if not seen.whole_batches else "it took before"
    same = _for_what(seen, number)
    said = f"{worker.name} takes {times:.2f} times as long{same} as {against}{since}"
    alone = len(seen.outliers.slow) < 2
    costs = (
        f"{'this costs' if alone else 'alone it would cost'} the job {price(seen, cost)}"
        if seen.pipeline is not None
        else ""
    )
    why = "; ".join(part for part in (said, costs, doubt) if part)
    return suspect_of(worker, strength, why, node_of(seen, number))


def _for_what(seen: SlowSituation, number: int) -> str:
    """Say what the times of a worker and its peers are for: the same work, or a unit of it where they have unlike amounts."""
    if not of_known_work(seen, number):
        return ""
    if abs(np.log(work_times(seen, number))) >= LEAST:
        return " for each unit of work"
    tokens = np.isfinite(seen.compute.work[seen.compute.worker == number]).any()
    return " for as many tokens" if tokens else " for the same work"


def _since(seen: SlowSituation, number: int) -> str:
    at = int(seen.outliers.changed_at[number])
    return f", since step {int(seen.table.steps[at])}" if at >= 0 else ""


def _slow_share(seen: SlowSituation, number: int) -> tuple[int, float]:
    """Return in how many steps a worker is known since it became slow, and in which share of them it is so."""
    by_step = seen.levels.by_step[number] - seen.levels.shared[number]
    at = max(int(seen.outliers.changed_at[number]), 0)
    known = by_step[at:][np.isfinite(by_step[at:])]
    return len(known), float(np.mean(known > seen.outliers.excess[number] / 2)) if len(known) else 0.0


def _strength(seen: SlowSituation, number: int) -> tuple[float, str]:
    """Return how sure it is that a worker's machine is slow, and what speaks against."""
    steps, share = _slow_share(seen, number)
    if steps < FEWEST_STEPS:
        return DOUBTFUL, f"only {steps} step{'s' if steps > 1 else ''} of the trace: more would decide"
    if share < ALWAYS:
        return DOUBTFUL, f"only in {share:.0%} of the steps"
    if seen.whole_batches:
        return LIKELY, "whole batches do not show whether it computes or waits"
    if (peers := int(seen.levels.peers[number]) - 1) < FEWEST_PEERS:
        few = "two peers only show it" if peers == 2 else "one peer only shows it"
        return (LIKELY, few) if of_known_work(seen, number) else (DOUBTFUL, f"{few}, and nothing how much work it had")
    if several(seen, seen.outliers.slow.tolist()):
        return LIKELY, "others are slow at the same time"
    if not compared(seen, number):
        text = "nothing of the trace shows that the others have the same duty"
        return (DOUBTFUL, f"{text}; {FIRST_OR_LAST}") if _is_first_or_last(seen, number) else (LIKELY, text)
    if not of_known_work(seen, number):
        text = "nothing of the trace shows how much work it had: tokens, its stage, or other stages of its replica"
        return (DOUBTFUL, f"{text}; {FIRST_OR_LAST}") if _is_first_or_last(seen, number) else (LIKELY, text)
    if not has_other_stage(seen, number) and not is_longer_by_tokens(seen, number):
        return LIKELY, "as many tokens may cost unlike: longer documents, images or experts would look the same"
    if cost_of(seen, number) < WORTH:
        return LIKELY, "" if seen.pipeline is not None else "what that costs the job is not known"
    if not np.isfinite(seen.step_seconds).any():
        return LIKELY, "without a column of starts its cost is not proven"
    return PROVEN, ""


def _is_first_or_last(seen: SlowSituation, number: int) -> bool:
    """Whether a worker without a stage or a replica has the lowest or the highest rank of all."""
    ranks, worker = [one.rank for one in seen.table.workers if one.rank is not None], seen.table.workers[number]
    return max(worker.pp, worker.dp) < 0 and worker.rank in (min(ranks, default=None), max(ranks, default=None))


def _many(seen: SlowSituation, slow: list[int]) -> Finding:
    """Return that many workers are slow at once: what they share is at fault, and no machine by itself."""
    names = listed([seen.table.workers[number] for number in slow])
    changed = [number for number in slow if seen.outliers.changed_at[number] >= 0]
    before = (
        f"; {listed([seen.table.workers[number] for number in changed])} longer than before, too" if changed else ""
    )
    if len(changed) == len(slow):
        first = min(int(seen.outliers.changed_at[number]) for number in changed)
        before = f", and longer than they themselves did before step {int(seen.table.steps[first])}"
    text = f"{len(slow):,} of {len(seen.table.workers):,} workers take longer than their peers, {names}{before}"
    return finding(
        "slow_together", "slow", "unknown", evidence=with_costs(seen, evidence_of(seen.table.workers[slow[0]], text)),
        missing=(SHARED,), costs=seen.together or 1.0,
    )  # fmt: skip


def open_sets(seen: SlowSituation) -> Iterator[Finding]:
    """Yield the sets of workers of which some are slow where it is not shown which."""
    for members in seen.outliers.open:
        level = seen.levels.level[members]
        ordered = np.sort(level)
        slower = level >= ordered[outliers.widest_gap(ordered)]
        excess = np.zeros(len(seen.table.workers))
        excess[members[slower]] = level[slower] - float(np.median(level[~slower]))
        times, costs = float(np.exp(np.median(excess[members[slower]]))), float(np.exp(excess.max()))
        if seen.pipeline is not None:
            since = np.zeros(len(excess), np.int64)
            healed = without_workers(seen.pipeline, members[slower], excess, since)
            costs = seen.pipeline.slowdown(healed)
        if costs < LATENT:
            continue
        those, others = (
            [seen.table.workers[one] for one in part.tolist()] for part in (members[slower], members[~slower])
        )
        take = "takes" if len(those) == 1 else "take"
        text = f"{listed(those)} {take} {times:.2f} times as long as {listed(others)}: some are slow, or some fast"
        if _once(seen):
            yield finding(
                "slow_unmeasured", "unknown", "unknown", evidence=(evidence_of(those[0], text),),
                missing=(f"whether that is so in more than {FEWEST_TIMES - 1} runs of an operation: more steps would show it",),
            )  # fmt: skip
            continue
        missing = "a third replica, or the steps before it began, would show which of them is slow"
        if len(members) > MOST_NAMED:
            missing = "models of device, clocks, power and temperature of these machines, or the steps before it began"
        shown = with_costs(seen, evidence_of(those[0], text))
        yield finding("slow_undecided", "slow", "unknown", evidence=shown, missing=(missing,), costs=costs)


def unsure_workers(seen: SlowSituation) -> Iterator[Finding]:
    """Yield a worker that took longer than its peers, and whose steps vary so much that chance may have done that."""
    for number in seen.outliers.unsure[:1].tolist():
        worker, times = seen.table.workers[number], float(np.exp(seen.levels.level[number]))
        text = f"{worker.name} took {times:.2f} times as long as its peers, and its steps vary so much that this may be chance"
        shown = (evidence_of(worker, text),)
        yield finding(
            "slow_undecided", "slow", "unknown", evidence=shown, missing=("more steps would decide",), costs=times
        )


def slow_replicas(seen: SlowSituation) -> Iterator[Finding]:
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
    shown = evidence_of(workers[0], text)
    yield finding("slow_together", "slow", "unknown", evidence=(shown,), missing=(missing,), costs=times)
