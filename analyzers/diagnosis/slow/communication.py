"""Claims from timings of collectives and transfers: who comes late, which communicators and which paths are slow.

The longest collective is that of a victim, which waited: it names no one. A rank is named for what its own short record
shows, and never taken out for it: what holds it up, no timing of communication shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzers.diagnosis.slow import late_ranks, peer_transfers
from analyzers.diagnosis.slow.arrivals import Arrivals, join
from analyzers.diagnosis.slow.claim import DOUBTFUL, LIKELY, MOST_NAMED, finding, percent
from analyzers.diagnosis.slow.grouping import Floats
from analyzers.diagnosis.slow.kinds import unmeasured
from analyzers.diagnosis.slow.late_ranks import LateMember
from analyzers.diagnosis.slow.network_claims import (
    LEAST_SHARE,
    SPAN_UNKNOWN,
    slow_cells,
    slow_fabric,
    slow_paths,
    suspect_process,
)
from analyzers.diagnosis.slow.paths import SlowCell
from analyzers.diagnosis.slow.peer_transfers import PeerTransfers
from analyzers.model.finding import Evidence, Finding, Suspect
from collectors.records import CollectiveTimings

WHAT_HOLDS_IT = (
    "what holds it up, its computation, its host or its data: a trace of torch.profiler of each rank (docs/formats.md) "
    "would show it, and whether its part of the model is larger than the others'"
)
ENOUGH_RECENT = 20  # late operations at the end: fewer make it doubtful
RECORDS_OF_ALL = "records of every rank: one without them may be the one that the others wait for"
STAGES = (
    "whether stages are split evenly: ranks of each stage keep pace with one another, and how long a stage computes, no timing "
    "of communication shows; a trace of torch.profiler of each rank does (docs/formats.md)"
)


def claims(records: Sequence[CollectiveTimings]) -> Iterator[Finding]:
    """Yield what timings of communication show."""
    found = join(records)
    between = peer_transfers.pair_up(records, found.number)
    if not found.communicators and not between.seconds:
        yield unmeasured(_why_nothing(found))
        return
    bases = late_ranks.base_seconds(found)
    late = late_ranks.late_members(found, bases)
    slow, long = slow_cells(found, between), late_ranks.long_communicators(found)
    own = late_ranks.own_lateness(found, bases, late, _waits(found, between, slow, long))
    made = [*slow_fabric(found, bases, long), *slow_paths(found, between, slow)]
    explained = any(one.symptom == "slow" for one in made)
    made += _late(found, late, own, explained=explained)
    yield from made or (_nothing(found, bases, own, between),)


def _waits(
    found: Arrivals, between: PeerTransfers, slow: Sequence[SlowCell], long: Mapping[int, float]
) -> dict[tuple[int, int], float]:
    """Return what processes waited beside collectives that others held up: in transfers, and for transfers that are slow."""
    waited: dict[tuple[int, int], float] = defaultdict(float, between.waits)
    for cell in slow:
        extra = between.total[cell.source, cell.target] * (1 - 1 / cell.times)
        waited[cell.source, late_ranks.NETWORK] += extra
        waited[cell.target, late_ranks.NETWORK] += extra
    for index, times in long.items():
        one = found.communicators[index]
        extra = float(np.nanmin(one.seconds, axis=0).sum()) * one.scale * (1 - 1 / times)
        for who in one.members:
            waited[who, late_ranks.NETWORK] += extra
    return waited


def _why_nothing(found: Arrivals) -> str:
    if found.on_host:
        return "the timings are of the host's calls, which show no wait: NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=1 times kernels"
    return "no two ranks recorded the same collectives: NCCL Inspector's records of every rank would be comparable"


def _late(found: Arrivals, late: list[LateMember], own: list[LateMember], *, explained: bool) -> Iterator[Finding]:
    """Yield who comes late of its own accord; or that it cannot be decided. ``explained``: slow transfers make ranks late."""
    worth = [one for one in own if one.share >= LEAST_SHARE]
    if not worth:
        if costly := [one for one in late if one.share >= LEAST_SHARE and not own and not explained]:
            yield _undecided(found, costly, "each that comes late waits for another as long itself")
        return
    if any(one.many for one in worth) or len(worth) > max(1, min(MOST_NAMED, len(found.processes) // 4)):
        many = {one.process for one in late}
        shown = _shown(found, worth[0], f"{len(many)} of {len(found.processes)} ranks come late to their collectives")
        yield finding(
            "slow_together", "slow", "unknown", evidence=(shown,), missing=(WHAT_HOLDS_IT,), costs=_costs(worth)
        )
        return
    if not all(one.proven for one in worth):
        yield _undecided(found, worth, "of two members one waits always, and nothing shows which is unlike before")
        return
    suspects = tuple(_suspect(found, one) for one in worth)
    guilty = {one.process for one in worth}
    waiting = {who for one in worth for who in found.communicators[one.communicator].members} - guilty
    victims = tuple(sorted({found.processes[who].rank for who in waiting} - {-1}))
    yield finding(
        "late_rank", "slow", "unknown", *suspects, evidence=suspects[0].evidence, victims=victims,
        missing=(WHAT_HOLDS_IT,), costs=_costs(worth),
    )  # fmt: skip


def _costs(late: Sequence[LateMember]) -> float:
    return 1 / (1 - max(one.share for one in late))


def _undecided(found: Arrivals, late: Sequence[LateMember], why: str) -> Finding:
    shown = tuple(_shown(found, one, f"{_sentence(found, one)}; {why}") for one in late[:MOST_NAMED])
    return finding(
        "slow_undecided", "slow", "unknown", evidence=shown, missing=(WHAT_HOLDS_IT, RECORDS_OF_ALL), costs=_costs(late)
    )


def _suspect(found: Arrivals, late: LateMember) -> Suspect:
    process = found.processes[late.process]
    shown = _shown(found, late, _sentence(found, late))
    few = late.recent and len(found.communicators[late.communicator].bytes) - late.begin < ENOUGH_RECENT
    strength = LIKELY if late.p >= 0.8 and not few else DOUBTFUL
    return suspect_process(process, strength, shown)


def _sentence(found: Arrivals, late: LateMember) -> str:
    one, process = found.communicators[late.communicator], found.processes[late.process]
    p = "" if np.isnan(late.p) else f"; P = {min(late.p, 1.0):.2f}: {_in_words(late.p)}"
    newest, before, since = "", "", ""
    if late.recent:
        count = len(one.bytes)
        newest = f"newest {one.scale * (count - late.begin):,.0f} of {one.scale * count:,.0f} "
        before, since = (
            ", and not to those before",
            f" since then, the newest {late.wait / max(late.share, 1e-9):.3g} s",
        )
    return (
        f"{process.name} comes last to the {newest}collectives of {len(one.members)} ranks{before}: its own record of one is the "
        f"shortest, and the others wait {1e3 * late.gap:.3g} ms for it, {percent(1 / (1 - late.share))} of the time{since}{p}"
    )


def _in_words(p: float) -> str:
    return "the wait explains it" if p >= 0.8 else "the transfers are slow too" if p <= 0.2 else "partly the transfers"


def _shown(found: Arrivals, late: LateMember, text: str) -> Evidence:
    one = found.communicators[late.communicator]
    process = found.processes[late.process]
    source = one.sources[one.members.index(late.process)] if late.process in one.members else one.sources[0]
    return Evidence(text=text, source=source, rank=process.rank if process.rank >= 0 else None)


def _nothing(found: Arrivals, bases: list[Floats], own: Sequence[LateMember], between: PeerTransfers) -> Finding:
    """Return that no rank and no path costs the job much, or that what would show it is missing."""
    one = found.communicators[0] if found.communicators else None
    if any(np.isnan(late.share) for late in own):
        return finding("slow_unmeasured", "unknown", "unknown", missing=(SPAN_UNKNOWN,), evidence=_latent(found, own))
    if one is None or not all(each.whole for each in found.communicators):
        return unmeasured(RECORDS_OF_ALL)
    if all(each.seconds.shape[1] < late_ranks.FEWEST_OPERATIONS for each in found.communicators):
        return unmeasured(
            "fewer than ten collectives of each communicator were recorded: more would show who comes late"
        )
    source = one.sources[0]
    if (apart := late_ranks.steady_share(found)) >= LEAST_SHARE:
        share = percent(1 / (1 - min(apart, 0.999)))
        text = f"ranks come to collectives at unlike times, steadily, {share} of the time, and none stands apart"
        shown = Evidence(text=text, source=source)
        return finding("slow_undecided", "slow", "unknown", evidence=(shown,), missing=(WHAT_HOLDS_IT,))
    for which, rare in (
        ("", late_ranks.late_at_times(found, bases)),
        ("the newest ", late_ranks.late_now(found, bases)),
    ):
        if rare is None or rare[3] < LEAST_SHARE:
            continue
        process, times, of, waited = rare
        text = (
            f"{found.processes[process].name} alone comes late to {times:,} of {which}{of:,} collectives, and the others wait "
            f"for it {percent(1 / (1 - waited))} of {'their' if which else 'the'} time"
        )
        shown = Evidence(text=text, source=source)
        return finding("slow_undecided", "slow", "unknown", evidence=(shown,), missing=(WHAT_HOLDS_IT,))
    if between.seconds:
        return unmeasured(STAGES)
    text = f"no rank of {len(found.processes):,} comes late to collectives for a tenth of the time, and no path is slow"
    shown = Evidence(text=text, source=source)
    return finding("even_pace", "healthy", "none", evidence=(shown, *_latent(found, own)))


def _latent(found: Arrivals, own: Sequence[LateMember]) -> tuple[Evidence, ...]:
    return tuple(_shown(found, one, _sentence(found, one)) for one in own[:MOST_NAMED] if np.isfinite(one.share))
