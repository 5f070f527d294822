"""From findings to roots: which are about the same root, which narrow it, and which are echoes of another.

Evidence comes in families (waits, stacks, process, hardware, log). Waits, stacks and logs of one event count once, however
many of them agree; they may pick from one another's sets. Process states and hardware events are independent of them.
Two families of evidence that one agent sent against another node are one agent's word: the second adds and picks nothing.
Order of precedence where families disagree on the kind of root: a failure that a log spells out, then waits, then what roles
report of themselves, then process states, then hardware events, then stacks alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzers.model.fault_classes import has
from analyzers.model.finding import Family, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.verdict import device_events
from analyzers.verdict.at_storage import blamed, is_storage, one_storage, with_waiters
from analyzers.verdict.candidates import (
    EVEN_ODDS,
    FROZEN,
    FROZEN_ALONE,
    SAME_EVENT,
    Candidate,
    Correlation,
    Excused,
    arguments_of,
    joint,
    narrowed,
    nodes_of,
    shows_who_only,
    split,
    standing_alone,
    with_alike,
)
from analyzers.verdict.senders import one_voice

_PRECEDENCE: tuple[Family, ...] = ("log", "waits", "roles", "process", "hardware", "timings", "stacks")
MOST_NOT_EXCLUDED = 8
SKEW_SECONDS = 1.0  # by which clocks differ
SEVERE = 0.9  # so sure a device's own failure leads before an error of no known process


def combine(findings: Iterable[Finding], topology: Topology) -> Correlation:
    """Merge findings into independent roots."""
    ordered = sorted(findings, key=_order)
    decision = Correlation(findings=tuple(ordered))
    numbers = [finding for finding in ordered if finding.suspects and finding.symptom == "numeric"]
    # Where all ranks share a wrong number no rank is a suspect; the number went wrong before the job was ended.
    unattributed = [finding for finding in ordered if not finding.suspects and finding.fault_class == "not_a_number"]
    asked = [finding for finding in ordered if finding.suspects and has(finding.fault_class, "asked")]
    last = [finding for finding in ordered if finding.suspects and has(finding.fault_class, "alone")]
    claims = [f for f in ordered if f.suspects and not f.narrows and f not in (*numbers, *asked, *last)]
    narrowing = [finding for finding in ordered if finding.suspects and finding.narrows]
    for finding in (f for f in claims if not has(f.fault_class, "supports")):
        _admit(decision, finding, topology)
    for finding in numbers:
        _numbers_beside(decision, finding, topology)
    # Numbers that are wrong are certain; one round of stacks of a job that runs shows what it happened to do.
    runs_on = any(finding.symptom == "numeric" for finding in ordered)
    for finding in (f for f in claims if has(f.fault_class, "supports")):
        _support_or_stand(decision, finding, topology, least=FROZEN if runs_on else 0.0)
    decision.roots = one_storage(decision.roots)
    device_events.without_links(decision, narrowing)
    for finding in narrowing:
        decision.roots = [narrowed(decision, root, finding, topology) for root in decision.roots]
        with_alike(decision, finding)
        with_waiters(decision, finding)
    if not decision.roots and not _running(ordered):
        least = FROZEN_ALONE if runs_on else 0.0
        alone = [f for f in narrowing if not has(f.fault_class, "no_stack") and _strength(f) >= least]
        alone = [f for f in alone if _strength(f) >= EVEN_ODDS] or alone  # a hint stands before no claim
        decision.roots = [root for finding in alone[:1] for root in standing_alone(finding)]
    if unattributed and not decision.roots:
        decision.rejected += _answers(asked)
        decision.findings = tuple(finding for finding in ordered if finding not in asked)
    else:
        _ended_from_outside(decision, asked, topology)
    if not decision.roots and not _running(ordered):
        decision.roots = [root for finding in last for root in split(finding)]
    decision.roots = _severe_first(decision.roots)
    for finding in ordered:
        decision.rejected.extend(finding.rejected)
    return decision


def _severe_first(roots: list[Candidate]) -> list[Candidate]:
    """Put errors of which no line shows the process behind a device that is known to have failed."""
    severe = any(one.finding.family == "hardware" and one.suspects[0].strength >= SEVERE for one in roots)
    return sorted(roots, key=_is_of_nobody) if severe else roots


def _is_of_nobody(root: Candidate) -> bool:
    placed = root.ranks or any(suspect.node or suspect.device for suspect in root.suspects)
    return not placed and root.finding.family == "log" and root.finding.cause != "machine"


def _order(finding: Finding) -> tuple[int, str, float, str, list[int]]:
    """Order by precedence; of one analyzer what costs the job most is first."""
    return (
        _PRECEDENCE.index(finding.family), finding.analyzer, -finding.costs, finding.fault_class, sorted(finding.scope),
    )  # fmt: skip


def _ended_from_outside(decision: Correlation, asked: Iterable[Finding], topology: Topology) -> None:
    """An end from outside is the root only where nothing held it up before; processes that ended follow from it."""
    for finding in asked:
        follow = [root for root in decision.roots if has(root.finding.fault_class, "ended") and len(root.families) == 1]
        if len(follow) < len(decision.roots):
            if any(root.finding.symptom == "numeric" for root in decision.roots):
                decision.rejected += _answers([finding])
            continue
        decision.rejected.extend(
            replace(suspect, why="it ended as every process does when the job is ended from outside")
            for root in follow
            for suspect in root.suspects[:4]
        )
        decision.roots = []
        if finding.symptom == "hang":  # it stood still before: who ended it did not hold it up
            why = finding.suspects[0].why
            decision.excused += [Excused(one, "unknown", finding.fault_class, why) for one in split(finding)]
        elif finding.cause == "none":
            decision.excused += [
                Excused(one, "none", finding.fault_class, one.suspects[0].why) for one in split(finding)
            ]
        else:
            _admit(decision, finding, topology)


def _answers(asked: Iterable[Finding]) -> list[Suspect]:
    """Return the ends from outside as what they were: a person's or the scheduler's answer to numbers that were wrong."""
    return [
        replace(suspect, why=f"it is no cause: {suspect.why}, after the numbers had gone wrong")
        for finding in asked
        for suspect in finding.suspects[:1]
    ]


def _numbers_beside(decision: Correlation, finding: Finding, topology: Topology) -> None:
    """Numbers go wrong in a job that runs. They lead where nothing ended or holds up the job, and agree with what did."""
    before = bool(decision.roots)
    for new in split(finding):
        if not confirm(decision, new, topology) and not before:
            decision.roots.append(new)


def _running(findings: Iterable[Finding]) -> bool:
    return any(has(finding.fault_class, "job_may_run") for finding in findings)


def _admit(decision: Correlation, finding: Finding, topology: Topology) -> None:
    for new in split(finding):
        if _after_the_hang(decision, new):
            continue
        new = device_events.in_unknown_order(new, decision.findings)  # noqa: PLW2901
        if confirm(decision, new, topology) or _too_late(decision, new, topology):
            continue
        if (why := _echo(decision, new, topology)) is not None:
            decision.rejected.extend(replace(suspect, why=why) for suspect in new.suspects[:4])
        else:
            device_events.stands(decision, new)


def _strength(finding: Finding) -> float:
    return max(suspect.strength for suspect in finding.suspects)


def _support_or_stand(decision: Correlation, finding: Finding, topology: Topology, *, least: float) -> None:
    """A weak claim supports a root it agrees with, and stands for itself only where there is no other, and it is so sure."""
    before = bool(decision.roots) or _strength(finding) < least
    for new in split(finding):
        if confirm(decision, new, topology):
            continue
        joins = is_storage(new) and any(map(is_storage, decision.roots))
        if joins or not (before or _running(decision.findings)):
            decision.roots.append(new)


def confirm(decision: Correlation, new: Candidate, topology: Topology) -> bool:
    """Merge a root into the one that it is about; False where there is none."""
    for index, old in enumerate(decision.roots):
        if _same_root(old, new, topology):
            decided = device_events.decides(old, new, EVEN_ODDS, topology)
            decision.roots[index] = device_events.explained(old, new) if decided else _merged(old, new, topology)
            return True
    return False


def _same_root(old: Candidate, new: Candidate, topology: Topology) -> bool:
    """Two families are about the same root when they share a rank, a line of a log, or a machine and a device on it."""
    if (
        new.finding.family in old.families
        or _both_may_be(old, new, topology)
        or device_events.came_later(old.finding, new.finding)
    ):
        return False
    if old.ranks & new.ranks or _lines(old) & _lines(new):
        return True
    if "machine" not in (old.finding.cause, new.finding.cause):
        return False
    return bool(_nodes(old, topology) & _nodes(new, topology)) and not (old.ranks and new.ranks)


def _lines(root: Candidate) -> set[str]:
    """Return the lines of logs that a claim of the program rests on: the kernel's own word for a kill is one of both families."""
    if root.finding.cause != "code":
        return set()
    shown = (one.source for suspect in root.suspects for one in suspect.evidence)
    return {source for source in shown if source.rpartition(":")[2].isdecimal()}


