"""A job's past as the ladder looks at it: attempts and why they failed, what was done about it, and what is to come."""

from __future__ import annotations

from typing import Literal

import msgspec

from analyzers.model.verdict import Verdict
from analyzers.remediation.dual_phase import ReplayPlan

RungKind = Literal["evict", "probe", "reattempt", "rollback", "replay", "none"]


class JobAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the job, and what the newest verdict about it says."""

    number: int
    code_version: str | None = None
    ended_at: float | None = None  # None: it stands there still
    good_seconds: float = 0.0  # for which it took good steps
    symptom: str = ""  # "": it has not failed
    cause: str = ""
    fault_class: str = ""
    proven: tuple[str, ...] = ()  # nodes that the verdict names with proof enough to evict
    suspects: tuple[str, ...] = ()  # … without


class TriedRung(msgspec.Struct, frozen=True, kw_only=True):
    """A rung that was taken, for the failure of an attempt."""

    kind: RungKind
    attempt: int
    nodes: tuple[str, ...] = ()
    code_version: str | None = None
    outcome: Literal["pending", "done", "refused"] = "done"  # refused: nobody wanted it, or it could not be done
    found: tuple[str, ...] = ()  # by a probe: the nodes that failed; by a replay: those in both bad groups


class NetworkAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A node's network was in trouble at an instant."""

    node: str
    at: float


class JobLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the job lies on its nodes, for a replay (analyzers/remediation/dual_phase.py)."""

    pipeline_nodes: int
    data_parallel: int
    shows: float = 1.0  # probability that the fault shows in one run of a group


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A job's attempts and what was done about them, oldest first, as of ``at``."""

    at: float
    attempts: tuple[JobAttempt, ...]
    taken: tuple[TriedRung, ...] = ()
    alerts: tuple[NetworkAlert, ...] = ()
    nodes: tuple[str, ...] = ()  # of the newest attempt
    layout: JobLayout | None = None


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next; ``none``: wait, or let a person look, as ``why`` says."""

    kind: RungKind
    why: str
    nodes: tuple[str, ...] = ()
    code_version: str | None = None
    replay: ReplayPlan | None = None
    person: bool = False  # nothing is left but that somebody looks


def build_attempt(
    number: int,
    verdict: Verdict,
    *,
    code_version: str | None = None,
    ended_at: float | None = None,
    good_seconds: float = 0.0,
) -> JobAttempt:
    """Return an attempt as the newest verdict about it has it."""
    proven = verdict.action.nodes if verdict.action.kind == "evict" else ()
    named = [*verdict.action.nodes, *(culprit.id for culprit in verdict.culprits if culprit.kind == "node")]
    return JobAttempt(
        number=number,
        code_version=code_version,
        ended_at=ended_at,
        good_seconds=good_seconds,
        symptom="" if verdict.symptom == "healthy" else verdict.symptom,
        cause=verdict.cause,
        fault_class=verdict.roots[0].fault_class if verdict.roots else "",
        proven=proven,
        suspects=tuple(node for node in dict.fromkeys(named) if node not in proven),
    )
