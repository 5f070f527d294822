"""Whether a machine was the cause, by what followed its eviction: naive Bayes over a node's history, with decay.

    evicted ──▶ out ──returned──▶ burning_in ── good hours, or a check passed ──▶ healthy
                 ▲ │                │   ▲                                           ▲
                 │ │                │   └── trouble: its hours restart              │
                 │ └────────────────┼───────── a check passed, acquitted ───────────┘
                 └── a check fails ─┘

A job that runs after an eviction proves little: one in four runs after a plain restart as well. Verdicts are one family of
evidence and count once, the strongest; a node that is named again is a recurrence, which is separate evidence. Otherwise a
verdict that is wrong in the same way each time would convict its victim by repetition.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from analyzers.knowledge.convictions import Weights
from analyzers.model.doc import doc

NodeEventKind = Literal[
    "named", "recurred", "quiet", "cured", "not_cured", "probe_passed", "probe_failed", "burn_in_passed",
    "burn_in_failed", "evicted", "returned",
]  # fmt: skip
BurnIn = Literal["healthy", "out", "burning_in"]

DAY_SECONDS = 86_400.0
HOUR_SECONDS = 3_600.0
MOST_LINES = 32  # of a node's history
LEAST_CURED = 0.01
"""A lower bound, so that a job which runs after an eviction never proves the machine's guilt."""


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a node's history."""

    at: Annotated[float, doc("When it happened, UTC seconds.")]
    kind: Annotated[str, doc("As in docs/ladder.md: named, evicted, cured, not_cured, returned, trouble and so on.")]
    note: Annotated[str, doc("The remediation or incident, or the caller and its reason.")] = ""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a node. Log odds are natural, relative to the fleet's prior, and as of ``at``."""

    node: str
    named_log_odds: float = 0.0  # by the strongest verdict
    log_odds: float = 0.0  # by all that followed
    at: float | None = None
    named_at: float | None = None
    evictions: tuple[float, ...] = ()  # that no acquittal took back, oldest first
    acquittals: int = 0
    out_at: float | None = None  # the newest eviction
    returned_at: float | None = None  # the newest return
    burn_in: BurnIn = "healthy"
    since: float | None = None  # of the burn-in's state
    stood_seconds: float = 0.0  # since then, in which jobs ran well on it
    stood_until: float | None = None  # what jobs did up to here is counted
    history: tuple[HistoryLine, ...] = ()  # the newest, oldest first
    version: int = 0  # its ETag: of what people decide by, so good hours leave it

    def is_out(self) -> bool:
        """Whether it was taken out and has not come back: an acquittal does not bring it back."""
        return self.out_at is not None and not self.is_back_since(self.out_at)

    def is_back_since(self, at: float) -> bool:
        """Whether it came back after an instant."""
        return self.returned_at is not None and self.returned_at >= at

    def is_spare_since(self, at: float) -> bool:
        """Whether it came back after an instant and has ended its burn-in."""
        return self.is_back_since(at) and not self.is_out() and self.burn_in == "healthy"


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a node's history.

    named           a verdict of another trouble than before names it, with ``probability``
    recurred        the same trouble again on it, after it ran on or came back
    quiet           the job ran on it without that
    cured           it was evicted, and the job ran well; ``cures``: the share of such faults that a plain restart cures
                    (None: of all faults), ``others``: that another node evicted with it was the cause
    not_cured       it was evicted, and the job failed the same way again: an acquittal
    probe_passed    a check of it passed, or …
    probe_failed    … failed
    burn_in_passed  after its return it stood the load, or …
    burn_in_failed  … did not
    evicted         it was taken out
    returned        it serves again
    """

    kind: NodeEventKind
    probability: float = 0.0
    cures: float | None = None
    others: float = 0.0
    note: str = ""  # for the history


def likelihoods(happened: NodeEvent, weights: Weights) -> tuple[float, float]:
    """Return the likelihoods of an event for a faulty and for a healthy node, up to a factor."""
    match happened.kind:
        case "named":
            prior, most = weights.prior.faulty, max(weights.prior.faulty, weights.prior.most_named)
            named = min(max(prior, happened.probability), most)  # in this order, NaN has no effect
            return named / prior, (1.0 - named) / (1.0 - prior)
        case "cured" | "not_cured":
            left, others = 1.0 - weights.restart.relapses, min(max(0.0, happened.others), 1.0)
            cures = weights.cures if happened.cures is None else happened.cures
            anyhow = others * left + (1.0 - others) * min(max(LEAST_CURED, cures), left)
            return _seen(left, anyhow, yes=happened.kind == "cured")
        case "recurred" | "quiet":
            return _seen(weights.recurrence.faulty, weights.recurrence.healthy, yes=happened.kind == "recurred")
        case "probe_failed" | "probe_passed":
            return _seen(weights.probe.faulty, weights.probe.healthy, yes=happened.kind == "probe_failed")
        case "burn_in_failed" | "burn_in_passed":
            return _seen(weights.burn_in.faulty, weights.burn_in.healthy, yes=happened.kind == "burn_in_failed")
        case "evicted" | "returned":
            return 1.0, 1.0


def _seen(faulty: float, healthy: float, *, yes: bool) -> tuple[float, float]:
    return (faulty, healthy) if yes else (1.0 - faulty, 1.0 - healthy)


def update_record(record: NodeRecord, happened: NodeEvent, at: float, weights: Weights) -> NodeRecord:
    """Return the record after an event. A late report counts as if it had come in time."""
    newest = at if record.at is None else max(record.at, at)
    faulty, healthy = likelihoods(happened, weights)
    weight = math.log(faulty / healthy) * _kept(newest - at, weights)
    kept = _kept(newest - record.at, weights) if record.at is not None else 1.0
    named, other = record.named_log_odds * kept, record.log_odds * kept
    if happened.kind == "named":
        record = replace(record, named_at=at if record.named_at is None else max(at, record.named_at))
        named = max(named, weight)
    else:
        other += weight
    record = replace(
        add_line(record, at, happened.kind, happened.note), at=newest, named_log_odds=named, log_odds=other
    )
    return _state(_counted(record, happened, at, weights), happened, at, weights)


def fault_probability(record: NodeRecord, now: float, weights: Weights) -> float:
    """Return the probability that the node is faulty; it decays to the prior."""
    kept = _kept(now - record.at, weights) if record.at is not None else 1.0
    prior = weights.prior.faulty
    odds = math.log(prior / (1.0 - prior)) + kept * (record.named_log_odds + record.log_odds)
    return 1.0 / (1.0 + math.exp(-min(max(odds, -700.0), 700.0)))


def add_line(record: NodeRecord, at: float, kind: str, note: str) -> NodeRecord:
    """Add a line to the node's history; the oldest of too many is dropped."""
    lines = sorted((*record.history, HistoryLine(at=at, kind=kind, note=note)), key=lambda line: line.at)
    return replace(record, history=tuple(lines[-MOST_LINES:]))


