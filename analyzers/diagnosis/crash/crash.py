"""The culprit of a crash is the process that failed for a reason of its own; one that lost a peer or was ended is a victim.

Order of thought: the platform's own word (preempted, time limit, node lost); then each kind of own failure, spread over
one rank, some, or all that logged one; then, with echoes only, the ranks that report no error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analyzers.diagnosis.crash import accounts, missing_paths, outside, silence
from analyzers.diagnosis.crash.device_reports import shows_device
from analyzers.diagnosis.crash.exits import RAISED, exit_events, left_before, not_for_memory
from analyzers.diagnosis.crash.failures import (
    ECHOES,
    OWN,
    SPOKEN,
    Failure,
    classify,
    evidence_of,
    failures_of,
    place,
    shows_itself,
)  # fmt: skip
from analyzers.diagnosis.crash.instants import first_of, newest_steps, no_later_than
from analyzers.diagnosis.crash.lost_peers import may_be, peers_lost
from analyzers.diagnosis.crash.statements import SHARE, is_stated, with_stated
from analyzers.diagnosis.crash.suspects import MAX_EVIDENCE, crash_row, fault_class_of, rejected, suspects_of
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import WHOLE_TEXT, KernelEvent, LogEvent

SYMPTOMS = frozenset(
    {*OWN, *ECHOES, "preempted", "node_failure", "node_unheard", "time_limit", "cancelled", "stuck"}
) - {"exit"}
"""Kinds that may be the first symptom: a launcher's clean-up and its bare exit codes come after it."""
LOCAL = frozenset({"device_lost", "device_fault", "killed", "crashed"})
REPORTED_BY_OTHERS = frozenset({"killed", "aborted", "host_memory"})
"""Kinds of which the process says nothing itself: a launcher's line about some ranks leaves the others open."""
HANDLED = 0.6  # of the strength is left where the process went on after the exception
UNEVEN = 0.8
NAMELESS = 0.55  # the strength of a report of a node without its name: its text may be about another job's
STEP_ENDED = (
    "what ended the step, scancel or srun after a task that failed: the lines above it, or `sacct -j` of the job"
)
STEP_ONLY = 0.6  # a cancelled step alone: its own srun cancels it, too, after a task whose line may be cut off
DISPUTED = 0.75  # of the strength is left where the launcher names another rank first


@dataclass(frozen=True, slots=True)
class Scene:
    """What the rules use: the events with their kinds, each process's failure, and the expected ranks."""

    classified: tuple[tuple[str, LogEvent], ...]
    failures: tuple[Failure, ...]
    expected: frozenset[int]
    topology: Topology
    table: Mapping[str, Any]
    not_for_memory: frozenset[int]  # ranks that were killed, and not by a kernel that was short of memory
    heard: frozenset[int] = frozenset()  # ranks of which a log or a process table shows anything
    newest_steps: Mapping[str, float] = field(default_factory=dict)  # of each log, where its steps have times
    has_served: bool = False  # whether a file system has served the job, or is reported to have failed
    shows_device: bool = False  # whether the kernel or a tool reports more of a device than a program's own fault

    def of_kinds(self, *kinds: str) -> list[Failure]:
        """The failures of these kinds."""
        return [failure for failure in self.failures if failure.kind in kinds]

    def events(self, *kinds: str) -> list[LogEvent]:
        """The events of these kinds."""
        return [event for kind, event in self.classified if kind in kinds]


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield one finding a root cause that the job's logs give, or one that narrows where they only echo."""
    # A whole text is no line of a program: of its words text_class makes what can be made.
    lines_read = (event for event in window.records_of(LogEvent) if event.event != WHOLE_TEXT)
    every = (*lines_read, *exit_events(window, topology))
    lines, reports = accounts.apart(sorted(every, key=_order))
    yield from accounts.beside(list(_of_lines(window, topology, knowledge, lines)), lines, reports, knowledge)


