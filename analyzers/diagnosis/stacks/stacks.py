"""Groups ranks by their stacks, and names those outside communication while the others wait in it.

ByteRobust's aggregation (SOSP 2025, section 4.2), with the choices that it leaves open: a minority is a suspect and never
a verdict, because the few may be the ones ahead; ranks that wait in communication are not accused by their stack alone;
on a device hang all stacks agree, and then they show nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from analyzers.diagnosis.stacks.continued import soon_after_continuation
from analyzers.diagnosis.stacks.network import network_waits
from analyzers.diagnosis.stacks.standstill import ALIKE as MAY_RUN
from analyzers.diagnosis.stacks.standstill import moves, of_files, went_on, with_left_waits
from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import has
from analyzers.model.finding import Cause, Evidence, Finding, Kind, Suspect
from analyzers.model.frames import FrameRules
from analyzers.model.processes import rows_by_rank
from analyzers.model.ranges import ranges
from analyzers.model.standings import SOFT, Standing, grouped, moved_on, standings, stepped_on
from analyzers.model.topology import ProcessGroup, Topology
from analyzers.model.window import Window
from collectors.records import ProcessState, StackDump

ALONE = 0.85
ASSUMED = 0.6  # times: of one round, in which no stack shows a wait
UNSEEN = 0.6  # a missing stack among ranks that hold the others up
"""Strength of the one rank outside communication while every other rank waits in it."""
FROZEN_ALIKE, ALIKE = 0.8, 0.6
"""Strengths where all ranks stand alike: in two rounds, in files or the like."""
UNSEEN_OTHERS = "what the ranks do that gave no stack: these may wait for them"
MET_ONCE = "whether the ranks leave the place where one set of stacks found them, which a second one would show"
_NO_WORK = frozenset({"stopped", "exception", "exiting"})
UNEVEN_BY_DESIGN = frozenset({"checkpoint", "storage", "compile", "importing"})
"""Duties that one rank may have alone in a healthy job: rank 0 writes the checkpoint, one rank compiles for all."""
SHOWN_GROUPS, SHOWN_FRAMES = 8, 6

_CAUSES: Mapping[str, Cause] = {"exception": "code", "data_loader": "data"}
"""What holds a rank of a reason; any other reason is its machine's, for its peers run the same code."""
_WORDS = {
    "data_loader": "in its data loader",
    "checkpoint": "in a checkpoint",
    "storage": "in a file operation",
    "compile": "compiling",
    "importing": "importing modules",
    "gil": "holding Python's interpreter lock in a call that does not return",
    "compute": "in its own code",
    "sleeping": "asleep in its own code",
    "exception": "handling an exception",
    "stopped": "stopped",
    "exiting": "shutting down",
}


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Claim the ranks outside communication, what all do alike, or the parallel group that stands apart."""
    if not window.records_of(StackDump):
        return
    rules = window.once(FrameRules.of, knowledge)
    if not rules.rules:
        return
    known = standings(window, topology, rules)
    found = _with_hidden_waits(known, rules.limit("dominant", 0.5))
    if len(found) < 2 or moved_on(found) or stepped_on(found, window):
        return
    found = with_left_waits(found, window, topology, rules)
    waiting = [one for one in found.values() if one.waiting]
    outside = [_apart_from(one, waiting) for one in found.values() if not one.waiting and one.duty not in SOFT]
    outside = list(filter(_holds_up, _with_stopped(outside, window.once(rows_by_rank, topology))))
    yield from network_waits(found, window, topology, rules)
    left = [one for one in found.values() if one.left_a_wait and not one.waiting]
    if left and not outside and of_files(window):
        yield _undecided(found, went_on(left))
    elif not waiting and not _have_all_ended(found, window):
        yield from _same_everywhere(found, topology, assumes=MAY_RUN if of_files(window) else "")
    if outside and len(outside) < len(found) and len(outside) <= len(found) * rules.limit("outside", 0.5):
        if all(one.duty == "exception" for one in outside) or not soon_after_continuation(found.values(), window):
            assumed = not any(one.waiting for one in known.values())
            made = _outside(outside, found, topology, int(rules.limit("suspects", 256)), assumed=assumed)
            yield from _assuming(made, moves(outside, window))
    elif waiting and not outside and len(waiting) == len(found):
        yield from _apart(found, topology, rules)
        yield from _unseen(found, topology)


def _undecided(found: Mapping[int, Standing], missing: str) -> Finding:
    """Claim nothing, and say why these stacks may be of a job that runs."""
    made = _finding(found, "unknown", "stuck_stack", ())
    return replace(made, symptom="unknown", missing=(missing,))


def _assuming(made: Iterable[Finding], assumes: str) -> Iterator[Finding]:
    """Yield claims with what they take for granted, which is missing then."""
    yield from (replace(one, assumes=assumes, missing=(*one.missing, assumes)) if assumes else one for one in made)


def _holds_up(one: Standing) -> bool:
    """Whether a rank outside communication holds others up: one that has just left a wait does not, for the moment."""
    return not one.left_a_wait or one.duty in _NO_WORK


def _with_stopped(outside: Sequence[Standing], rows: Mapping[int, Sequence[ProcessState]]) -> list[Standing]:
    """Take a stopped process for that, wherever it was: what it did when it was stopped is no reason."""
    stopped = {rank for rank, found in rows.items() if found[-1].state == "T"}
    return [replace(one, duty="stopped", reasons=()) if one.rank in stopped else one for one in outside]


def _have_all_ended(found: Mapping[int, Standing], window: Window) -> bool:
    """Whether an incident opened after all these processes had ended: what they did alike before that is no hang."""
    ends = {
        row.rank: row.at or 0.0 for row in window.records_of(ProcessState) if row.state in "XZ" and not row.parent_pid
    }
    since = window.since or 0.0
    return all((one.at or 0.0) < ends.get(rank, 0.0) <= since for rank, one in found.items())


def _apart_from(one: Standing, waiting: Sequence[Standing]) -> Standing:
    """Leave out the checkpoint of a rank's stack where those who wait are in it too: what it does there counts."""
    if one.rank == 0 or not any("checkpoint" in other.reasons for other in waiting):
        return one
    return replace(one, reasons=tuple(reason for reason in one.reasons if reason != "checkpoint"))


