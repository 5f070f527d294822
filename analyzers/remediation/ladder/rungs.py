"""What to try next when evidence does not decide and the last action did not help: ByteRobust's ladder as a pure sequence.

    evict ─ fails again ─▶ probe ─ all pass ─▶ reattempt ─▶ roll the code back ─▶ dual-phase replay ─▶ a person
      ▲                      │                                                            │
      └──── failed checks ───┴──────────── the one machine in both bad groups ────────────┘

A trouble is the series of failures since an attempt last ran well. In one trouble a reattempt is made once per symptom, rollback
and replay once, evictions and checks once per node. A first eviction needs proof. A further one for the same symptom needs checks
before it, because the first proof was wrong. Single network alerts are tolerated, and an exception in the user's code on every
rank leads straight to the last code that ran well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from analyzers.knowledge.convictions import Ladder
from analyzers.remediation import dual_phase
from analyzers.remediation.ladder.job_history import JobHistory, Rung
from analyzers.remediation.ladder.trouble import EVERYWHERE, RAISED_AGAIN, Trouble
from analyzers.remediation.types import list_some

ELSEWHERE = frozenset({"storage", "platform", "data", "imbalance", "network"})
"""Causes that neither another machine nor other code removes: the job runs again, and that is all."""
PROGRESSING = frozenset({"slow", "hardware"})
"""Symptoms with which a job goes on: without proof it is left alone."""


def next_rung(history: JobHistory, bounds: Ladder) -> Rung:
    """Return the next rung for the newest attempt's failure, after a second evidence round."""
    trouble = Trouble.from_history(history, bounds)
    if trouble is None or trouble.failing.cause == "none":
        return Rung(kind="none", why="nothing has failed")
    if (wait := trouble.waits_for()) is not None:
        return Rung(kind="none", why=wait)
    rungs: tuple[Callable[[Trouble], Rung | None], ...] = (
        _code_at_once, _tolerated, _found, _evict, _check_after_eviction, _check_alerted, _check_named_again, _left_alone,
        _reattempt, _elsewhere, _rollback, _replay,
    )  # fmt: skip
    return next((rung for take in rungs if (rung := take(trouble)) is not None), _exhausted(trouble))


def _code_at_once(trouble: Trouble) -> Rung | None:
    """Roll back after an exception in the user's code on every rank, or after a program's error in code that never ran well.

    Other machines and another start would raise it as well. Code that ran well before a rank raised it may have met rare data.
    """
    everywhere = trouble.failing.fault_class in EVERYWHERE
    never_ran = (
        trouble.failing.fault_class in RAISED_AGAIN
        and trouble.failing not in trouble.well
        and not _has_run_well(trouble)
    )
    if not everywhere and not never_ran:
        return None
    what = "every rank raised the same exception" if everywhere else "the same code raises this exception again"
    if (version := trouble.older_code()) is None:
        why = f"{what}, and no other code is known to have run well: its authors must examine it"
        return Rung(kind="none", why=why, person=True)
    return Rung(kind="rollback", code_version=version, why=f"{what}; {version} is the newest other code that ran well")


def _tolerated(trouble: Trouble) -> Rung | None:
    """Wait after a single network alert: links often recover by themselves."""
    now = trouble.failing
    if now.cause != "network" or now.ended_at is not None or trouble.alerted:
        return None
    return Rung(
        kind="none", why=f"the network is suspected and the job is still there: {trouble.alert_rule} would decide"
    )


def _found(trouble: Trouble) -> Rung | None:
    """Evict nodes that failed their checks, or the one machine that a replay names; several machines are checked."""
    newest = next((taken for taken in reversed(trouble.taken) if taken.found), None)
    if newest is None:
        return None
    left = _without(newest.found, trouble.nodes_of("evict"))
    if newest.kind == "replay" and len(newest.found) > 1:
        why = f"the replay leaves {list_some(newest.found)}: more than one machine is checked, not evicted"
        return _probe(_without(left, trouble.nodes_of("probe")), why)
    how = "failed the checks" if newest.kind == "probe" else "lies in both bad groups of the replay"
    return Rung(kind="evict", nodes=left, why=f"{list_some(left)} {how}") if left else None


def _evict(trouble: Trouble) -> Rung | None:
    """Evict a node with proof against it; after an eviction in vain, only one that is proven again after checks."""
    now, before = trouble.failing, trouble.in_vain()
    proven = now.proven if now.cause != "network" else tuple(node for node in now.proven if node in trouble.alerted)
    nodes = _without(proven, trouble.nodes_of("evict"))
    if not nodes:
        return None
    if before is not None and not any(
        check.outcome == "done" and check.attempt < now.number for check in trouble.checks_since(before)
    ):
        return None
    return Rung(kind="evict", nodes=nodes, why=f"there is proof against {list_some(nodes)}")


