"""What excuses a rank that the others wait for: a pause, a slow file system, data that all wait for, the end of its data.

The findings show which rank is waited for. That is its machine's fault only where nothing else explains it: a rank that
compiles, one of several that wait for the same file server, and one whose data ended first do nothing wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analyzers.model.fault_classes import has
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.standings import WAITING
from analyzers.model.verdict import instant
from analyzers.verdict.at_storage import is_storage
from analyzers.verdict.candidates import Candidate, Correlation, Excused
from analyzers.verdict.gate import next_round
from analyzers.verdict.pauses import Pause, Pauses
from analyzers.verdict.witness import Witness

STORAGE_SECONDS = 600.0
"""Several ranks in a checkpoint for longer than this are held up by the file system."""
LEFT = 0.9
STARTING = "pause_start"
MOST_SHOWN = 4


def without_echoes(findings: Iterable[Finding], witness: Witness) -> list[Finding]:
    """Remove from findings against machines the ranks that only wait for files or outside the job, or left in good order."""
    found = list(findings)
    outside = frozenset(
        rank for finding in found if has(finding.fault_class, "waits_outside") for rank in finding.scope
    )
    in_files = frozenset(rank for finding in found for rank in _in_files(finding))
    reading = frozenset(rank for finding in found for rank in _reading(finding, witness))
    kept: list[Finding] = []
    left: dict[int, str] = {}
    first: Finding | None = None  # the first finding that names a rank that has left
    for finding in found:
        gone = _left(finding, witness)
        alike = reading if finding.family == "waits" and reading.issuperset(_about(finding)) else frozenset[int]()
        innocent = in_files | alike | gone.keys() if _doubtful(finding) else frozenset[int]()
        kept.append(_without(finding, innocent | (outside if _within_role(finding) else frozenset())))
        first = first or (finding if gone else None)
        left |= gone
    return kept if first is None else [*kept, _uneven(first, left)]


def _in_files(finding: Finding) -> frozenset[int]:
    """Return the ranks that wait for files by a finding that blames the storage, where they are several."""
    ranks = _about(finding) if finding.cause == "storage" else frozenset[int]()
    return ranks if len(ranks) > 1 else frozenset()


def _reading(finding: Finding, witness: Witness) -> frozenset[int]:
    """Return the ranks that all read their data by a finding about more than half of the job: none of them waits for another."""
    all_alike = finding.cause == "data" and has(finding.fault_class, "alike")
    ranks = _about(finding) if all_alike else frozenset[int]()
    return ranks if 2 * len(ranks) > len(witness.topology.ranks) else frozenset()


def _about(finding: Finding) -> frozenset[int]:
    """Return the ranks that a finding with suspects names, or all that it is about."""
    ranks = frozenset(rank for suspect in finding.suspects for rank in suspect.ranks) or finding.scope
    return ranks if finding.suspects else frozenset()


def _doubtful(finding: Finding) -> bool:
    """Whether a finding shows no more than that others wait for a rank, or lost it."""
    return finding.cause == "machine" and _of_waits(finding)


def _of_waits(finding: Finding) -> bool:
    """Whether it blames a machine, or no cause, for what others' waits show, and not for the process's own state."""
    of_waits = finding.symptom in ("hang", "crash") and finding.family not in ("log", "hardware")
    return finding.cause in ("machine", "unknown") and of_waits and not has(finding.fault_class, "own_state")


def _within_role(finding: Finding) -> bool:
    """Whether it is of waits of one role's ranks for each other: who blames a role for others' waits knows for whom it waits."""
    return _of_waits(finding) and finding.family != "roles"


def _left(finding: Finding, witness: Witness) -> dict[int, str]:
    """Return how each suspect that left the training in good order did so."""
    suspects = finding.suspects if _doubtful(finding) else ()
    return {rank: how for suspect in suspects for rank in suspect.ranks if (how := witness.left(rank))}


def _without(finding: Finding, innocent: frozenset[int]) -> Finding:
    """Return a finding without these ranks; of a set one explains the hang, and then the others may be innocent.

    Where no suspect is left, what would have decided between them is not asked for.
    """
    kept = tuple(suspect for suspect in finding.suspects if not innocent.intersection(suspect.ranks))
    if len(kept) == len(finding.suspects):
        return finding
    kept = kept if finding.together else ()
    return replace(finding, suspects=kept, missing=finding.missing if kept else ())


def _uneven(finding: Finding, left: dict[int, str]) -> Finding:
    """Blame the code where ranks left the training while others wait for them."""
    ranks = tuple(sorted(left))
    how = left[ranks[0]]
    named = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
    why = f"{named} left the training while others wait there ({how}): the ranks had different numbers of steps to do"
    evidence = tuple(Evidence(text=f"rank {rank}: {left[rank]}", rank=rank) for rank in ranks[:MOST_SHOWN])
    suspect = Suspect(kind="code", strength=LEFT, why=why, ranks=ranks, evidence=evidence)
    return replace(
        finding, cause="code", fault_class="uneven_end", suspects=(suspect,), together=True, narrows=False, missing=()
    )


def unclaimed(findings: Sequence[Finding], witness: Witness, pauses: Pauses, *, live: bool) -> Finding | None:
    """Return what explains a standstill of which no record shows a wait; None where nothing does.

    Without recorded collectives (CUDA graphs, no recorder) the stacks and the ends of processes are the only evidence.
    """
    symptoms = {finding.symptom for finding in findings}
    if "healthy" in symptoms or "crash" in symptoms or not (live or "hang" in symptoms):
        return None
    if live and "slow" in symptoms:
        return None  # it runs
    observed = {rank: found for rank in witness.topology.ranks if (found := witness.observations(rank))}
    waiting = [rank for rank, found in observed.items() if found[-1].duty.name in WAITING]
    left = {rank: how for rank in witness.topology.ranks if (how := witness.left(rank))}
    made = Finding(analyzer="pauses", family="stacks", symptom="hang", cause="unknown", fault_class="outside")
    if left and waiting:
        return _uneven(made, left)
    apart = [rank for rank in observed if rank not in waiting]
    busy = {
        rank: pause
        for rank in apart
        if not _shared(rank, witness, pauses) and (pause := pauses.seen(observed[rank], witness.rows(rank), ()))
    }
    if not busy or len(busy) < len(apart) or 2 * len(observed) < len(witness.topology.ranks):
        return None
    share = round(LEFT / len(busy), 4)
    suspects = tuple(Suspect(kind="rank", strength=share, why=busy[rank].words, ranks=(rank,)) for rank in busy)
    return replace(made, suspects=suspects, scope=frozenset(observed))


def excused(decision: Correlation, witness: Witness, pauses: Pauses, rounds: int | None) -> Correlation:
    """Move the roots that are in a pause from ``roots`` to ``excused``.

    Where a process has failed, that another was still starting is no fault and explains nothing.
    """
    kept: list[Candidate] = []
    died = witness.failed or any(one.symptom == "crash" for one in decision.findings)
    for root in decision.roots:
        excuse = _excuse(root, witness, pauses, rounds)
        if excuse is None:
            kept.append(root)
        else:
            if died and excuse.fault_class == STARTING:
                decision.died = True
            else:
                decision.excused.append(excuse)
            reason = excuse.evidence[0].text if excuse.evidence else excuse.why
            if root.ranks:
                ranks = tuple(sorted(root.ranks))
                decision.rejected.append(Suspect(kind="rank", strength=0.05, why=f"a pause: {reason}", ranks=ranks))
    decision.roots = kept
    return decision


def _excuse(root: Candidate, witness: Witness, pauses: Pauses, rounds: int | None) -> Excused | None:
    if root.finding.symptom not in ("hang", "unknown") or "hardware" in root.families:
        return None
    ranks = concerned(root)
    found = {rank: pause for rank in ranks if (pause := pause_of(rank, root, witness, pauses))}
    if not found or (root.certain and len(found) < len(ranks)):
        return None
    age = witness.age
    if rounds is None and "process" in root.families and is_storage(root):
        return None  # its process waits for the file server, and of files there is no second look that ends a pause
    if not all(pause.excuses(age) for pause in found.values()) or _stuck_in_files(found, age):
        return None
    return _written(root, found, witness, rounds)


def concerned(root: Candidate) -> tuple[int, ...]:
    """Return the ranks that a root is about: its suspects', or all that stand alike where it names none."""
    return tuple(sorted(root.ranks or (root.finding.scope if has(root.finding.fault_class, "alike") else ())))