def _came_later(old: Candidate, new: Candidate) -> bool:
    return device_events.came_later(old.finding, new.finding)


def _too_late(decision: Correlation, new: Candidate, topology: Topology) -> bool:
    """Reject a machine's event long after a crash there, by itself: the rank that crashed may be named beside it."""
    late = (_came_later(old, new) and _there(old, new, topology) for old in decision.roots)
    return any(late) and _rejected_as_late(decision, new, "it came too long after the crash to have caused it")


def _after_the_hang(decision: Correlation, new: Candidate) -> bool:
    """Reject a machine's event long after watchdogs gave up, wherever it was: what it broke had stood still by then."""
    hangs = (one for one in decision.findings if one.symptom == "hang")
    late = any(device_events.came_later(one, new.finding) for one in hangs)
    return late and _rejected_as_late(decision, new, "it came too long after the job had stopped to have caused that")


def _rejected_as_late(decision: Correlation, new: Candidate, why: str) -> bool:
    decision.rejected.extend(replace(one, why=f"{one.why}; {why}", ranks=()) for one in new.suspects[:4])
    decision.findings = tuple(one for one in decision.findings if one is not new.finding)
    return True


def _both_may_be(old: Candidate, new: Candidate, topology: Topology) -> bool:
    """Whether a log blames the code and a device's event its machine: neither makes the other surer, or is its echo."""
    said = (old.finding.family, old.finding.cause), (new.finding.family, new.finding.cause)
    return said == (("log", "code"), ("hardware", "machine")) and _there(old, new, topology)