def _with_hidden_waits(found: dict[int, Standing], dominant: float) -> dict[int, Standing]:
    """Take the line where most ranks stand for a wait on the device, unless they hold the interpreter lock there.

    Without native frames ``loss.item()`` looks like user code; it is where most NCCL jobs hang.
    """
    groups = Counter(one.normal for one in found.values() if one.duty == "compute" and one.owns_gil is not True)
    if not groups:
        return found
    normal, count = max(groups.items(), key=lambda item: (item[1], item[0]))
    if count <= len(found) * dominant or count == len(found):
        return found
    return {
        rank: replace(one, duty="waiting_device") if one.duty == "compute" and one.normal == normal else one
        for rank, one in found.items()
    }


def _finding(found: Mapping[int, Standing], cause: Cause, fault_class: str, suspects: tuple[Suspect, ...]) -> Finding:
    evidence = tuple(
        Evidence(text=str(group), source=found[group.ranks[0]].source, at=found[group.ranks[0]].at)
        for group in grouped(found.values())[:SHOWN_GROUPS]
    )
    return Finding(
        analyzer="stacks",
        family="stacks",
        symptom="hang",
        cause=cause,
        fault_class=fault_class,
        suspects=suspects,
        scope=frozenset(found),
        evidence=evidence,
    )


def _outside(
    outside: Sequence[Standing], found: Mapping[int, Standing], topology: Topology, most_suspects: int, *, assumed: bool
) -> Iterator[Finding]:
    """Yield the ranks outside communication, with the reason; file-system waits on several machines are the storage's.

    ``assumed``: no stack shows a wait, the others stand at one line.
    """
    reasons = {_reason(one) for one in outside}
    if len(outside) > 1 and all(map(_in_files, outside)) and _several_machines(outside):
        text = f"ranks {ranges(one.rank for one in outside)} wait for files"
        made = _everywhere(found, "storage", "storage", text)
        yield replace(made, scope=frozenset(one.rank for one in outside))
        return
    clean = 1.0 - (len(outside) - 1) / len(found)
    seen = 1.0 if not topology.ranks or len(found) * 2 >= len(topology.ranks) else 0.8
    others, shown = len(found) - len(outside), outside[:most_suspects]
    suspects = tuple(_suspect(one, ALONE * clean * seen, others, assumed=assumed) for one in shown)
    cause: Cause = _CAUSES.get(min(reasons), "machine") if len(reasons) == 1 else "machine"
    made = replace(_finding(found, cause, _fault_class_of(reasons), suspects), narrows=True)
    shared = topology.shared_groups(one.rank for one in outside) if len(outside) > 1 else ()
    apart = not shared or len(shared[0].members) >= len(topology.ranks)
    if apart and len(outside) > 1 and all(_certainly_outside(one) for one in outside):
        # Members of one group may wait for each other in a call that no rule knows; ranks of none are each at fault.
        made = replace(made, together=True)
    elif shared and not apart:
        text = f"ranks {ranges(one.rank for one in outside)} share process group {shared[0]}"
        made = replace(made, evidence=(*made.evidence, Evidence(text=text)))
    yield made


def _fault_class_of(reasons: Set[str]) -> str:
    if reasons == {"sleeping"}:
        return "stuck_sleeping"
    if reasons == {"data_loader"}:
        return "stuck_data_loader"
    if reasons <= {"compute", "sleeping"}:
        return "stuck_compute"
    return f"stuck_{min(reasons)}" if len(reasons) == 1 else "stuck_stack"