def _check_after_eviction(trouble: Trouble) -> Rung | None:
    """Check the named nodes, else all, after an eviction in vain: the machine was not the cause, or not alone."""
    before = trouble.in_vain()
    if before is None or trouble.checks_since(before):
        return None
    seen = trouble.nodes_of("probe", "evict")
    why = f"{list_some(before.nodes)} left and it fails the same way again: checks come before another machine leaves"
    return _probe(_without(trouble.named, seen) or _without(trouble.nodes, seen), why)


def _check_alerted(trouble: Trouble) -> Rung | None:
    if trouble.failing.cause != "network":
        return None
    nodes = _without(trouble.alerted, trouble.nodes_of("probe", "evict"))
    return _probe(nodes, f"{list_some(nodes)} had {trouble.alert_rule}")


def _check_named_again(trouble: Trouble) -> Rung | None:
    """Check a node that is named in two attempts without proof: the code or the machine may be the cause."""
    earlier = {node for attempt in trouble.attempts[:-1] for node in (*attempt.proven, *attempt.suspects)}
    twice = tuple(node for node in trouble.named if node in earlier)
    nodes = _without(twice, trouble.nodes_of("probe", "evict"))
    return _probe(nodes, f"{list_some(nodes)} is named again, and without proof")


def _left_alone(trouble: Trouble) -> Rung | None:
    """Leave a job alone that makes progress: it is not restarted without proof."""
    now = trouble.failing
    running = now.ended_at is None
    if not running or not (now.symptom in PROGRESSING or now.cause in ELSEWHERE - {"network"}):
        return None
    return Rung(
        kind="none",
        why=f"{now.symptom} by {now.cause or 'an unknown cause'}, without proof against a node: it is left alone",
    )


def _reattempt(trouble: Trouble) -> Rung | None:
    """Restart: that cures a passing fault."""
    if trouble.tried_for_symptom("reattempt"):
        return None
    now = trouble.failing
    known = f"the cause of this {now.symptom} is {now.cause}, and no machine is proven guilty"
    what = known if now.cause in ELSEWHERE else f"nothing is proven of this {now.symptom}"
    return Rung(kind="reattempt", why=f"{what}: a restart shows whether it passes")


def _elsewhere(trouble: Trouble) -> Rung | None:
    """Stop at a cause that no further rung removes."""
    if trouble.failing.cause not in ELSEWHERE:
        return None
    why = f"the cause is {trouble.failing.cause}, which neither other machines nor other code remove: a person must examine it"
    return Rung(kind="none", why=why, person=True)


def _rollback(trouble: Trouble) -> Rung | None:
    """Roll back to the newest code that ran well, where the failing code never did."""
    if trouble.tried("rollback") or _has_run_well(trouble) or (version := trouble.older_code()) is None:
        return None
    why = f"a restart did not help; {version} is the newest code that ran well, and what fails now never did"
    return Rung(kind="rollback", code_version=version, why=why)


def _has_run_well(trouble: Trouble) -> bool:
    now = trouble.failing.code_version
    return now is not None and any(attempt.code_version == now for attempt in trouble.well)


def _replay(trouble: Trouble) -> Rung | None:
    """Replay on groups of machines: a faulty machine shows in one group of each phase."""
    if trouble.tried("replay") or isinstance(plan := _plan(trouble), str):
        return None
    groups = f"{len(plan.horizontal)} + {len(plan.vertical)} groups of {plan.group_nodes} nodes"
    return Rung(kind="replay", replay=plan, why=f"neither a restart nor older code explains it: replay on {groups}")


def _plan(trouble: Trouble) -> dual_phase.ReplayPlan | str:
    """Return the replay, or why there is none."""
    layout = trouble.layout
    if layout is None:
        return "the job's layout on its nodes is unknown"
    try:
        return dual_phase.plan_replay(trouble.nodes, layout.pipeline_nodes, layout.data_parallel, shows=layout.shows)
    except dual_phase.ReplayUnsuited as why:
        return str(why)


def _exhausted(trouble: Trouble) -> Rung:
    """Return what was tried, and why the rest was not."""
    parts = [f"tried in vain: {', '.join(dict.fromkeys(taken.kind for taken in trouble.taken)) or 'nothing'}"]
    if not trouble.tried("rollback"):
        now = trouble.failing.code_version
        well = f"{now} has run well" if _has_run_well(trouble) else "no other code is known to have run well"
        parts.append(f"no rollback: {well}")
    if not trouble.tried("replay"):
        parts.append(f"no replay: {_plan(trouble)}")
    return Rung(kind="none", why="; ".join([*parts, "a person must decide"]), person=True)


def _probe(nodes: tuple[str, ...], why: str) -> Rung | None:
    return Rung(kind="probe", nodes=nodes, why=why) if nodes else None


def _without(nodes: Iterable[str], seen: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for node in nodes if node not in seen))