def _there(old: Candidate, new: Candidate, topology: Topology) -> bool:
    """Whether two roots are about one rank or one machine."""
    return bool(old.ranks & new.ranks or _nodes(old, topology) & _nodes(new, topology))


def _nodes(root: Candidate, topology: Topology) -> set[str]:
    return nodes_of(root.suspects, topology)


def _merged(old: Candidate, new: Candidate, topology: Topology) -> Candidate:
    """Let an independent family confirm a root, or pick the suspects of a set that both name."""
    wanted, nodes = new.ranks, _nodes(new, topology)
    agreed = tuple(s for s in old.suspects if set(s.ranks) & wanted or (not wanted and _on(s, nodes, topology)))
    strength = max(suspect.strength for suspect in new.suspects)
    old = replace(old, arguments=old.arguments + arguments_of(new), agreeing=(*old.agreeing, new.finding.fault_class))
    if one_voice(old.senders, new.senders, nodes_of(agreed or old.suspects, topology)):
        return old
    picks = not old.certain and 0 < len(agreed) < len(old.suspects)
    if (new.finding.family, new.finding.cause) == ("process", "unknown"):
        return _picked(old, agreed) if picks and strength >= EVEN_ODDS else old
    kept = agreed if picks else old.suspects
    once = bool(SAME_EVENT & old.families and SAME_EVENT & new.families)
    raised = tuple(_raised(s, strength, new, once=once) if s in agreed or old.certain else s for s in kept)
    merged = replace(
        old,
        finding=_explained(old, new) if agreed else old.finding,
        suspects=raised,
        certain=old.certain or (new.certain and bool(agreed)),
        narrowed=old.narrowed or picks,
        families=old.families | new.families,
        senders=old.senders | new.senders if old.senders and new.senders else frozenset(),
    )
    at_storage = new.finding.family == "process" and new.finding.cause == "storage" and shows_who_only(old)
    return blamed(merged, new.finding) if at_storage and agreed else merged