def pause_of(rank: int, root: Candidate, witness: Witness, pauses: Pauses) -> Pause | None:
    """Return the pause that a rank is in, None where it is in none, is stopped or has ended, or all share the pause."""
    if witness.stopped(rank) or _shared(rank, witness, pauses):
        return None
    observed = witness.observations(rank)
    pause = pauses.just_left(observed, witness.onset) or pauses.seen(
        observed, witness.rows(rank), witness.helpers(rank)
    )
    on_device = bool(observed) and observed[-1].duty.name == "waiting_device"
    return None if on_device and has(root.finding.fault_class, "on_device") else pause


def _shared(rank: int, witness: Witness, pauses: Pauses) -> bool:
    observed = witness.observations(rank)
    return bool(observed) and pauses.shared(observed[-1], witness.waiting_frames([rank]), rank)


def _stuck_in_files(found: dict[int, Pause], age: float | None) -> bool:
    """Whether several ranks have stood in a checkpoint for too long: then the file system is the cause."""
    saving = [rank for rank, pause in found.items() if pause.kind == "checkpoint"]
    return len(saving) > 1 and age is not None and age > STORAGE_SECONDS


def _written(root: Candidate, found: dict[int, Pause], witness: Witness, rounds: int | None) -> Excused:
    ranks = sorted(found)
    first = found[ranks[0]]
    began = instant(first.since if first.since is not None else witness.onset)
    is_over = all(pause.left_at is not None for pause in found.values())
    verb, verbs = ("was", "were") if is_over else ("is", "are")
    named = f"rank {ranks[0]} {verb}" if len(ranks) == 1 else f"ranks {ranges(ranks)} {verbs}"
    since = f", since {began} at the latest" if began else ""
    if is_over:
        since = f", and had left it by {instant(max(pause.left_at or 0.0 for pause in found.values()))}"
    bound = f"; after {first.longest_seconds:g} s it is named" if first.longest_seconds else ""
    why = f"{named} {first.words}{since} ({first.where}): a pause, and no rank's fault; {next_round(rounds)}{bound}"
    cause = first.cause
    if first.longest_seconds and witness.age is None:
        cause = "unknown"
        bound = f"up to {first.longest_seconds:g} s"
        why = f"{named} {first.words} ({first.where}): a pause of {bound}, and how long it lasts is not known"
    evidence = tuple(
        Evidence(text=f"rank {rank} {verb} {pause.words}: {pause.where}", source=pause.source, at=pause.at, rank=rank)
        for rank, pause in list(found.items())[:MOST_SHOWN]
    )
    return Excused(root, cause, f"pause_{first.kind}", why, evidence)
