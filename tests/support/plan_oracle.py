"""The plan found the slow way: every subset of the job's nodes, with the loss of docs/plan.md written down once more.

It covers an eviction asked for a job that stands still, in fractions, so that no rounding hides a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, combinations

Set = frozenset[str]
NOBODY: Set = frozenset()


@dataclass(frozen=True)
class Job:
    """A job of at most eight nodes that stands still, and what an eviction is asked for."""

    nodes: tuple[str, ...]
    roots: tuple[Mapping[str, Fraction], ...]  # each: node → that it is guilty of this root; the rest is unknown
    named: Set
    gpus_per_node: int = 8
    spares: int | None = None
    minimum: int | None = None
    since_checkpoint: Fraction = Fraction(900)
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tenants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tenant_gpus: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Prices:
    """Seconds, hours and the share that a restart cures."""

    restart: Fraction = Fraction(600)
    redetect: Fraction = Fraction(600)
    unattended: Fraction = Fraction(1800)
    lost_work: Fraction = Fraction(900)
    innocent: Fraction = Fraction(4)
    replacement: Fraction = Fraction(4)
    cure: Fraction = Fraction(227, 1000)


def losses(job: Job, prices: Prices) -> dict[tuple[str, Set], Fraction]:
    """Return what every option loses that may be chosen: ("evict", nodes), ("reattempt", ∅) and ("none", ∅)."""
    found = {("evict", out): loss(job, prices, out) for out in subsets(job.nodes) if out and allowed(job, out)}
    found["reattempt", NOBODY] = loss(job, prices, NOBODY)
    found["none", NOBODY] = found["reattempt", NOBODY] + hours(job, prices.unattended)
    return found


def subsets(nodes: tuple[str, ...]) -> Iterator[Set]:
    """Yield every subset."""
    sizes = (combinations(nodes, size) for size in range(len(nodes) + 1))
    yield from (frozenset(chosen) for chosen in chain.from_iterable(sizes))


def allowed(job: Job, out: Set) -> bool:
    """Only what is named goes; every shard keeps a holder; the job keeps its minimum, and one node at least."""
    survives = all(node not in job.holders or set(job.holders[node]) - out for node in out)
    spared = min(len(out), job.spares or 0)
    return out <= job.named and survives and len(job.nodes) - len(out) + spared >= max(1, job.minimum or 1)


def loss(job: Job, prices: Prices, out: Set) -> Fraction:
    """Return the expected loss in GPU hours of a restart without these nodes."""
    runs_well = Fraction(1)
    for root in job.roots:
        reached = sum((chance for node, chance in root.items() if node in out), Fraction(0))
        runs_well *= reached + (1 - reached) * prices.cure
    others = {other for node in out for other in job.tenants.get(node, ())}
    total = hours(job, prices.restart + job.since_checkpoint)
    total += (1 - runs_well) * (
        hours(job, prices.redetect + prices.restart) + short(job, prices, len(out) + 1) - short(job, prices, len(out))
    )
    for node in out:
        innocent = Fraction(1)
        for root in job.roots:
            innocent *= 1 - root.get(node, Fraction(0))
        total += innocent * job.gpus_per_node * prices.innocent
    for other in others:
        total += job.tenant_gpus.get(other, job.gpus_per_node) * (prices.restart + prices.lost_work) / 3600
    return total + short(job, prices, len(out))


def short(job: Job, prices: Prices, out: int) -> Fraction:
    """Return what it costs that so many nodes go and not all are replaced at once."""
    lacking = max(0, out - job.spares) if job.spares is not None else 0
    idle = job.gpus_per_node * (lacking if job.minimum is not None else len(job.nodes) * (lacking > 0))
    return idle * prices.replacement


def hours(job: Job, seconds: Fraction) -> Fraction:
    """Return the GPU hours that the whole job loses in so many seconds."""
    return len(job.nodes) * job.gpus_per_node * seconds / 3600