def _picked(root: Candidate, agreed: tuple[Suspect, ...]) -> Candidate:
    """Return a root with those that are held in the kernel: who, and no machine is surer, for it is not shown what holds them."""
    return replace(root, suspects=agreed, certain=len(agreed) == 1, narrowed=True)


def _explained(old: Candidate, new: Candidate) -> Finding:
    """Return the finding of a merged root: waits show which rank is waited for, a stopped or dead process shows why."""
    sure = new.certain and max(suspect.strength for suspect in new.suspects) > EVEN_ODDS
    if old.finding.cause != "unknown" or new.finding.family != "process" or new.finding.cause != "machine" or not sure:
        return old.finding
    return replace(old.finding, cause="machine", fault_class=new.finding.fault_class)


def _on(suspect: Suspect, nodes: set[str], topology: Topology) -> bool:
    return suspect.node in nodes or any(topology.nodes.get(rank) in nodes for rank in suspect.ranks)


def _raised(suspect: Suspect, strength: float, new: Candidate, *, once: bool) -> Suspect:
    device = next((other.device for other in new.suspects if other.device), None)
    node = next((other.node for other in new.suspects if other.node), None)
    of_role = next((other for other in new.suspects if other.role and set(other.ranks) & set(suspect.ranks)), suspect)
    return replace(
        suspect,
        strength=joint(suspect.strength, strength, once=once),
        device=suspect.device or (device if len(new.suspects) == 1 else None),
        node=suspect.node or (node if len(new.suspects) == 1 else None),
        role=suspect.role or of_role.role,
        instances=suspect.instances or of_role.instances,
        restarts=suspect.restarts or of_role.restarts,
    )


def _echo(decision: Correlation, new: Candidate, topology: Topology) -> str | None:
    """Return why a root that agrees with none is not a root of its own; None where it is one."""
    for old in decision.roots:
        if (
            new.finding.family == old.finding.family
            or _both_may_be(old, new, topology)
            or device_events.came_later(old.finding, new.finding)
        ):
            continue
        if _follows(old, new):
            return f"it ended without a word, and rank {', '.join(map(str, sorted(old.ranks)[:4]))} for a reason of its own"
        if new.ranks and new.ranks <= set(old.finding.victims):
            return f"it waits for rank {', '.join(map(str, sorted(old.ranks)[:4]))} itself"
        of_device = new.finding.family == "hardware" and new.finding.cause == "machine"
        if of_device and topology.nodes and _nodes(new, topology) and not device_events.leads(old, new):
            return "no rank on it holds the job up"
        if new.finding.family == "stacks":
            return "a stack unlike the others' is a suspicion, and the waits end elsewhere"
        if old.finding.family == "log" and new.finding.family == "waits" and old.certain:
            return "the waits follow from the failure that the log spells out"
    return None


def _follows(old: Candidate, new: Candidate) -> bool:
    """Whether a process that ended without a word was ended for the failure of another: it was not seen to end before that."""
    if new.finding.family != "process" or not has(new.finding.fault_class, "ended"):
        return False
    seen_at = [one.at for suspect in new.suspects for one in suspect.evidence if one.at is not None]
    failed_at = old.finding.onset
    before = failed_at is not None and bool(seen_at) and min(seen_at) < failed_at - SKEW_SECONDS
    return has(old.finding.fault_class, "own_failure") and bool(old.ranks) and not before
