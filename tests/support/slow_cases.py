"""The labelled traces of slow jobs under everything that may befall them, with what the answer is; and naive controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.model.verdict import Verdict
from tests.support.op_traces import Table, real, slowed

Spoil = Callable[[Table, np.random.Generator], Table]


def whole(table: Table, _: np.random.Generator) -> Table:
    """Return it as it is."""
    return table


def five_steps(table: Table, draws: np.random.Generator) -> Table:
    """Return five of its steps."""
    steps = draws.choice(np.unique(table.columns["step"]), 5, replace=False)
    return table.kept(np.isin(table.columns["step"], steps))


def rows_lost(table: Table, draws: np.random.Generator) -> Table:
    """Return nine tenths of its rows."""
    return table.kept(draws.random(len(table)) > 0.1)


def shuffled(table: Table, draws: np.random.Generator) -> Table:
    """Return its rows in another order."""
    return table.kept(draws.permutation(len(table)))


def skewed(table: Table, draws: np.random.Generator) -> Table:
    """Return it with a clock of its own for each worker, up to minutes apart."""
    ahead = draws.uniform(-300, 300, int(table.columns["rank"].max()) + 1)
    return table.changed(started=table.columns["started"] + ahead[table.columns["rank"]])


def half_precision(table: Table, _: np.random.Generator) -> Table:
    """Return it with times of eleven bits."""
    return table.changed(**{name: table.columns[name].astype("f2").astype("f8") for name in ("started", "duration")})


def not_numbers(table: Table, draws: np.random.Generator) -> Table:
    """Return it with NaN, zero and negative durations among the rest."""
    draw = draws.random(len(table))
    seconds = np.where(
        draw < 0.02, np.nan, np.where(draw < 0.04, 0.0, np.where(draw < 0.06, -1.0, table.columns["duration"]))
    )
    return table.changed(duration=seconds)


def an_outlier(table: Table, draws: np.random.Generator) -> Table:
    """Return it with one operation of one healthy worker that took a minute."""
    row = draws.choice(np.flatnonzero(table.named("compute") & (table.columns["rank"] == table.columns["rank"].max())))
    seconds = table.columns["duration"].copy()
    seconds[row] = 60.0
    return table.changed(duration=seconds)


SPOILS: dict[str, Spoil] = {
    "whole": whole, "5 steps": five_steps, "rows lost": rows_lost, "shuffled": shuffled, "clocks skewed": skewed,
    "half precision": half_precision, "NaN, 0, negative": not_numbers, "one outlier": an_outlier,
}  # fmt: skip


def relabelled(table: Table, draws: np.random.Generator) -> tuple[Table, dict[int, int]]:
    """Return it with other numbers of replicas and ranks, and the new number of each rank."""
    replicas, ranks = np.unique(table.columns["dp"]), np.unique(table.columns["rank"])
    new_dp = dict(zip(replicas.tolist(), draws.permutation(replicas).tolist(), strict=True))
    new_rank = dict(zip(ranks.tolist(), draws.permutation(ranks).tolist(), strict=True))
    dp = np.array([new_dp[one] for one in table.columns["dp"].tolist()])
    rank = np.array([new_rank[one] for one in table.columns["rank"].tolist()])
    return table.changed(dp=dp, rank=rank), new_rank


def healed() -> Table:
    """Return AR with its slow worker as fast as its peers: what the rest is judged for."""
    table = real("AR")
    slow = (table.columns["dp"] == 0) & (table.columns["pp"] == 0)
    seconds = table.columns["duration"].copy()
    for name in ("forward-compute", "backward-compute"):
        mine = table.named(name)
        peers = mine & (table.columns["pp"] == 0) & ~slow
        seconds[mine & slow] *= np.median(seconds[peers]) / np.median(seconds[mine & slow])
    return table.changed(duration=seconds)


def injected(table: Table, dp: int, pp: int, times: float, since: float = 0.0) -> tuple[Table, int]:
    """Return a table with one worker slowed, from a share of the steps on, and that worker's rank."""
    where = (table.columns["dp"] == dp) & (table.columns["pp"] == pp)
    rank = int(table.columns["rank"][where][0])
    steps = np.unique(table.columns["step"])
    where = where & (table.columns["step"] >= steps[int(since * (len(steps) - 1))])
    return slowed(table, where, times), rank


