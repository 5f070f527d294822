"""Reports of stragglers as tables: of each report, who was slow in it by more than healthy ranks differ.

Megatron-LM's time is of the forward pass with the waits for tensor- and context-parallel peers: those are one unit. Stages have
unlike work, and only ranks of one stage are compared: by each way to number stages, where the log does not say which it is.
The extension's scores are of a rank's own kernels without communication. The fastest rank of many is no centre: who is slow
stands apart from those that come next.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np

from analyzers.diagnosis.slow.claim import MOST_NAMED, WORTH
from collectors.records import STRAGGLER_COLUMNS, StragglerReports
from collectors.records.straggler_reports import BELOW_INDIVIDUAL, BELOW_RELATIVE, INDIVIDUAL, RELATIVE, SECONDS, TFLOPS

OF_EXTREMES = 1.15  # times the fastest of all: where only the two ends are named, healthy ranks differ by less
Values = Mapping[str, Mapping[int, float]]  # quantity → rank → value


@dataclass(frozen=True)
class SlowInReport:
    """Who was slow in one report: unit → how many times as long it took, NaN where no value is given.

    ``many``: more are slow than it names. ``alike``: those that it was compared with have the same duty.
    """

    units: Mapping[int, float]
    many: bool = False
    alike: bool = True


@dataclass(frozen=True)
class StragglerTable:
    """One log's reports, in their order; ``nodes``: of the ranks that a report places."""

    record: StragglerReports
    at: tuple[float, ...]
    values: tuple[Values, ...]
    nodes: Mapping[int, str]

    @property
    def of_kernels(self) -> bool:
        """Whether it compares a rank's own kernels, and no waits."""
        return self.record.told_by == "nvrx"

    @cached_property
    def width(self) -> int:
        """Return how many ranks with consecutive numbers wait for one another in what is timed."""
        sizes = self.record.sizes
        return 1 if self.of_kernels else max(sizes.get("tp", 1), 1) * max(sizes.get("cp", 1), 1)

    @property
    def stages(self) -> int | None:
        """Return how many pipeline stages there are, None where that is not known."""
        return self.record.sizes.get("pp")

    @cached_property
    def world_size(self) -> int:
        """Return the number of ranks, or the least that it is."""
        highest = max((rank for each in self.values for of in each.values() for rank in of), default=-1)
        return max(self.record.world_size or 0, highest + 1)

    @cached_property
    def units(self) -> int:
        """Return how many units are compared with one another."""
        return self.world_size // self.width // (1 if self.of_kernels else max(self.stages or 1, 1))

    def ranks(self, unit: int) -> tuple[int, ...]:
        """Return the ranks of a unit."""
        return tuple(range(unit * self.width, min((unit + 1) * self.width, self.world_size)))

    @cached_property
    def slow(self) -> tuple[SlowInReport, ...]:
        """Return who was slow in each report."""
        return tuple(self._slow_in(values) for values in self.values)

    def _slow_in(self, values: Values) -> SlowInReport:
        if self.of_kernels:
            return self._by_score(values)
        listed = {rank: 1 / value for rank, value in values.get(TFLOPS, {}).items() if value > 0}
        missing = self.record.listed if len(listed) < self.world_size else 0
        grouped = [self._by_unit(self._of_one_stage(listed, ranks)) for ranks in self._between_stages]
        if all(len(of_stage) > 1 for of_stage in grouped):  # whoever is slow is so by each numbering that there may be
            found = [_apart(of_stage, missing) for of_stage in grouped]
            units = {unit: times for unit, times in found[0].units.items() if all(unit in one.units for one in found)}
            return SlowInReport(units, any(one.many for one in found), self.stages is not None)
        return replace(_of_extremes(self._by_unit(values.get(SECONDS, {}))), alike=self.stages == 1)

    def _by_unit(self, costs: Mapping[int, float]) -> Mapping[int, float]:
        found: dict[int, float] = {}
        for rank, cost in costs.items():
            unit = rank // self.width
            found[unit] = max(found.get(unit, 0.0), cost)
        return found

    def _by_score(self, values: Values) -> SlowInReport:
        for scores, below in ((RELATIVE, BELOW_RELATIVE), (INDIVIDUAL, BELOW_INDIVIDUAL)):
            costs = {rank: 1 / score for rank, score in values.get(scores, {}).items() if score > 0}
            if costs:
                return _apart(costs, self.record.listed if len(costs) < self.world_size else 0)
            if named := values.get(below):
                many = len(named) > MOST_NAMED
                return SlowInReport({} if many else dict.fromkeys(named, math.nan), many)
        return SlowInReport({})

    @property
    def _between_stages(self) -> tuple[int, ...]:
        """Return how many ranks a stage may be from the next; Megatron-LM has stages outermost, or replicas if asked to."""
        if not self.stages or self.stages < 2 or self.world_size % self.stages:
            return (self.world_size,)
        outside, inside = self.world_size // self.stages, self.width
        known = self.record.sizes.get("stages_inside")
        return (outside, inside) if known is None else (inside,) if known else (outside,)

    def _of_one_stage(self, costs: Mapping[int, float], ranks: int) -> Mapping[int, float]:
        """Return those of the slowest rank's stage, where so many ranks lie between a stage and the next."""
        count, slowest = self.stages or 1, max(costs, key=lambda rank: (costs[rank], -rank), default=0)
        return {rank: cost for rank, cost in costs.items() if rank // ranks % count == slowest // ranks % count}


def _of_extremes(costs: Mapping[int, float]) -> SlowInReport:
    if len(costs) < 2:
        return SlowInReport({})
    slowest, fastest = max(costs, key=lambda unit: costs[unit]), min(costs.values())
    times = costs[slowest] / fastest if fastest > 0 else 1.0
    return SlowInReport({slowest: times} if times >= OF_EXTREMES else {})


def _apart(costs: Mapping[int, float], listed: int) -> SlowInReport:
    """Return the few that stand apart from the next. ``listed``: so many of the slowest are named; 0: all ranks are."""
    ordered = sorted(costs, key=lambda unit: (-costs[unit], unit))
    steps = [costs[one] / costs[following] for one, following in pairwise(ordered)]
    if not steps or max(steps) < WORTH:
        return SlowInReport({})
    count = steps.index(max(steps)) + 1
    if 2 * count > len(ordered):  # a few are fast, and the others are as usual
        return SlowInReport({})
    if count > MOST_NAMED or (listed and count >= listed):
        return SlowInReport({}, many=True)
    others = float(np.median([costs[unit] for unit in ordered[count:]]))
    return SlowInReport({unit: costs[unit] / others for unit in ordered[:count]})


def tabulate(record: StragglerReports) -> StragglerTable | None:
    """Return a record's reports; None where its columns are not whole."""
    columns = {}
    for name, code in STRAGGLER_COLUMNS.items():
        data = record.columns.get(name, b"")
        if len(data) != record.count * np.dtype(code).itemsize:
            return None
        columns[name] = np.frombuffer(data, code)
    reports = max(record.reports, int(columns["report"].max(initial=0)))
    values: list[defaultdict[str, dict[int, float]]] = [
        defaultdict(dict) for _ in range(min(reports, record.count + record.reports))
    ]
    at = [math.nan] * len(values)
    nodes: dict[int, str] = {}
    for number, when, rank, node, quantity, value in zip(
        *(columns[name].tolist() for name in STRAGGLER_COLUMNS), strict=True
    ):
        if not 0 < number <= len(values) or not 0 <= quantity < len(record.strings) or rank < 0:
            continue
        at[number - 1] = when
        values[number - 1][record.strings[quantity]][rank] = value
        if 0 <= node < len(record.strings):
            nodes[rank] = record.strings[node]
    return StragglerTable(record, tuple(at), tuple(values), nodes)


def joined(tables: Sequence[StragglerTable]) -> StragglerTable:
    """Return what one log's parts hold together, in the order of their reading. The job's sizes stand in one of them alone."""
    newest = tables[-1].record
    told_by = next((one.record.told_by for one in reversed(tables) if one.record.told_by), "")
    sized = next((one.record for one in reversed(tables) if one.record.sizes), newest)
    size = next((one.record.world_size for one in reversed(tables) if one.record.world_size), None)
    listed = next((one.record.listed for one in reversed(tables) if one.record.listed), 0)
    return StragglerTable(
        msgspec.structs.replace(newest, told_by=told_by, sizes=sized.sizes, world_size=size, listed=listed),
        tuple(at for one in tables for at in one.at),
        tuple(values for one in tables for values in one.values),
        {rank: node for one in tables for rank, node in one.nodes.items()},
    )