def _of_lines(window: Window, topology: Topology, knowledge: Knowledge, ordered: list[LogEvent]) -> Iterator[Finding]:
    table = knowledge.table("crash")
    known = classify(ordered, table, window.records_of(KernelEvent))
    kinds = knowledge.table("codes").get("kind", {})
    classified = tuple(with_stated(known, kinds))
    if not table or not any(kind for kind, _ in classified):
        return
    failures = tuple(failures_of(classified, window.records_of(KernelEvent), topology.nodes))
    seen = {failure.rank for failure in failures if failure.rank is not None}
    scene = Scene(
        classified, failures, frozenset(topology.ranks) | seen, topology, table, not_for_memory(window), silence.heard(window),
        newest_steps(window), missing_paths.has_served(window, classified), shows_device(window, knowledge),
    )  # fmt: skip
    found = list(_platform(scene, window)) or list(_uneven(scene, window)) or list(_roots(scene))
    found = found or list(_engine(scene))
    last_step = max(scene.newest_steps.values(), default=None)
    yield from found or silence.findings(classified, failures, scene.expected, topology, scene.heard, last_step)


def _order(event: LogEvent) -> tuple[Any, ...]:
    return (*place(event.source), event.rank if event.rank is not None else -1, event.event, event.text)


def _platform(scene: Scene, window: Window) -> Iterator[Finding]:
    """The scheduler's own words. A preemption explains every later death; a lost node is named; a time limit is weak."""
    own = [failure for failure in scene.failures if failure.kind in SPOKEN]
    for kind, events in outside.nodes_out(scene.classified):
        yield _node_failure(scene, kind, events)
    if not own and (unheard := scene.events("node_unheard")) and not scene.events("node_failure"):
        yield _node_failure(scene, "node_unheard", unheard)
        return
    if refused := outside.refusals(scene.classified, scene.failures):
        yield _outside(scene, refused, *outside.refused_fault_class_of(refused))
        return
    if taken := scene.events("preempted"):
        if not outside.older_than(own, taken, float(scene.table.get("preemption_grace_seconds", 0.0))):
            yield _outside(scene, taken, "preempted", 0.9, "the scheduler took the job's place: it says so")
        return
    if not own and (waits := outside.still_waits(scene.classified)):
        why = "the job waits: the platform has no place for it, or cannot start its container"
        yield _outside(scene, waits, "pod_waits", 0.7, why)
        return
    asked = outside.asked_to_end(scene.classified, scene.failures)
    if outside.failed_apart(scene.classified, scene.failures, asked) or scene.events("watchdog"):
        return
    of_step = sum(event.event == "step_cancelled" for event in asked)
    ended = scene.events("shutdown", "terminated", "cancelled", "time_limit", *(["step_ended"] if of_step else []))
    if (asked or outside.interrupted(ended)) and (stood := outside.standstill(window, asked or ended)) is not None:
        yield _stood(scene, ended, stood)
    elif scene.events("time_limit"):
        yield _outside(scene, ended, "time_limit", 0.6, "the job reached its time limit and nothing failed before")
    elif outside.interrupted(ended) and not asked:
        yield replace(_outside(scene, ended, "interrupted", 0.7, outside.BY_KEY), cause="none")
    elif asked or _all_terminated(scene):
        why = f"the job was {outside.how_ended(ended)} and no process failed by itself"
        yield _outside(scene, ended, "terminated", STEP_ONLY if len(asked) == of_step > 0 else 0.7, why)
    elif (steps := scene.events("step_ended")) and not scene.failures and not scene.heard:
        shown = tuple(evidence_of(event) for event in steps[:3])
        yield _finding(scene, "unknown", "exit_unexplained", (), [], evidence=shown, missing=(STEP_ENDED,))


def _uneven(scene: Scene, window: Window) -> Iterator[Finding]:
    """Ranks that ended well before the others failed for want of a peer: they had fewer steps to do.

    A process that a signal ends at the end of a job that half of its ranks have left in good order dies of leaving, too.
    """
    left = left_before(window)
    died = scene.of_kinds("killed", "crashed") if 2 * len(left) < len(scene.expected) else []
    own = scene.of_kinds(*SPOKEN) or died
    if not left or own:
        return
    ranks = tuple(sorted(left))
    why = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)} ended with exit code 0 before the others failed"
    shown = tuple(
        Evidence(text=f"rank {rank}: exit code 0", source=left[rank].source, at=left[rank].at) for rank in ranks
    )
    suspect = Suspect(kind="code", strength=UNEVEN, why=why, ranks=ranks, evidence=shown[:MAX_EVIDENCE])
    yield _finding(scene, "code", "uneven_end", (suspect,), [])


def _all_terminated(scene: Scene) -> bool:
    ended = [failure for failure in scene.of_kinds("terminated") if not failure.closed]
    return len(ended) > 1 and {failure.rank for failure in ended} >= scene.expected