def ranks(verdict: Verdict) -> list[int]:
    """Return every rank that is named as a culprit."""
    return sorted(rank for culprit in verdict.culprits for rank in culprit.ranks)


@dataclass(frozen=True)
class Control:
    """A simple rule that others use: its name, and the ranks that it would evict."""

    name: str
    evicts: Callable[[Table], list[int]]


def _by_rank(table: Table, words: tuple[str, ...], of: Callable[[NDArray[np.float64]], float]) -> dict[int, float]:
    mine = table.named(*words)
    rank, seconds = table.columns["rank"][mine], table.columns["duration"][mine]
    if not len(rank):
        return {}
    order = np.argsort(rank, kind="stable")
    ranks, begins = np.unique(rank[order], return_index=True)
    return {int(one): of(part) for one, part in zip(ranks, np.split(seconds[order], begins[1:]), strict=True)}


def _median(seconds: NDArray[np.float64]) -> float:
    return float(np.median(seconds))


OWN_WORK = ("compute", "batch")


def _against_fastest(table: Table) -> list[int]:
    level = _by_rank(table, OWN_WORK, _median)
    best = min(level.values())
    return sorted(rank for rank, seconds in level.items() if best / seconds < 0.7)


def _twice_median(table: Table) -> list[int]:
    level = _by_rank(table, OWN_WORK, _median)
    usual = float(np.median(list(level.values())))
    return sorted(rank for rank, seconds in level.items() if seconds > 2 * usual)


def _longest_collective(table: Table) -> list[int]:
    level = _by_rank(table, ("reduce", "gather"), lambda seconds: float(np.mean(seconds)))
    return [max(level, key=lambda rank: level[rank])] if level else []


WINDOW_STEPS, OUTLYING, ALIKE_WINDOWS = 4, 2.0, 3


def _distance(table: Table) -> list[int]:
    """Minder's: the worker that is furthest from all others, in windows that follow one another; without its autoencoder."""
    step = table.columns["step"]
    steps = np.unique(step)
    windows = [steps[begin : begin + WINDOW_STEPS] for begin in range(0, len(steps), WINDOW_STEPS)]
    found = [_outlier(table.kept(np.isin(step, window))) for window in windows]
    runs = (set(found[begin : begin + ALIKE_WINDOWS]) for begin in range(max(1, len(found) - ALIKE_WINDOWS + 1)))
    return sorted({rank for run in runs if len(run) == 1 for rank in run if rank is not None})


def _outlier(table: Table) -> int | None:
    """Return the worker whose steps are furthest from the others', where it is an outlier of these distances."""
    mine = table.kept(table.named(*OWN_WORK))
    ranks, who = np.unique(mine.columns["rank"], return_inverse=True)
    steps, when = np.unique(mine.columns["step"], return_inverse=True)
    sums, counts = np.zeros((2, len(ranks), len(steps)))
    np.add.at(sums, (who, when), mine.columns["duration"])
    np.add.at(counts, (who, when), 1)
    mean = sums / np.maximum(counts, 1)
    span = mean.max(axis=0) - mean.min(axis=0)
    scaled = (mean - mean.min(axis=0)) / np.where(span > 0, span, 1.0)
    far = np.array([np.sqrt(((scaled - one) ** 2).sum(axis=1)).sum() for one in scaled])
    if len(ranks) < 2 or not far.std() or (far.max() - far.mean()) / far.std() < OUTLYING:
        return None
    return int(ranks[far.argmax()])


CONTROLS = (
    Control("score below 0.7 of the fastest", _against_fastest),
    Control("twice the median", _twice_median),
    Control("longest collective", _longest_collective),
    Control("largest distance from the others", _distance),
)


def positions(table: Table) -> Iterator[tuple[int, int]]:
    """Yield the replica and stage of each worker."""
    yield from sorted({(int(dp), int(pp)) for dp, pp in zip(table.columns["dp"], table.columns["pp"], strict=True)})