def _unseen(found: Mapping[int, Standing], topology: Topology) -> Iterator[Finding]:
    """Yield the few ranks that gave no stack while all others did and all of those wait in communication.

    A process that is stopped, dead or deaf to signals gives none. It picks only from ranks that are known to hold the
    others up (``combine``): a missing stack alone proves nothing.
    """
    unseen = [rank for rank in topology.ranks if rank not in found]
    if not 0 < len(unseen) <= max(1, len(topology.ranks) // 8):
        return
    why = f"gave no stack, while the other {len(found)} did and all of them wait in communication"
    suspects = tuple(Suspect(kind="rank", strength=UNSEEN, why=f"rank {rank} {why}", ranks=(rank,)) for rank in unseen)
    yield replace(_finding(found, "machine", "no_stack", suspects), narrows=True)


def _certainly_outside(one: Standing) -> bool:
    """Whether its line cannot be a wait for the device that looks like user code."""
    return one.duty != "compute" or one.owns_gil is True


def _reason(one: Standing) -> str:
    """Name the purpose that explains the stack: a file operation or a sleep inside a checkpoint is the checkpoint's."""
    if one.duty in {"storage", "sleeping"}:
        return next((name for name in ("checkpoint", "data_loader") if name in one.reasons), one.duty)
    return one.duty


def _in_files(one: Standing) -> bool:
    """Whether it waits for files: itself, or its data loader, in its own thread or in the processes it has for that."""
    reason = _reason(one)
    files = "storage" in one.reasons or "storage" in one.helpers
    return reason in ("storage", "checkpoint") or (reason == "data_loader" and files)


def _several_machines(ranks: Iterable[Standing]) -> bool:
    """Whether they are on more than one machine; unknown machines count as several."""
    nodes = [one.node for one in ranks]
    return None in nodes or len(set(nodes)) > 1


def _suspect(one: Standing, strength: float, others: int, *, assumed: bool) -> Suspect:
    reason = _reason(one)
    if assumed and not one.frozen:
        strength *= ASSUMED
    if one.frozen:
        strength = min(0.95, strength + 0.07)
    elif reason in UNEVEN_BY_DESIGN:
        strength *= 0.75
    words = _WORDS.get(reason, reason.replace("_", " "))
    if reason == "compute" and one.owns_gil:
        words += ", with Python's interpreter lock"
    verb, place = (
        ("stand", "at one line, as ranks that wait for a device do") if assumed else ("wait", "in communication")
    )
    rest = f"1 other {verb}s" if others == 1 else f"{others} others {verb}"
    why = f"rank {one.rank} is {words}, {one.where}, while {rest} {place}"
    if one.helpers:
        helpers = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(Counter(one.helpers).items()))
        why += f"; its child processes: {helpers}"
    shown = [f"rank {one.rank}: {one.where}"]
    if has(f"stuck_{reason}", "own_code") and len(one.normal) > 1:
        shown.append(f"its frames, the innermost first: {' ← '.join(one.normal[:SHOWN_FRAMES])}")
    evidence = tuple(Evidence(text=text, source=one.source, at=one.at) for text in shown)
    return Suspect(
        kind="rank", strength=round(strength, 4), why=why, ranks=(one.rank,), node=one.node, evidence=evidence
    )


def _same_everywhere(found: Mapping[int, Standing], topology: Topology, *, assumes: str) -> Iterator[Finding]:
    """Yield what all ranks do alike outside communication: no machine's fault. ``assumes``: where they may be at work."""
    duties = {one.duty for one in found.values()}
    reasons = {_reason(one) for one in found.values()}
    alike = len({one.normal for one in found.values()}) == 1
    first = found[min(found)]
    whole = len(topology.ranks) <= len(found)
    who = f"all {len(found)} ranks" if whole else f"all {len(found)} ranks that gave stacks (of {len(topology.ranks)})"
    where = f"{who} stand in {first.where}"
    if reasons <= {"storage", "checkpoint"}:
        yield _everywhere(found, "storage", "storage", f"{who} wait for files: {first.where}")
    elif reasons == {"data_loader"}:
        if "storage" in first.reasons or "storage" in first.helpers:
            yield _everywhere(found, "storage", "storage", where)
        else:
            yield _everywhere(found, "data", "data", where)
    elif duties == {"compile"}:
        yield _everywhere(found, "code", "code", f"{who} compile: {first.where}")
    elif duties == {"store"}:
        text = f"{who} wait in the store or for a communicator to form: {first.where}"
        yield replace(
            _finding(found, "unknown", "init", ()), evidence=(Evidence(text=text, source=first.source, at=first.at),)
        )
    elif duties <= {"compute", "gil", "exception", "sleeping"} and (alike or duties == {"exception"}):
        yield from _same_code(found, where, whole=whole, assumes=assumes)