def _outside(scene: Scene, events: Sequence[LogEvent], fault_class: str, strength: float, why: str) -> Finding:
    shown = tuple(evidence_of(event) for event in events[:3])
    suspect = Suspect(kind="platform", strength=strength, why=why, evidence=shown)
    return _finding(scene, "platform", fault_class, (suspect,), [], evidence=shown)


def _stood(scene: Scene, events: Sequence[LogEvent], stood: Evidence) -> Finding:
    """A job that stood still until it was ended: that it was ended is known, what held it up is not."""
    name = "time_limit" if scene.events("time_limit") else "terminated"
    made = _outside(
        scene, events, name, 0.6, f"the job was {outside.how_ended(events)} and no process failed by itself"
    )
    # Where an interrupted rank stood, and where its peers lost it, is as good as its stack.
    found = [failure for failure in scene.failures if failure.event is not None and failure.event.frames]
    found.sort(key=lambda failure: (failure.kind != "terminated", failure.rank is None, failure.rank))
    ends = [replace(one, text=f"rank {each.rank}: {each.what()}" if each.rank is not None else each.what())
            for each in found[: MAX_EVIDENCE - len(made.evidence)] for one in each.evidence()[:1]]  # fmt: skip
    shown = (stood, *made.evidence[:1], *ends)
    return replace(
        made, symptom="hang", onset=stood.at, first_symptom=stood, evidence=shown, missing=(outside.UNSEEN,), victims=()
    )


def _node_failure(scene: Scene, kind: str, events: Sequence[LogEvent]) -> Finding:
    if outside.are_silent_together(events):
        kind = "node_unheard"  # of so many at once it is what they share: the network, the controller, their daemons
    rows, reported = scene.table["cause"][kind], scene.table.get("without_reason", ())
    unsaid = all(any(words in event.text.lower() for words in reported) for event in events)
    row = rows["unsaid"] if unsaid and "unsaid" in rows else rows["one"]
    by_node = {event.node: event for event in reversed(events)}
    if len(by_node) > 1:
        by_node.pop(None, None)  # a line that names no node is about one that another line names
    suspects = tuple(
        Suspect(
            kind="node", strength=float(row["strength"]) if node else min(float(row["strength"]), NAMELESS), node=node,
            ranks=scene.topology.ranks_on(node) if node else (),
            why=str(row["why"]).format(what=evidence_of(event).text), evidence=(evidence_of(event),),
        )
        for node, event in sorted(by_node.items(), key=lambda pair: pair[0] or "")
    )  # fmt: skip
    missing = tuple(str(text) for text in row.get("missing", ()))
    return _finding(scene, str(row["cause"]), str(row["class"]), suspects, [], missing=missing)


def _roots(scene: Scene) -> Iterator[Finding]:
    """One finding a way of failing. Words outrank signals, and both outrank bare exit codes, which victims have too."""
    spoken = scene.of_kinds(*SPOKEN)
    certain = [failure for failure in spoken if not failure.handled]
    # What a launcher kills after a program has ended the job is a victim.
    called = scene.of_kinds("ended_itself")
    calls = [failure.event for failure in called if failure.event]
    silent = outside.not_killed_after(calls, scene.of_kinds("killed", "crashed"))
    if certain or (spoken and not silent):
        # Ended without words while another gave its reason: srun and torchrun kill what is left. Unless it was first.
        mine = (certain or spoken) + [failure for failure in silent if failure.first]
    else:
        mine = silent or scene.of_kinds("aborted") or called or _first_exits(scene)
        mine = mine or scene.of_kinds("daemon_lost", "network")
    if not spoken and not mine and (network := scene.events("network")):
        mine = [_transport(network)]
    groups: dict[tuple[str, ...], list[Failure]] = defaultdict(list)
    for failure in mine:
        groups[failure.signature].append(failure)
    for signature in sorted(groups):
        # The same failure said again without a prefix ("terminate called … what(): …") is no further process.
        placed = [failure for failure in groups[signature] if failure.rank is not None or failure.node is not None]
        yield _root(scene, placed or groups[signature], mine)


def _engine(scene: Scene) -> Iterator[Finding]:
    if (suspect := silence.of_engine(scene.classified)) is not None:
        made = _finding(scene, "unknown", "engine_died", (suspect,), [], missing=(silence.ENGINE_LOG,))
        yield replace(made, first_symptom=suspect.evidence[0])