def log_odds_shift(record: NodeRecord, now: float, weights: Weights) -> float:
    """Return how far its past shifts the log odds of a verdict that names it now.

    Earlier verdicts have no part in it: they are one family of evidence with the new one, and count once. It is bounded,
    because outcomes of the same node are not independent.
    """
    kept = _kept(now - record.at, weights) if record.at is not None else 1.0
    most = math.log(weights.memory.most)
    return min(max(kept * record.log_odds, -most), most)


def _kept(seconds: float, weights: Weights) -> float:
    """Return the share of its weight that evidence of this age still has."""
    return math.exp2(-max(seconds, 0.0) / (weights.memory.half_life_days * DAY_SECONDS))


def _counted(record: NodeRecord, happened: NodeEvent, at: float, weights: Weights) -> NodeRecord:
    """Count evictions and returns; an acquittal takes back the newest eviction before it."""
    since = max(at, record.at or at) - weights.offender.days * DAY_SECONDS
    if happened.kind == "returned":
        record = replace(record, returned_at=max(at, record.returned_at or at))
    evictions = [one for one in record.evictions if one >= since]
    acquittals = record.acquittals
    if happened.kind == "evicted":
        evictions = sorted([*evictions, at])
        record = replace(record, out_at=max(at, record.out_at or at))
    elif happened.kind == "not_cured":
        acquittals += 1
        if before := [one for one in evictions if one <= at]:
            evictions.remove(before[-1])
    return replace(record, evictions=tuple(evictions), acquittals=acquittals)


def _state(record: NodeRecord, happened: NodeEvent, at: float, weights: Weights) -> NodeRecord:
    """Change the burn-in state; an event from before the present state has no effect."""
    if record.since is not None and at < record.since:
        return record
    after: BurnIn | None = None
    match happened.kind:
        case "evicted" | "probe_failed" | "burn_in_failed":
            after = "out"
        case "probe_passed" | "burn_in_passed":
            after = "healthy"
        case "not_cured" if fault_probability(record, at, weights) < weights.burn_in.acquitted_below:
            after = "healthy"
        case "returned" if record.burn_in == "out":
            after = "burning_in"
        case "recurred" if record.burn_in != "out":
            after = "burning_in"
        case _:
            pass
    return record if after is None else replace(record, burn_in=after, since=at, stood_seconds=0.0, stood_until=at)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction of a node, and the job's outcome."""

    probability: float  # of the verdict
    began_at: float
    ended_at: float
    outcome: Literal["cured", "not_cured", "unknown"]
    cures: float | None = None  # the share of such faults that a plain restart cures; None: of all faults
    others: float = 0.0  # that another node evicted with it was the cause
    note: str = ""  # for the history


def record_trial(record: NodeRecord, trial: Trial, weights: Weights) -> NodeRecord:
    """Record one eviction, from the verdict to its outcome; a node that was named lately has recurred."""
    lately = trial.began_at - weights.offender.days * DAY_SECONDS
    again = record.named_at is not None and record.named_at >= lately
    named = NodeEvent(kind="named", probability=trial.probability, note=trial.note)
    happened = [named, NodeEvent(kind="recurred", note=trial.note)] if again else [named]
    for one in (*happened, NodeEvent(kind="evicted", note=trial.note)):
        record = update_record(record, one, trial.began_at, weights)
    if trial.outcome == "unknown":
        return record
    followed = NodeEvent(kind=trial.outcome, cures=trial.cures, others=trial.others, note=trial.note)
    return update_record(record, followed, trial.ended_at, weights)


def is_offender(record: NodeRecord, now: float, weights: Weights) -> bool:
    """Whether the node was evicted too often lately; acquitted evictions do not count."""
    since = now - weights.offender.days * DAY_SECONDS
    return sum(since <= at <= now for at in record.evictions) >= weights.offender.evictions