def _same_code(found: Mapping[int, Standing], where: str, *, whole: bool, assumes: str) -> Iterator[Finding]:
    """Blame the code where all ranks stand in one place of it, twice: once may have found them at work.

    A part of the ranks may wait there for those that gave no stack.
    """
    first = found[min(found)]
    made = _everywhere(found, "code", "code", where, FROZEN_ALIKE)
    if first.duty in {"gil", "exception"}:
        yield made
    elif whole and first.frozen:
        yield from _assuming([made], assumes)
    else:
        open_ = MET_ONCE if whole else UNSEEN_OTHERS
        yield replace(made, symptom="unknown", cause="unknown", suspects=(), missing=(f"{open_}: {where}",))


def _everywhere(
    found: Mapping[int, Standing], cause: Cause, kind: Kind, text: str, strength: float | None = None
) -> Finding:
    """Make the claim that no machine but what all share is at fault: surer where two rounds found the same stacks."""
    first = found[min(found)]
    evidence = (Evidence(text=text, source=first.source, at=first.at),)
    strength = strength or (FROZEN_ALIKE if first.frozen else ALIKE)
    suspect = Suspect(kind=kind, strength=strength, why=text, evidence=evidence)
    missing = () if first.moved is not None else ("a second set of stacks: do the ranks leave this place?",)
    return replace(_finding(found, cause, "same_stack", (suspect,)), missing=missing)


def _apart(found: Mapping[int, Standing], topology: Topology, rules: FrameRules) -> Iterator[Finding]:
    """Yield the parallel group that the ranks waiting elsewhere share, or the few in another collective call."""
    labels = Counter(one.label for one in found.values())
    usual, count = max(labels.items(), key=lambda item: (item[1], item[0]))
    outliers = [one for one in found.values() if one.label != usual]
    few = len(outliers) <= len(found) * rules.limit("outlier", 0.34)
    if not outliers or not few or count < len(found) * rules.limit("dominant", 0.5):
        return
    varied = len({one.label for one in outliers}) > 1 or any(one.duty == "waiting_p2p" for one in outliers)
    shared = shared_group(outliers, found, topology) if len(outliers) > 1 and varied else None
    if shared is not None:
        group, ranks = shared
        why = f"ranks {ranges(one.rank for one in outliers)} wait elsewhere than {count} others and share group {group}"
        suspect = Suspect(kind="group", strength=0.5, why=why, ranks=ranks)
        missing = ("which of the group's machines: a probe of each, or flight-recorder dumps",)
        yield replace(_finding(found, "machine", "outlier_group", (suspect,)), missing=missing)
    elif all(one.duty == "waiting_collective" for one in outliers) and usual.startswith(
        ("waiting_collective", "waiting_grad")
    ):
        yield from _desync(outliers, found, usual, count)


def _desync(outliers: Sequence[Standing], found: Mapping[int, Standing], usual: str, count: int) -> Iterator[Finding]:
    words = usual.replace("_", " ")
    suspects = tuple(
        Suspect(
            kind="rank",
            strength=0.3,
            why=f"waits in {one.where} while {count} others are {words}; the few may be the ones ahead",
            ranks=(one.rank,),
            node=one.node,
            evidence=(Evidence(text=f"rank {one.rank}: {one.where}", source=one.source, at=one.at),),
        )
        for one in outliers
    )
    yield replace(_finding(found, "code", "desync", suspects), narrows=True)


def shared_group(
    outliers: Sequence[Standing], found: Mapping[int, Standing], topology: Topology
) -> tuple[ProcessGroup, tuple[int, ...]] | None:
    """Return the smallest group that all outliers share, by rank or else by machine, and the ranks of it to suspect.

    A machine counts as a member of the groups of all its ranks: with two tensor-parallel ranks a machine, a pipeline
    spans two pipeline groups and one set of machines.
    """
    most = len(found) // 2
    for group in topology.shared_groups(one.rank for one in outliers):
        if len(group.members) <= most:
            return group, group.members
    nodes = {topology.nodes.get(one.rank) for one in outliers}
    if None in nodes or len(nodes) < 2:
        return None
    best: tuple[int, str, ProcessGroup, frozenset[str | None]] | None = None
    for group in topology.groups:
        where = frozenset(topology.nodes.get(rank) for rank in group.members)
        candidate = (len(where), group.key, group, where)
        if nodes <= where and len(group.members) <= most and (best is None or candidate[:2] < best[:2]):
            best = candidate
    if best is None or best[0] * 2 > len(set(topology.nodes.values())):
        return None
    return best[2], tuple(rank for rank in topology.ranks if topology.nodes.get(rank) in best[3])
