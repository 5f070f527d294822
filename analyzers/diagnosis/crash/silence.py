"""With echoes only, the rank that reports no error is the one that the others wait for, or lost.

A watchdog's timeout names a group, an operation's sequence number, and how far its rank had come: ``last enqueued``. A
member that had not enqueued what the others wait for never entered it. A member without any error while the others have
one is a suspect only: its log may be missing. These findings narrow another's set; alone they evict no node.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from analyzers.diagnosis.crash import parting, watchdogs
from analyzers.diagnosis.crash.failures import Failure, evidence_of
from analyzers.diagnosis.crash.lost_peers import is_connecting, missing_in_barrier
from analyzers.model.finding import Cause, Evidence, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import ENGINE_DIED, LogEvent, Placement, ProcessState, Steps

NEVER_ENTERED = 0.6
UNCOUNTED = 0.3  # a rank that is in no report, where nothing says how many ranks there are: it may not be the only one
STUCK = 0.7
SILENT = 0.45
DIFFERENT = 0.9
FEW, FEWEST_COMPLAINING = 8, 3
PREPARES = 0.5
ENGINE_UNSEEN = 0.4
DUMPS = "flight-recorder dumps of all ranks"
STACKS, EXIT_CODES = "flight-recorder dumps or stacks of all ranks", "the launcher's exit codes"
LOGS = "the logs of all ranks, and the kernel log of each node: the process that failed first shows there"
ENGINE_LOG = (
    "the lines of the engine's own processes from before it died (EngineCore, its workers): what ended it shows there"
)
_PREPARES = re.compile(  # a bar of the datasets library that has not reached its end, on the line on which a watchdog wrote
    r"^(?:Map|Filter|Flattening|Running tokenizer|Tokeniz\w{2,4}|Grouping texts|Generating \w{1,30} split|Preprocess\w{2,4}|"
    r"Packing|Converting format)[^|%]{0,60}: {1,4}\d{1,2}%\|"
)
Classified = Sequence[tuple[str, LogEvent]]


def heard(window: Window) -> frozenset[int]:
    """Return the ranks that logs or process tables show; agents read the logs of every rank that they place."""
    kinds = (LogEvent, ProcessState, Steps, Placement) if window.live else (LogEvent, ProcessState, Steps)
    found = {record.rank for record in window.records if isinstance(record, kinds)}
    for placement in window.records_of(Placement) if window.live else ():
        found.update(placement.ranks.ranks() if placement.ranks else ())
    return frozenset(rank for rank in found if rank is not None)


def findings(
    classified: Classified,
    failures: Sequence[Failure],
    expected: frozenset[int],
    topology: Topology,
    heard: Collection[int] = (),
    last_step: float | None = None,
) -> Iterator[Finding]:
    """Yield one finding that narrows to the ranks that did not come, or a bare hang where the logs name no rank.

    ``heard``: ranks of which a log holds a line, whatever it is. ``last_step``: when the newest step ended.
    """
    echoes = [event for kind, event in classified if kind in {"echo", "watchdog", "stuck", "collective"}]
    if not echoes:
        return
    reports = [event for kind, event in classified if kind == "collective"]
    numbers = watchdogs.counters(event for kind, event in classified if kind == "watchdog")
    said = [event for event in reports if event.event == "collective_mismatch"]
    different = list(watchdogs.mismatches(numbers, [*said, *watchdogs.disjoint(reports)]))
    behind = {} if different else watchdogs.behind(numbers, reports)
    stuck = {event.rank: event for kind, event in classified if kind == "stuck" and event.rank is not None}
    stuck = _minority(stuck, {event.rank for event in echoes} | set(heard))
    barrier = missing_in_barrier(echoes)
    lost = {rank for event in reports if event.event == "heartbeat_lost" for rank in watchdogs.ranks_of(event)}
    timed_out = _timed_out(echoes, reports)
    named = sorted(set(behind) | set(stuck) | barrier)
    suspects = [_named(rank, behind.get(rank), stuck.get(rank), echoes, topology, lost) for rank in named]
    fault_class = "process_gone" if named and set(named) <= lost and not timed_out else "never_entered"
    cause: Cause = "machine"
    if suspects and not stuck and not barrier and all(map(watchdogs.is_by_name, reports)) and not numbers:
        fault_class, cause = "never_submitted", "unknown"
        suspects = _uncounted(suspects, reports) if topology.world_size is None else suspects
    if suspects and stuck and set(named) <= stuck.keys():  # what holds the interpreter may be the rank's own code
        fault_class, cause = "never_submitted", "unknown"
    if cause == "machine" and not lost and parting.part_alike(named, behind, expected, topology):
        suspects, cause = parting.in_doubt(suspects), "unknown"
        fault_class = "parted_alike"
    if different:
        suspects, cause, fault_class = [_of_code(one) for one in different], "code", "desync"
    elif not suspects and (preparing := [event for event in echoes if _PREPARES.search(event.text)]):
        suspects, cause = [_of_preparation(preparing)], "code"
        fault_class = "prepares_data"
    elif not suspects and all(map(is_connecting, echoes)):
        timed_out = False  # who came late may have been slow to start, and any of those that failed may be the reason
    elif not suspects:
        suspects = _silent(failures, expected, topology, heard, timed_out=timed_out)
        fault_class = "never_entered" if timed_out else "process_gone"
    complaining = {failure.rank for failure in failures if failure.kind == "echo" and failure.rank is not None}
    earliest = min((event for event in echoes if event.at is not None), key=lambda event: event.at or 0.0, default=None)
    began = watchdogs.began_between(echoes, last_step) if timed_out else (None, None)
    more = () if behind or stuck or different else _missing([event for _, event in classified], timed_out=timed_out)
    yield Finding(
        analyzer="crash", family="waits", symptom="hang" if timed_out else "crash",
        cause=cause if suspects else "unknown", fault_class=fault_class if suspects else "echoes_only",
        suspects=tuple(suspects), narrows=True, scope=expected, onset=earliest.at if earliest else None,
        no_earlier_than=began[0], no_later_than=began[1], first_symptom=evidence_of(earliest) if earliest else None,
        victims=tuple(sorted(complaining - {rank for suspect in suspects for rank in suspect.ranks})),
        evidence=tuple(evidence_of(event) for event in echoes[:3]),
        missing=parting.wanted(suspects) if fault_class == "parted_alike" else more,
    )  # fmt: skip


def _uncounted(suspects: list[Suspect], reports: Sequence[LogEvent]) -> list[Suspect]:
    """Return the suspects as those of a job of unknown size: surer where a report says who is behind."""
    if any(event.event == "collective_behind" for event in reports):
        return suspects
    return [replace(suspect, strength=UNCOUNTED) for suspect in suspects]


def _timed_out(echoes: Sequence[LogEvent], reports: Sequence[LogEvent]) -> bool:
    """Whether ranks waited in vain, as a watchdog, a time-out or a report of who did not join shows."""
    hangs = any(event.event != "heartbeat_lost" for event in reports)
    return hangs or any(event.event in watchdogs.TIME_OUTS or event.timeout_ms for event in echoes)


def of_engine(classified: Classified) -> Suspect | None:
    """Return a server's engine that has died, as its front reports, where nothing says of what; a wait shows more."""
    reports = [event for kind, event in classified if kind == "echo" and event.event == ENGINE_DIED]
    if not reports or any(kind in {"watchdog", "stuck", "collective"} for kind, _ in classified):
        return None
    why = "the server's engine has died, as its front reports, and no line read says why"
    return Suspect(kind="rank", strength=ENGINE_UNSEEN, why=why, evidence=(evidence_of(reports[0]),))


