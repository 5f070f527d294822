"""The expected loss of an option in GPU hours, part by part (docs/plan.md explains it)."""

from __future__ import annotations

import math

import msgspec

from analyzers.model.verdict import KEEPS_OUT
from analyzers.remediation.plan.case import PlanCase
from analyzers.remediation.plan.costs import MOST_SECONDS
from analyzers.remediation.plan.options import STARTS_WITHOUT, Option, explain_bar
from analyzers.remediation.plan.posterior import RootPosterior

_CURED_BY = {
    "rollback": "code", "restart_job": "platform", "restart_role": "platform", "reattempt": "platform", "evict": "platform",
}  # fmt: skip
"""Option → the cause that it ends for certain, machines apart: older code, or a restart after a kill from outside."""

_STOPS_NOTHING = frozenset({"none", "drain_after_job"})
PLACES = 4


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """An option and its expected loss: None where it is beyond any bound. ``barred``: why it must not be chosen."""

    option: Option
    expected_loss_gpu_hours: float | None
    parts: dict[str, float] = {}  # restart, again, innocent, tenants, short: they add up to the loss
    barred: str = ""


def weigh_option(option: Option, case: PlanCase) -> Weighed:
    """Return the expected loss of an option."""
    why, boundless = explain_bar(option, case)
    if boundless:
        return Weighed(option=option, expected_loss_gpu_hours=None, barred=why)
    parts = {
        "restart": _restart(option, case),
        "again": _again(option, case),
        "innocent": _innocent(option, case),
        "tenants": _tenants(option, case),
        "short": _short(option, case, len(option.nodes)),
    }
    rounded = {name: round(part, PLACES) for name, part in parts.items() if part}
    return Weighed(
        option=option,
        expected_loss_gpu_hours=round(math.fsum(rounded.values()), PLACES),
        parts=rounded,
        barred=why,
    )


def uncured(option: Option, doubt: RootPosterior, case: PlanCase) -> float:
    """Return the probability that a root strikes again.

    In a job that stands still the cause has struck: even an unknown one strikes again unless the restart cured it. In a job that
    goes on it strikes only if the verdict is right.
    """
    left = option.restart.leaves if option.restart is not None else ()
    cured = doubt.on(frozenset((*option.nodes, *left)))
    if doubt.cause == _CURED_BY.get(option.kind):
        cured = min(1.0, cured + doubt.elsewhere)
    standing = 1.0 if not case.goes_on else min(1.0, math.fsum(doubt.nodes.values()) + doubt.elsewhere)
    restarted = not (case.goes_on and option.kind in _STOPS_NOTHING)
    return max(0.0, standing - cured) * (1 - restarted * case.costs.cured_by_restart(doubt.fault_class))


def _restart(option: Option, case: PlanCase) -> float:
    """Return the loss until the job, or the role, has restarted and recovered its lost work."""
    costs, gpus = case.costs, case.gpus
    if option.kind in _STOPS_NOTHING and case.goes_on:
        return 0.0
    since = case.situation.seconds_since_checkpoint
    if since is None or not 0 <= since <= MOST_SECONDS:  # or no number, or a clock that is off
        since = costs.lost_work_seconds
    seconds = costs.restart_seconds + since
    seconds += {"reset_gpu": costs.reset_seconds, "reboot_node": costs.reboot_seconds}.get(option.kind, 0.0)
    if option.kind in _STOPS_NOTHING:
        seconds += costs.unattended_seconds  # until its own timeout ends it
    if option.kind == "restart_role" and option.role is not None:
        alone = None if option.restart is None else option.restart.nodes
        gpus = len(alone or case.situation.roles.get(option.role, ())) * case.situation.gpus_per_node or gpus
    return gpus * seconds / 3_600


def _again(option: Option, case: PlanCase) -> float:
    """Return the loss where a missed cause strikes again: detect, restart and evict once more."""
    fails = 1 - math.prod(1 - uncured(option, doubt, case) for doubt in case.doubts)
    costs = case.costs
    seconds = costs.redetect_seconds + costs.restart_seconds
    if option.kind in _STOPS_NOTHING and case.goes_on:
        seconds += costs.lost_work_seconds
    out = len(option.nodes)
    later = _short(Option(kind="evict"), case, out + 1) - _short(option, case, out) if case.kind == "evict" else 0.0
    if option.restart is not None:  # the role leaves its machine then
        moves = (one.restart for one in case.restarts if one.restart.leaves and not one.bar)
        moved = next((Option(kind=option.kind, role=option.role, restart=one) for one in moves), option)
        later = _short(moved, case, out) - _short(option, case, out)
    return fails * (case.gpus * seconds / 3_600 + max(0.0, later))


def _innocent(option: Option, case: PlanCase) -> float:
    """Return the loss of healthy nodes that are drained, tested and returned."""
    if option.kind not in KEEPS_OUT:
        return 0.0
    innocent = math.fsum(1 - case.guilt.get(node, 0.0) for node in option.nodes)
    return innocent * case.situation.gpus_per_node * case.costs.innocent_hours


def _tenants(option: Option, case: PlanCase) -> float:
    """Return the loss of other jobs on the nodes: a restart, and their work since an unknown checkpoint."""
    seconds = case.costs.restart_seconds + case.costs.lost_work_seconds
    return sum(priced_tenants(option, case).values()) * seconds / 3_600


def priced_tenants(option: Option, case: PlanCase) -> dict[str, int]:
    """Return the other jobs that an option stops, with all of their GPUs; a job of unknown size has no price."""
    jobs = case.situation.jobs_on(option.nodes) if option.kind in STARTS_WITHOUT else {}
    return {job: gpus for job, gpus in jobs.items() if gpus}


def _short(option: Option, case: PlanCase, out: int) -> float:
    """Return the loss without a spare: the job goes on with fewer nodes, or waits where no minimum is declared."""
    situation = case.situation
    if option.restart is not None and option.restart.gives:  # rollouts are missing until their machines are replaced
        out = len(set(option.restart.onto.values()) - set(situation.instances.standbys))
    elif option.kind not in STARTS_WITHOUT:
        return 0.0
    if situation.spares is None:
        return 0.0
    short = max(0, out - situation.spares)
    waits = option.restart is None and situation.minimum_nodes is None
    idle = case.gpus if short and waits else short * situation.gpus_per_node
    return idle * case.costs.replacement_hours
