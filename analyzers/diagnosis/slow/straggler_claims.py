"""Claims about ranks that a detector inside the job reports as slow, report after report.

One report is weak: a long sequence, a neighbour's burst. A rank is named that is slow in most reports up to the newest. The job
goes on with it, and a report evicts none: its machine is tested.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzers.diagnosis.slow.claim import DOUBTFUL, LIKELY, MOST_NAMED, finding
from analyzers.diagnosis.slow.straggler_table import StragglerTable, tabulate
from analyzers.model.finding import Evidence, Finding, Kind, Suspect
from analyzers.model.ranges import ranges
from collectors.records import StragglerReports
from collectors.records.straggler_reports import CLOCK, TEMPERATURE

FEWEST_REPORTS = FEWEST_UNITS = 3
STEADY = 0.7  # of the reports, in which a machine that is slow is named
NEWEST, OF_NEWEST = 3, 2  # it is slow now: so many of the newest reports name it
THROTTLED, HOTTER_CELSIUS = 0.95, 15.0
DETECTORS = {"megatron": "Megatron-LM's detector", "nvrx": "the resiliency extension's detector"}
MORE = "more reports would show whether it is always slow"
A_TRACE = "a trace of torch.profiler of each rank (docs/formats.md) would show who is slow, and why"
STAGES = "the log does not show the job's pipeline stages, which have unlike work: its lines from the job's start would"


@dataclass(frozen=True)
class _Steady:
    """A unit that is slow in most reports since one of them, by index.

    ``times``: how many times as long it takes. ``began``: enough reports before that one name no rank, and its own past is a
    reference. ``alike``: it was compared with ranks of the same duty; None: that is not known.
    """

    unit: int
    since: int
    named: int
    times: float
    began: bool
    alike: bool | None

    @property
    def is_comparable(self) -> bool:
        """Whether it was compared with ranks of the same duty, or with what it was before."""
        return self.began or self.alike is True


def reported_stragglers(records: Sequence[StragglerReports], nodes: Mapping[int, str]) -> Iterator[Finding]:
    """Yield whom the reports name, by ``named_in``. Of several logs the one with most reports."""
    tables = [table for record in records if (table := tabulate(record)) is not None]
    table = max(tables, key=lambda one: (len(one.values), one.record.source), default=None)
    if table is not None:
        yield from named_in(table, nodes)


def named_in(table: StragglerTable, nodes: Mapping[int, str]) -> Iterator[Finding]:
    """Yield whom the reports of one log name; nothing where ranks differ as healthy ones do. ``nodes``: of ranks."""
    steady = _steady(table)
    many = sum(one.many for one in table.slow)
    if (
        many >= max(FEWEST_REPORTS, STEADY * len(table.slow))
        or len(steady) > MOST_NAMED
        or 4 * len(steady) > max(table.units, 4)
    ):
        yield _together(table, steady)
    elif not steady:
        yield from _weak(table)
    elif not all(_decides(table, one) for one in steady):
        yield _undecided(table, steady)
    else:
        yield _named(table, steady, nodes)


def _steady(table: StragglerTable) -> list[_Steady]:
    found = []
    for unit in sorted({unit for one in table.slow for unit in one.units}):
        places = [index for index, one in enumerate(table.slow) if unit in one.units]
        if sum(index >= len(table.slow) - NEWEST for index in places) < OF_NEWEST:
            continue
        for number, since in enumerate(places):
            count = len(places) - number
            if count >= max(FEWEST_REPORTS, STEADY * (len(table.slow) - since)):
                found.append(_since(table, unit, places[number:]))
                break
    return found


def _since(table: StragglerTable, unit: int, places: list[int]) -> _Steady:
    reports = [table.slow[index] for index in places]
    times = sorted(report.units[unit] for report in reports)
    before = table.slow[: places[0]]
    healthy = sum(not one.units and not one.many for one in before)
    known = table.of_kernels or table.stages is not None
    compared = [
        unit in one.units for one in table.slow[places[0] :] if one.alike
    ]  # a report may list none of its stage
    alike = sum(compared) >= max(FEWEST_REPORTS, STEADY * len(compared)) if known else None
    began = healthy >= max(FEWEST_REPORTS, STEADY * len(before))
    return _Steady(unit, places[0], len(places), times[len(times) // 2], began, alike)


def _decides(table: StragglerTable, one: _Steady) -> bool:
    """Whether reports show that it is slow: where they may compare unlike stages, so many that chance has not picked one rank."""
    if one.is_comparable:
        return one.began or table.units >= FEWEST_UNITS
    inside = 0 < one.unit < table.units - 1  # the first and the last stage have an embedding and a loss
    return one.alike is None and inside and one.named >= 2 * FEWEST_REPORTS and table.units >= FEWEST_UNITS


def _shown(table: StragglerTable, text: str, index: int = -1) -> Evidence:
    at = table.at[index]
    return Evidence(text=text, source=table.record.source, at=None if math.isnan(at) else at)


def _text(table: StragglerTable, one: _Steady) -> str:
    ranks, reports = table.ranks(one.unit), len(table.slow) - one.since
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}, which wait for one another,"
    when = f"in {one.named} of its last {reports} reports" if reports > 1 else "in its newest report"
    times = "" if math.isnan(one.times) else f", {one.times:.2f} times as long as others"
    before = "; before, it was as fast as they" if one.began else ""
    return f"{_detector(table)} names {who} as slow {when}{times}{before}"


def _detector(table: StragglerTable) -> str:
    return DETECTORS.get(table.record.told_by, "a detector inside the job")


def _named(table: StragglerTable, steady: list[_Steady], nodes: Mapping[int, str]) -> Finding:
    suspects = tuple(_suspect(table, one, nodes) for one in steady)
    since = min(one.since for one in steady)
    missing = () if all(one.is_comparable for one in steady) else (STAGES,)
    evidence = tuple(shown for suspect in suspects for shown in suspect.evidence)
    onset = table.at[since] if all(one.began for one in steady) and not math.isnan(table.at[since]) else None
    times = [one.times for one in steady if not math.isnan(one.times)]
    return finding(
        "slow_reported", "slow", "machine", *suspects, together=True, evidence=evidence, missing=missing, onset=onset,
        costs=max(times, default=1.0),
    )  # fmt: skip


def _suspect(table: StragglerTable, one: _Steady, placed: Mapping[int, str]) -> Suspect:
    text = _text(table, one)
    shown = [_shown(table, text, one.since)]
    rank, supports = _worn(table, one)
    shown += supports
    ranks = table.ranks(one.unit) if rank is None else (rank,)
    strength = LIKELY if supports or one.is_comparable else DOUBTFUL
    nodes = {table.nodes.get(each) or placed.get(each) for each in ranks}
    node = nodes.pop() if len(nodes) == 1 else None
    kind: Kind = "rank" if len(ranks) == 1 else "group"
    why = "; ".join(each.text for each in shown)
    return Suspect(kind=kind, strength=strength, why=why, ranks=ranks, node=node, evidence=tuple(shown))


def _worn(table: StragglerTable, one: _Steady) -> tuple[int | None, list[Evidence]]:
    """Return which rank of a unit has the lowest clock or the hottest GPU while it is slow, and evidence of it."""
    ranks = frozenset(table.ranks(one.unit))
    found: tuple[int | None, list[Evidence]] = None, []
    for quantity, pick in ((CLOCK, min), (TEMPERATURE, max)):
        ends = [values[quantity] for values in table.values[one.since :] if len(values.get(quantity, ())) > 1]
        picked = [(pick(of, key=of.__getitem__), min(of.values()), max(of.values())) for of in ends]
        own = [(rank, low, high) for rank, low, high in picked if rank in ranks and _apart(quantity, low, high)]
        if len(own) < max(FEWEST_REPORTS, STEADY * len(picked)):
            continue
        named = {rank for rank, _, _ in own}
        rank = named.pop() if len(named) == 1 else None
        low, high = own[-1][1:]
        whose = "a GPU of theirs" if rank is None else f"the GPU of rank {rank}"
        text = f"{whose} has the lowest clock of all, {low:.0f} of {high:.0f} MHz"
        if quantity == TEMPERATURE:
            text = f"{whose} is the hottest of all, {high:.0f} °C where the coolest has {low:.0f} °C"
        found = (found[0] if found[0] is not None else rank), [*found[1], _shown(table, text)]
    return found


def _apart(quantity: str, low: float, high: float) -> bool:
    return low <= THROTTLED * high if quantity == CLOCK else high - low >= HOTTER_CELSIUS


def _together(table: StragglerTable, steady: list[_Steady]) -> Finding:
    named = sorted({rank for one in steady for rank in table.ranks(one.unit)})
    who = f"ranks {ranges(named)}" if named else "more ranks than a report names"
    text = f"{_detector(table)} reports that {who} are slow together"
    missing = "what these ranks share: rack, power, cooling, switch, model of device, stage, or their part of the data"
    return finding("slow_together", "slow", "unknown", evidence=(_shown(table, text),), missing=(missing,))


def _undecided(table: StragglerTable, steady: list[_Steady]) -> Finding:
    shown = tuple(_shown(table, _text(table, one), one.since) for one in steady)
    why = (
        "two ranks differ, and either may be the unusual one"
        if table.units < 3
        else "its stage may have more work than others"
    )
    return finding("slow_undecided", "slow", "unknown", evidence=shown, missing=(f"{why}: {A_TRACE}",))


def _weak(table: StragglerTable) -> Iterator[Finding]:
    """Yield that the newest reports name a rank and are too few, or that most name another each time."""
    newest = table.slow[-1].units if table.slow else {}
    often = sum(bool(one.units) for one in table.slow)
    if newest and len(table.slow) < FEWEST_REPORTS:
        unit = max(newest, key=lambda one: (newest[one], -one))
        text = _text(table, _since(table, unit, [len(table.slow) - 1]))
        yield finding("slow_undecided", "slow", "unknown", evidence=(_shown(table, text),), missing=(MORE,))
    elif often >= max(FEWEST_REPORTS, STEADY * len(table.slow)):
        unit, count = Counter(unit for one in table.slow for unit in one.units).most_common(1)[0]
        who = f"rank{'s' if table.width > 1 else ''} {ranges(table.ranks(unit))} most often, but not in the newest"
        text = f"{often} of {len(table.slow)} reports name a slow rank, {who if 2 * count > often else 'each time another'}"
        yield finding("slow_undecided", "slow", "unknown", evidence=(_shown(table, text),), missing=(A_TRACE,))
