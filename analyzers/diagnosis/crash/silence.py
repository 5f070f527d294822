"""With echoes only, the rank that reports no error is the one that the others wait for, or lost.

A watchdog's timeout names a group, an operation's sequence number, and how far its rank had come: ``last enqueued``. A
member that had not enqueued what the others wait for never entered it. A member without any error while the others have
one is a suspect only: its log may be missing. These findings narrow another's set; alone they evict no node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from analyzers.diagnosis.crash.failures import Failure, evidence_of, missing_in_barrier
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.topology import Topology
from collectors.records import LogEvent

NEVER_ENTERED = 0.6
STUCK = 0.7
SILENT = 0.45
Classified = Sequence[tuple[str, LogEvent]]


def findings(
    classified: Classified, failures: Sequence[Failure], expected: frozenset[int], topology: Topology
) -> Iterator[Finding]:
    """Yield one finding that narrows to the ranks that did not come, or a bare hang where the logs name no rank."""
    echoes = [event for kind, event in classified if kind in {"echo", "watchdog", "stuck"}]
    if not echoes:
        return
    behind = _behind(classified)
    stuck = {event.rank: event for kind, event in classified if kind == "stuck" and event.rank is not None}
    barrier = missing_in_barrier(echoes)
    waiting = {event.rank for event in echoes if event.event in {"watchdog_timeout", "communication_timeout"}}
    timed_out = bool(waiting) or any(event.timeout_ms for event in echoes)
    named = sorted(set(behind) | set(stuck) | barrier)
    suspects = [_named(rank, behind.get(rank), stuck.get(rank), echoes, topology) for rank in named]
    fault_class = "never_entered"
    if not suspects:
        suspects = _silent(failures, expected, topology, timed_out=timed_out)
        fault_class = "never_entered" if timed_out else "process_gone"
    complaining = {failure.rank for failure in failures if failure.kind == "echo" and failure.rank is not None}
    earliest = min((event for event in echoes if event.at is not None), key=lambda event: event.at or 0.0, default=None)
    yield Finding(
        analyzer="crash", family="waits", symptom="hang" if timed_out else "crash",
        cause="machine" if suspects else "unknown", fault_class=fault_class if suspects else "echoes_only",
        suspects=tuple(suspects), narrows=True, scope=expected, onset=earliest.at if earliest else None,
        first_symptom=evidence_of(earliest) if earliest else None,
        victims=tuple(sorted(complaining - {rank for suspect in suspects for rank in suspect.ranks})),
        evidence=tuple(evidence_of(event) for event in echoes[:3]),
        missing=() if behind or stuck else ("flight-recorder dumps or stacks of all ranks", "the launcher's exit codes"),
    )  # fmt: skip


def _behind(classified: Classified) -> dict[int, Evidence]:
    """Ranks that had not enqueued what others of the same group timed out on, and that wait for no rank."""
    awaited: dict[str, dict[int, LogEvent]] = defaultdict(dict)
    enqueued: dict[str, dict[int, LogEvent]] = defaultdict(dict)
    for kind, event in classified:
        # A local group number means another group on another rank; only one that is unique in the job compares.
        if kind != "watchdog" or event.rank is None or event.group is None or event.group.startswith("local:"):
            continue
        if event.sequence is not None:
            awaited[event.group].setdefault(event.rank, event)
        if event.last_enqueued is not None:
            old = enqueued[event.group].get(event.rank)
            if old is None or (old.last_enqueued or 0) < event.last_enqueued:
                enqueued[event.group][event.rank] = event
    behind: dict[int, Evidence] = {}
    for group, waits in awaited.items():
        front = min(event.sequence or 0 for event in waits.values())
        for rank, event in enqueued[group].items():
            if rank not in waits and (event.last_enqueued or 0) < front:
                said = f"rank {rank} had enqueued {event.last_enqueued} operations of group {group}; "
                said += f"{len(waits)} ranks wait in number {front}"
                behind[rank] = Evidence(text=said, source=event.source, at=event.at)
    waiting = {rank for waits in awaited.values() for rank in waits}
    return {rank: evidence for rank, evidence in behind.items() if rank not in waiting}


def _named(
    rank: int, behind: Evidence | None, stuck: LogEvent | None, echoes: Sequence[LogEvent], topology: Topology
) -> Suspect:
    shown = [behind] if behind else []
    why = (
        "it had not entered the operation that the others wait in"
        if behind
        else "a barrier's members report that it never came"
    )
    if stuck is not None:
        shown.append(evidence_of(stuck))
        why = "its own monitor reports that its interpreter or its watchdog made no progress"
    if not shown:
        shown = [evidence_of(event) for event in echoes if rank in missing_in_barrier([event])][:2]
    strength = STUCK if stuck is not None else NEVER_ENTERED
    return Suspect(
        kind="rank", strength=strength, why=why, ranks=(rank,), node=topology.nodes.get(rank), evidence=tuple(shown)
    )


def _silent(
    failures: Sequence[Failure], expected: frozenset[int], topology: Topology, *, timed_out: bool
) -> list[Suspect]:
    """Return the ranks without an error while most have one; a whole silent node may be our own collection."""
    complaining = {failure.rank for failure in failures if failure.kind == "echo" and failure.rank is not None}
    silent = expected - complaining
    if not silent or 2 * len(silent) >= len(expected) or not complaining:
        return []
    nodes = {rank: topology.nodes.get(rank) for rank in expected}
    loud = {nodes[rank] for rank in complaining}
    if len({node for node in nodes.values() if node}) > 1 and len({nodes[rank] for rank in silent} - loud) > 1:
        return []
    why = "it alone reports no error while the others " + (
        "wait for it" if timed_out else "lost their connection to it"
    )
    if len(silent) > 1:
        why = f"one of {len(silent)} that report no error while {len(complaining)} others do"
    return [
        Suspect(
            kind="rank", strength=SILENT, why=why, ranks=(rank,), node=nodes[rank],
            evidence=(Evidence(text=f"no line of an error by rank {rank} in any log read"),),
        )
        for rank in sorted(silent)
    ]  # fmt: skip
