"""The guards: the reasons that block a remediation now. All of them are checked each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation import attempts, breaker
from analyzers.remediation.policy import explain_revoked
from analyzers.remediation.types import (
    CLAIMED,
    STOPS_NOTHING,
    Blocker,
    Hold,
    JobFacts,
    Limits,
    Remediation,
    RemediationState,
    list_some,
    same_node,
)

AHEAD_SECONDS = 120.0  # an instant that is further ahead was dated by a wrong clock
SHOWN = 8  # names in a sentence
SAVING_SECONDS = 1_800.0  # a longer save is stuck, and no reason to wait
SAVING_LEAST_SECONDS = 600.0  # a save in which the job seems to hang may be slow
SAVING_USUAL_TIMES = 2.0


def find_blockers(state: RemediationState, remediation: Remediation, now: float) -> list[Blocker]:
    """Return every reason, the most general first; empty: it may act."""
    return [
        Blocker(code=code, text=text)
        for code, guard in GUARDS.items()
        if (text := guard(state, remediation, now)) is not None
    ]


def _frozen(state: RemediationState, _remediation: Remediation, _now: float) -> str | None:
    if state.freeze is None:
        return None
    thaw = "`faulthound freeze off --reason TEXT`"
    return f"everything is frozen by {state.freeze.by}: {state.freeze.reason}; {thaw} lets it go on"


def _held(state: RemediationState, remediation: Remediation, now: float) -> str | None:
    return next((_describe(hold) for hold in _holds(state, remediation, now)), None)


def _holds(state: RemediationState, remediation: Remediation, now: float) -> Iterator[Hold]:
    for hold in sorted(state.holds.values(), key=lambda one: (one.until, one.id)):
        if hold.until > now and (hold.job == remediation.job or _is_of(hold, remediation.touches)):
            yield hold


def _is_of(hold: Hold, nodes: tuple[str, ...]) -> bool:
    return hold.node is not None and any(same_node(hold.node, node) for node in nodes)


def _describe(hold: Hold) -> str:
    named = f"node {hold.node}" if hold.node is not None else f"job {hold.job}"
    return f"{named} is held by {hold.by}: {hold.reason}; `faulthound holds expire {hold.id}` ends that"


def _clock(state: RemediationState, _remediation: Remediation, _now: float) -> str | None:
    """Holds, approvals and budgets end with time: while it is in doubt none of them counts as ended."""
    return state.facts.clock_doubt or None


def expires_at(limits: Limits, one: Remediation) -> float | None:
    """Return when a proposal or an approval expires; None: it has begun, or ended."""
    if one.status == "proposed":
        return one.changed_at + limits.proposal_seconds
    if one.status not in ("approved", "claimed"):
        return None
    claimed_seconds = limits.claim_seconds if one.status == "claimed" else 0.0  # heartbeats do not extend it
    return (one.changed_at if one.approved_at is None else one.approved_at) + limits.approval_seconds + claimed_seconds


def explain_expiry(state: RemediationState, one: Remediation, now: float) -> str | None:
    """Say why it has expired; None: it has not. No tick may have ended it yet."""
    until = expires_at(state.limits, one)
    if until is None:
        return None
    if (ahead := max(one.changed_at, one.approved_at or 0.0) - now) > AHEAD_SECONDS:
        return f"it is dated {ahead:,.0f} s ahead, by a clock that was wrong: a newer verdict has to propose it again"
    if now < until:
        return None
    if one.status == "proposed":
        return f"it was proposed {now - one.changed_at:,.0f} s ago: a newer verdict has to propose it again"
    seconds = now - (one.changed_at if one.approved_at is None else one.approved_at)
    return f"it was approved {seconds:,.0f} s ago and not begun: a newer verdict has to propose it again"


def _breaker(state: RemediationState, remediation: Remediation, now: float) -> str | None:
    if remediation.kind not in TAKES_NODES:
        return None
    return breaker.explain_open(state, len(remediation.nodes), now, remediation.id)


def _budget(state: RemediationState, remediation: Remediation, now: float) -> str | None:
    if remediation.kind == "restart_role":
        return breaker.explain_many_restarts(state, now, remediation.id)
    if remediation.kind not in TAKES_NODES:
        return None
    return breaker.explain_over_budget(state, len(remediation.nodes), now, remediation.id)


def _again(_book: RemediationState, remediation: Remediation, now: float) -> str | None:
    """A reason that kept a scheduler from beginning often passes, but not at once."""
    if remediation.again_at is None or now >= remediation.again_at:
        return None
    failed = f"the last claim of it failed before it began ({remediation.because})"
    return f"{failed}: it can be claimed again in {remediation.again_at - now:.0f} s"


def _policy(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    """A rule's approval holds only while the rule would still give it."""
    why = explain_revoked(state.policy, state.tallies, remediation)
    return None if why is None else f"{why}: a person may approve it"