def _transport(events: Sequence[LogEvent]) -> Failure:
    event = events[0]
    return Failure(event.rank, event.node, "network", [("network", each) for each in events], event)


def _first_exits(scene: Scene) -> list[Failure]:
    """Of bare exit codes the first, for want of better; all where none is it, none where the first is an echo.

    An echo of which the log shows no rank may be that of any rank that an exception ended. A launcher a node has a first failure
    each: one that lost a peer is no answer to one that left with a code of its own.
    """
    # An accounting table's row is of the job, not of a process: without a rank it names none.
    exits = [failure for failure in scene.of_kinds("exit") if failure.rank is not None or failure.first]
    if any(failure.first and failure.kind != "exit" for failure in scene.failures):
        own = [failure for failure in exits if failure.event and failure.event.exit_code not in {RAISED, None}]
        return own if len(own) == 1 and own[0].first else []
    echoed = [failure for failure in scene.failures if failure.kind == "echo"]
    exits = [
        failure for failure in exits
        if not (failure.event and failure.event.exit_code == RAISED and any(may_be(failure, each) for each in echoed))
    ]  # fmt: skip
    return [failure for failure in exits if failure.first] or exits


def _root(scene: Scene, group: Sequence[Failure], mine: Sequence[Failure]) -> Finding:
    kind = group[0].kind
    rows = scene.table["cause"][kind]
    spread = _spread(scene, group)
    outright = _on_one_node(group) and spread != "all" and {each.rank for each in group} <= scene.not_for_memory
    row = rows.get("not_for_memory" if outright else spread, rows["one"])
    if f"{spread}_unheard" in rows and not _others_lost_a_peer(scene, group):
        row = rows[f"{spread}_unheard"]
    if spread != "all" and "one_alone" in rows and not outright:
        alone = not _others_seen(scene, group)
        row = rows["one_alone"] if alone else row
        if "one_shown" in rows and any(map(shows_itself, scene.of_kinds("crashed") if alone else group)):
            row = rows["one_shown"]
    if spread != "all" and "unordered" in rows and not any(failure.first for failure in group):
        row = rows["unordered"]
    if (
        kind == "device_memory"
        and spread != "all"
        and all(one.event and one.event.event == "nccl_error" for one in group)
    ):
        row = rows["one_alone"]  # the library asks for the same on every rank: what else its GPU held is not seen
    if "one_unnamed" in rows and not scene.shows_device and _is_unnamed(group, rows["one_unnamed"]):
        row = rows["one_unnamed"]
    if spread == "all" and "all_answered" in rows and not scene.has_served:
        answered = missing_paths.are_answered(group, rows["all_answered"], scene.topology.nodes.values())
        row = rows["all_answered"] if answered else row
    if kind == "crashed":
        row = rows.get(crash_row(group, spread), row)
    strength = float(row["strength"]) * (HANDLED if all(failure.handled for failure in group) else 1.0)
    if kind != "device_lost" and is_stated(failure.event for failure in group):
        strength *= SHARE
    cut = [each for each in scene.of_kinds("exit") if each.first and each.event and each.event.exit_code is None]
    if any(failure.first for failure in (*mine, *cut)) and not any(failure.first for failure in group):
        strength *= DISPUTED
    suspects = suspects_of(group, row, spread, strength)
    by_peer = peers_lost(scene.events("echo"), {each.node for each in group})
    if not suspects:
        by_peer = (*(one for failure in group for one in failure.evidence()[:1]), *by_peer)[:MAX_EVIDENCE]
    missing = tuple(str(text) for text in row.get("missing", ()))
    name = fault_class_of(group, row, scene.table)
    return _finding(scene, str(row["cause"]), name, suspects, group, evidence=by_peer, missing=missing)


def _is_unnamed(group: Sequence[Failure], row: Mapping[str, Any]) -> bool:
    """Whether no line shows of which rank or node a failure is, and it is one of those that the row is about."""
    known = any(failure.rank is not None or failure.node or failure.local for failure in group)
    known = known or is_stated(failure.event for failure in group)
    said = " ".join(f"{one.event.message} {one.event.text}" for one in group if one.event).lower()
    excluded = any(word in said for word in row.get("unless", ()))
    return not known and not excluded and any(word in said for word in row.get("words", ("",)))


