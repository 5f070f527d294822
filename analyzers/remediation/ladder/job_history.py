"""A job's past for the ladder: its attempts and why they failed, what was done about it, network alerts, its layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from analyzers.model.verdict import Verdict
from analyzers.remediation import checks
from analyzers.remediation.dual_phase import ReplayPlan
from analyzers.remediation.types import CHECKS, UNBEGUN, Remediation

RungKind = Literal["evict", "probe", "reattempt", "rollback", "replay", "none"]

ALERTS_APART_SECONDS = 30.0  # less, and it is the same failure of a link
ON_A_NODE = frozenset({"node", "link"})  # "gpu-0413", "gpu-0413/mlx5_0"
STEPS = {
    "evict": "evict", "drain_after_job": "evict", "probe": "probe", "replay": "replay", "rollback": "rollback",
    "reattempt": "reattempt", "restart_job": "reattempt", "restart_role": "reattempt", "reset_gpu": "reattempt",
    "reboot_node": "reattempt",
}  # fmt: skip
"""Kinds of remediations → the rung that each is: a reset of a device restarts the job on the same nodes."""
GOES_ON = frozenset({"drain_after_job", "reset_gpu", "restart_role"})
"""Kinds under which the very attempt may go on."""
ENGINE = "engine"  # cancels what it takes back itself
REFUSED = frozenset({"rejected", "failed", "undone"})


class JobAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the job, with its newest verdict."""

    number: int
    code_version: str | None = None
    ended_at: float | None = None  # None: it has not ended
    good_seconds: float = 0.0  # for which it took good steps
    symptom: str = ""  # "": it has not failed
    cause: str = ""
    fault_class: str = ""
    proven: tuple[str, ...] = ()  # nodes that the verdict names with proof enough to evict
    suspects: tuple[str, ...] = ()  # … without


class TriedRung(msgspec.Struct, frozen=True, kw_only=True):
    """A rung that was tried for the failure of an attempt."""

    kind: RungKind
    attempt: int
    nodes: tuple[str, ...] = ()
    code_version: str | None = None
    outcome: Literal["pending", "done", "refused"] = "done"  # refused: by a person, or it could not be done
    found: tuple[str, ...] = ()  # by a probe: the nodes that failed; by a replay: those in both bad groups


class NetworkAlert(msgspec.Struct, frozen=True, kw_only=True):
    """A node's network failed at an instant."""

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
    """What to do next; ``none``: wait, or call a person, as ``why`` states."""

    kind: RungKind
    why: str
    nodes: tuple[str, ...] = ()
    code_version: str | None = None
    replay: ReplayPlan | None = None
    person: bool = False  # only a person can go on


def build_attempt(
    number: int,
    verdict: Verdict,
    *,
    code_version: str | None = None,
    ended_at: float | None = None,
    good_seconds: float = 0.0,
) -> JobAttempt:
    """Return an attempt by its newest verdict."""
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


def tried_rungs(done: Iterable[Remediation], numbers: Mapping[str, int], present: int) -> Iterator[TriedRung]:
    """Yield what was done or refused. ``numbers``: incident → attempt; ``present``: the newest attempt.

    A proposal that waits for an answer is left out: the rung is asked for anew in its place.
    """
    for one in done:
        number = numbers.get(one.incident)
        if number is None or (outcome := _outcome(one)) is None:
            continue
        if one.kind in GOES_ON and number == present and not _unwanted(one):
            continue  # it did not end this attempt: the next step is weighed anew
        if one.kind == "restart_role" and not _unwanted(one):
            continue  # its own guards count it (analyzers/remediation/role_restart.py)
        found = checks.find_failed_nodes(one)
        rung = {"kind": STEPS[one.kind], "attempt": number, "nodes": one.nodes, "code_version": one.code_version}
        yield msgspec.convert(rung | {"outcome": outcome, "found": found}, TriedRung)


def network_alerts(verdicts: Iterable[tuple[float, Verdict]]) -> Iterator[NetworkAlert]:
    """Yield the nodes that verdicts of the network name, oldest first. Two jobs on a node show one failure of its link."""
    seen: dict[str, float] = {}
    for at, verdict in verdicts:
        named = (*verdict.culprits, *verdict.suspects)
        for node in sorted({one.id.partition("/")[0] for one in named if one.kind in ON_A_NODE}):
            if at - seen.get(node, -ALERTS_APART_SECONDS) >= ALERTS_APART_SECONDS:
                seen[node] = at
                yield NetworkAlert(node=node, at=at)


def lay_out(sizes: Mapping[str, Any], nodes: int, gpus_per_node: int) -> JobLayout | None:
    """Return how a job lies on its nodes, by its declared parallel sizes; None where they do not determine it."""
    ranks = sizes.get("tp", 1) * sizes.get("pp", 1) * sizes.get("cp", 1)
    pipeline, rest = divmod(ranks, gpus_per_node)
    if not sizes or not nodes or (rest and gpus_per_node % ranks):
        return None
    pipeline = pipeline or 1  # several pipelines on one node: a replay takes or leaves the whole node
    return None if nodes % pipeline else JobLayout(pipeline_nodes=pipeline, data_parallel=nodes // pipeline)


def _outcome(one: Remediation) -> str | None:
    if one.status in REFUSED or _unwanted(one) or (one.status == "expired" and one.kind in CHECKS):
        return "refused"
    if one.status in UNBEGUN or one.status in ("expired", "cancelled"):
        return None
    return "pending" if one.status == "executing" else "done"


def _unwanted(one: Remediation) -> bool:
    """Whether a person refused it: a cancellation by the engine itself does not count."""
    return one.status == "rejected" or (one.status == "cancelled" and one.cancelled_by not in ("", ENGINE))