def _missing(events: Sequence[LogEvent], *, timed_out: bool) -> tuple[str, ...]:
    """Return what would show more: of processes that have ended, no stacks."""
    if any(event.exit_code is not None or event.event == "watchdog_abort" for event in events):
        return (DUMPS,) if timed_out else (LOGS,)
    return (STACKS, EXIT_CODES)


def _minority(stuck: dict[int, LogEvent], seen: Collection[int | None]) -> dict[int, LogEvent]:
    """Return the ranks whose monitors made no progress, unless they are more than half of those seen: then all are held up."""
    return stuck if 2 * len(stuck) <= len({*stuck, *seen} - {None}) else {}


def _of_preparation(events: Sequence[LogEvent]) -> Suspect:
    why = "a data set was still being prepared when the others had waited for as long as their time-out lets them"
    return Suspect(kind="code", strength=PREPARES, why=why, evidence=tuple(evidence_of(event) for event in events[:3]))


def _of_code(different: watchdogs.Mismatch) -> Suspect:
    return Suspect(kind="code", strength=DIFFERENT, why=different.why, ranks=different.odd, evidence=different.evidence)


def _named(
    rank: int,
    behind: Evidence | None,
    stuck: LogEvent | None,
    echoes: Sequence[LogEvent],
    topology: Topology,
    lost: Collection[int],
) -> Suspect:
    shown = [behind] if behind else []
    why = (
        f"it is behind the others of its group: {behind.text}"
        if behind
        else "a barrier's members report that it never came"
    )
    if behind and rank in lost:
        why = f"its heartbeats stopped, so that its process has ended or no longer answers: {behind.text}"
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
    failures: Sequence[Failure],
    expected: frozenset[int],
    topology: Topology,
    heard: Collection[int],
    *,
    timed_out: bool,
) -> list[Suspect]:
    """Return the ranks without an error while most have one; a whole silent node may be our own collection.

    A part of a log lacks lines of ranks that are well. Silence is evidence where the number of ranks is stated, and the
    silent ranks have other lines in what was read, or are so few that no cut of a log would leave out just them.
    """
    complaining = {failure.rank for failure in failures if failure.kind == "echo" and failure.rank is not None}
    silent = expected - complaining
    if any(failure.kind == "exit" and failure.rank in silent for failure in failures):
        return []  # it left with a code of its own: it is gone by its program, and silent only in what was read
    if not silent or 2 * len(silent) >= len(expected) or not complaining:
        return []
    few = len(silent) <= max(1, len(expected) // FEW) and len(complaining) >= FEWEST_COMPLAINING
    if topology.world_size is None or not (few or silent <= set(heard)):
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