def _others_lost_a_peer(scene: Scene, group: Sequence[Failure]) -> bool:
    """Whether another process reports that it lost a peer: without one, what became of the others is unknown."""
    own = {None, *(failure.rank for failure in group)}
    return any(event.rank not in own for event in scene.events(*ECHOES))


def _others_seen(scene: Scene, group: Sequence[Failure]) -> bool:
    """Whether anything shows another process of the job: of a process whose end is all there is, nothing follows for others."""
    own = {failure.rank for failure in group}
    ended = [failure for failure in scene.failures if failure not in group and failure.kind != "daemon_lost"]
    # That the launcher ended others too shows neither that they ran on nor why this one ended.
    ended = [failure for failure in ended if not _only_closed(failure)]
    # What a process prints of its own crash has no rank, and its launcher's line has one.
    said_again = len({failure.rank for failure in group}) == 1
    ended = [
        failure for failure in ended if not (said_again and failure.rank is None and failure.kind == group[0].kind)
    ]
    # One that was killed and has no rank may be any of those heard, and a kill may have ended all: lines show none that ran on.
    heard = frozenset() if own == {None} and group[0].kind == "killed" else scene.heard
    ranks = (heard | {failure.rank for failure in ended}) - own - {None}
    if own == {None} and len(ranks) == 1:  # lines without a rank may be that one rank's
        return any(failure.rank is None for failure in ended)
    return bool(ranks or ended)


def _only_closed(failure: Failure) -> bool:
    return failure.rank is None and all(kind == "closing" for kind, _ in failure.classified)


def _on_one_node(group: Sequence[Failure]) -> bool:
    nodes = {failure.node for failure in group}
    return len(nodes) == 1 and None not in nodes


def _spread(scene: Scene, group: Sequence[Failure]) -> str:
    """Return one, some or all: all is three quarters of the job, or every rank that logged a failure before it was ended.

    Of deaths that only others report, all is more than three quarters, or every number up to the highest.
    """
    elsewhere = set(scene.topology.nodes.values()) - {failure.node for failure in group}
    if group[0].kind in LOCAL and _on_one_node(group) and elsewhere:
        return "some"  # a whole node died and others did not: that is no decision about the job
    ranks = {failure.rank for failure in group if failure.rank is not None}
    if len(ranks) < 2:
        return "one"
    mute = {failure.rank for failure in scene.failures if failure.kind in {"", "terminated"}}
    others = {failure.rank for failure in scene.failures if failure.rank is not None} - ranks - mute
    if 4 * len(ranks) > 3 * len(scene.expected):
        return "all"
    if group[0].kind in REPORTED_BY_OTHERS and (scene.heard - ranks - mute or max(ranks) >= len(ranks | mute)):
        return "some"  # others print lines of their own, or none of them was read: their numbers show that they exist
    return "some" if others and 4 * len(ranks) < 3 * len(scene.expected) else "all"


def _may_be_one_of(group: Sequence[Failure], failure: Failure) -> bool:
    """Whether a bare exit code is that of an exception of which no line shows the rank: such a rank is no victim."""
    raised = failure.kind == "exit" and failure.event is not None and failure.event.exit_code == RAISED
    return raised and any(each.kind in SPOKEN and may_be(failure, each) for each in group)


def _finding(
    scene: Scene, cause: Any, fault_class: str, suspects: tuple[Suspect, ...], group: Sequence[Failure], *,
    evidence: tuple[Evidence, ...] = (), missing: tuple[str, ...] = (),
) -> Finding:  # fmt: skip
    guilty = {failure.rank for failure in group}
    victims = [failure for failure in scene.failures if failure.rank not in guilty and failure.kind not in SPOKEN]
    victims = [failure for failure in victims if not _may_be_one_of(group, failure)]
    by = no_later_than(group, [event for _, event in scene.classified], scene.newest_steps)
    earliest, onset = first_of(group, scene.classified, SYMPTOMS, by)
    return Finding(
        analyzer="crash", family="log", symptom="crash", cause=cause, fault_class=fault_class, suspects=suspects,
        together=len(suspects) > 1, scope=scene.expected, onset=onset, no_later_than=by,
        first_symptom=evidence_of(earliest) if earliest else None,
        victims=tuple(sorted(failure.rank for failure in victims if failure.rank is not None)),
        rejected=rejected(victims, group), missing=missing, evidence=evidence,
    )  # fmt: skip