def _merged(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    into = state.facts.merged.get(remediation.incident)
    return None if into is None else f"incident {into} of the fleet explains it: no node of the job is at fault"


def _superseded(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    newest = state.facts.newest_verdicts.get(remediation.incident, 0)
    if newest <= remediation.verdict_version:
        return None
    return f"it rests on version {remediation.verdict_version} of the verdict, and {newest} is the newest: wait for its plan"


def _moved(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    job = state.facts.jobs.get(remediation.job)
    if job is None:
        return f"nothing is known of job {remediation.job}: wait until an agent has reported it"
    if remediation.attempt is not None and job.attempt is not None and job.attempt > remediation.attempt:
        return f"attempt {job.attempt} of {remediation.job} runs, and it was meant for attempt {remediation.attempt}"
    if (why := _replaced(remediation, job)) is not None:
        return why
    elsewhere = sorted(set(remediation.nodes) - set(job.nodes))
    return f"{remediation.job} does not run on {list_some(elsewhere, SHOWN)}" if elsewhere else None


def _replaced(remediation: Remediation, job: JobFacts) -> str | None:
    """An instance that has a higher epoch by now was replaced meanwhile: the new one is not the one that failed."""
    restart = remediation.role_restart
    if restart is None or remediation.status == "executing":
        return None
    now = job.epochs.get(remediation.role or "", {})
    newer = [name for name, epoch in restart.epochs.items() if now.get(name, epoch) > epoch]
    if not newer:
        return None
    return f"{remediation.role} {list_some(sorted(newer), SHOWN)} was replaced since: it is not the one that failed"


def _acting(state: RemediationState, remediation: Remediation, now: float) -> str | None:
    for other in state.remediations.values():
        if other.id == remediation.id:
            continue
        if other.job == remediation.job and other.status in CLAIMED:
            return f"{other.id} is {other.status} on {remediation.job}: one at a time"
        if other.job == remediation.job and (wait := attempts.explain_wait(state, other, now)) is not None:
            return f"{other.id} has acted on {remediation.job}, and is {other.status}: {wait}"
        undoes = other.claim is not None and other.claim.task == "undo"
        if undoes and (shared := sorted(set(other.give_back) & set(remediation.nodes))):
            return f"{other.id} is being undone, which gives {list_some(shared, SHOWN)} back: wait for its end"
    return None


def _minimum(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    """The job keeps its declared minimum, and at least one node; a spare takes an evicted node's place."""
    job = state.facts.jobs.get(remediation.job)
    if job is None or remediation.kind not in TAKES_NODES:
        return None
    out = len((_gone(state, remediation, job) | set(remediation.nodes)) & set(job.nodes))
    left, least = len(job.nodes) - out + min(out, job.spares or 0), max(1, job.minimum_nodes or 1)
    return f"{left} nodes would be left of {remediation.job}, whose minimum is {least}" if left < least else None


def _gone(state: RemediationState, remediation: Remediation, job: JobFacts) -> set[str]:
    """Return the nodes that others have taken out of the job since its placements and declarations were made."""
    return {
        node
        for other in state.remediations.values()
        if other.id != remediation.id and other.job == remediation.job and is_unseen(other, job.attempt)
        for node in other.nodes  # of a failed one too: its claimant may have done more than it reported
    }


def is_unseen(other: Remediation, attempt: int | None) -> bool:
    """Whether it may have taken nodes out without which the job has not run since. ``attempt``: the job's newest."""
    if not other.may_have_taken or not attempts.is_unsettled(other):
        return False
    return attempt is None or other.attempt is None or attempt <= other.attempt


def _saving(state: RemediationState, remediation: Remediation, now: float) -> str | None:
    job = state.facts.jobs.get(remediation.job, JobFacts())
    if job.saving_since is None or now - job.saving_since > _longest_save(state, remediation, job.saving_since):
        return None
    return (
        f"{remediation.job} has been saving a checkpoint for {max(0.0, now - job.saving_since):.0f} s: wait for its end"
    )


def _longest_save(state: RemediationState, remediation: Remediation, since: float) -> float:
    """Return how long to wait for a save. A save in which the job hangs does not end, and a slow one looks the same."""
    onset = state.facts.onsets.get(remediation.incident)
    if remediation.symptom != "hang" or onset is None or onset < since:
        return SAVING_SECONDS
    usual = state.facts.jobs[remediation.job].save_seconds or 0.0
    return min(SAVING_SECONDS, max(SAVING_LEAST_SECONDS, SAVING_USUAL_TIMES * usual))


def _tenants(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    """The plan must count the loss of other jobs before their nodes are touched; a drain after the job costs them nothing."""
    if remediation.kind not in TAKES_NODES - STOPS_NOTHING:
        return None
    counted = {remediation.job, *remediation.priced_tenants}
    others = {node: set(state.facts.tenants.get(node, ())) - counted for node in remediation.nodes}
    named = [f"{list_some(sorted(jobs), SHOWN)} on {node}" for node, jobs in sorted(others.items()) if jobs]
    return f"other jobs run there, and the plan does not count their loss: {list_some(named, SHOWN)}" if named else None


def _shards(state: RemediationState, remediation: Remediation, _now: float) -> str | None:
    """A copy on a node that is out does not count, until the job runs well again and has made other copies."""
    if remediation.kind not in TAKES_NODES:
        return None
    job, out = state.facts.jobs.get(remediation.job, JobFacts()), frozenset(remediation.nodes)
    gone = _gone(state, remediation, JobFacts())
    touched = {node: holders for node, holders in job.holders.items() if node in out or not out.isdisjoint(holders)}
    left = {node: {node, *holders} - gone for node, holders in touched.items()}
    lost = sorted(node for node, holders in left.items() if holders and holders <= out)
    return (
        f"the checkpoint shards of {list_some(lost, SHOWN)} would lose their last holder: copy them first"
        if lost
        else None
    )


GUARDS: dict[str, Callable[[RemediationState, Remediation, float], str | None]] = {
    "frozen": _frozen, "held": _held, "expired": explain_expiry, "breaker": _breaker, "budget": _budget, "again": _again,
    "policy": _policy, "merged": _merged, "superseded": _superseded, "moved": _moved, "acting": _acting, "minimum": _minimum,
    "saving": _saving, "tenants": _tenants, "shards": _shards, "clock": _clock,
}  # fmt: skip
