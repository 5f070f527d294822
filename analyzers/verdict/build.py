"""From a decision to the verdict document: names, probabilities, numbered evidence, victims, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import msgspec

from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import has
from analyzers.model.finding import Suspect
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.verdict import Action, Coverage, Culprit, Root, SlowPath, Verdict, instant
from analyzers.model.window import Window
from analyzers.verdict import ended
from analyzers.verdict.action import Held, choose_action, lost_a_peer_alone, nothing_held, with_places
from analyzers.verdict.candidates import Candidate, Correlation
from analyzers.verdict.correlate import MOST_NOT_EXCLUDED
from analyzers.verdict.explain import (
    NumberedEvidence,
    backends_seen,
    first_symptom_of,
    in_their_roles,
    missing_from,
    rejected_by,
    victims_of,
    why_of_set,
)
from analyzers.verdict.senders import one_voice
from collectors.records import OpTimings, Placement, StackDump, Unread

VERSION = "0.1.0"
# A set larger than this, and than half the job, is no answer: the verdict abstains and states what would split it.
MOST_SET_RANKS = 8
MOST_SURE_OF_A_SET = 0.9
MOST_UNREAD, MOST_SUSPECTS, MOST_PATHS = 20, 64, 256
MOST_REASON = 400  # characters of why a source was not read: a sender chooses them, and every page shows them


def compose(
    decision: Correlation, window: Window, topology: Topology, knowledge: Knowledge, held: Held = nothing_held
) -> Verdict:
    """Write the verdict that a decision amounts to. ``held``: why a root may not be evicted yet, None where it may."""
    evidence = NumberedEvidence()
    roots = _by_node(decision.roots, topology)
    named = _without_faint([(f"r{number}", one) for number, one in enumerate(roots, 1) if _nameable(one, topology)])
    considered = [(f"r{number}", root) for number, root in enumerate(roots, 1)]
    culprits = tuple(
        entry for label, root in named for entry in in_their_roles(_culprits(label, root, topology, evidence), topology)
    )
    suspects = tuple(
        entry
        for label, root in considered
        for entry in in_their_roles(_suspects(label, root, topology, evidence), topology)
    )
    lead = named[0][1] if named else None
    explained = any(excuse.cause != "unknown" for excuse in decision.excused) and not decision.roots
    symptom, cause = _headline(decision, lead)
    for excuse in decision.excused:
        evidence.ids("pauses", excuse.evidence)
    for finding in decision.findings:
        evidence.ids(finding.analyzer, finding.evidence)
    if not decision.findings:
        evidence.ids("crash", ended.shown(window))
    peer = ended.with_error(window) and not considered and lost_a_peer_alone(decision.findings)
    if explained:
        action = Action(kind="none", why="; ".join(dict.fromkeys(excuse.why for excuse in decision.excused[:4])))
    else:
        action = choose_action(
            culprits, [one for _, one in named], topology, knowledge, symptom, held, lost_a_peer=peer
        )
        action = with_places(action, topology)
    return Verdict(
        symptom=symptom,
        cause=cause,
        abstained=not culprits and symptom != "healthy" and not explained,
        version=VERSION,
        knowledge=knowledge.hash,
        job=window.job,
        attempt=window.attempt,
        onset=instant(_onset(decision, [root for _, root in named])),
        dump_skew_seconds=_skew(window),
        roots=tuple(_root_entry(label, root, decision) for label, root in considered) + _excused_entries(decision),
        culprits=culprits,
        suspects=suspects[:MOST_SUSPECTS],
        first_symptom=first_symptom_of(decision),
        victims=victims_of(decision, named, culprits),
        rejected=rejected_by(decision, culprits),
        evidence=evidence.entries(),
        missing=missing_from(decision, window, topology, culprits),
        slow_paths=_slow_paths(decision),
        action=action,
        coverage=coverage_of(window, topology, action.nodes),
    )


def _slow_paths(decision: Correlation) -> tuple[SlowPath, ...]:
    """Return the slow paths of all findings, each once, the slowest first."""
    found: dict[tuple[str, str], float] = {}
    for path in (path for finding in decision.findings for path in finding.paths):
        found[path.source, path.target] = max(path.times, found.get((path.source, path.target), 0.0))
    slowest = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_PATHS]
    return tuple(SlowPath(source=one, target=other, times=round(times, 2)) for (one, other), times in slowest)


def _by_node(roots: list[Candidate], topology: Topology) -> list[Candidate]:
    """Several guilty ranks of one machine are one guilty machine."""
    merged: dict[tuple[str, str], Candidate] = {}
    for number, root in enumerate(roots):
        nodes = {topology.nodes.get(rank) for rank in root.ranks} | {s.node for s in root.suspects if s.node}
        node = next(iter(nodes)) if len(nodes) == 1 else None
        machine = root.certain and _of_its_node(root) and node is not None
        key = (node, "machine " + root.suspects[0].role) if machine and node else (str(number), "")
        old = merged.get(key)
        merged[key] = root if old is None else _joined(old, root, node or "")
    return list(merged.values())


def _of_its_node(root: Candidate) -> bool:
    """Whether its node is what is named: of a rank in its own code too, which more evidence may turn to the machine."""
    also = root.agreeing if root.finding.cause == "unknown" else ()
    own_code = any(has(name, "own_code") for name in (root.finding.fault_class, *also))
    return root.finding.cause == "machine" or own_code


def _joined(old: Candidate, new: Candidate, node: str) -> Candidate:
    return replace(
        old,
        suspects=old.suspects + new.suspects,
        arguments=old.arguments + new.arguments,
        families=old.families if one_voice(old.senders, new.senders, (node,)) else old.families | new.families,
        senders=old.senders | new.senders if old.senders and new.senders else frozenset(),
        agreeing=old.agreeing + new.agreeing,
    )


def _nameable(root: Candidate, topology: Topology) -> bool:
    """A certain root is named; a set only while it still excludes some rank, and is small enough to probe.

    A process without rank, node and device is none that can be found: what it printed is shown, nothing is named.
    """
    nameless = (s.kind == "rank" and not (s.ranks or s.node or s.device or s.name) for s in root.suspects)
    if root.suspects and all(nameless):
        return False
    if root.certain:
        return True
    if has(root.finding.fault_class, "any_size"):
        return True  # however large, the operation's members do contain the culprit
    limit = MOST_NOT_EXCLUDED if _is_faint(root) else max(MOST_SET_RANKS, len(topology.ranks) // 2)
    return len(root.ranks) <= limit


def _is_faint(root: Candidate) -> bool:
    """Whether its ranks left no dump, and are only not excluded beside another that is proven."""
    return all(suspect.strength <= 0.25 for suspect in root.suspects) and has(root.finding.fault_class, "no_dump")


def _without_faint(named: list[tuple[str, Candidate]]) -> list[tuple[str, Candidate]]:
    """Leave ranks that merely left no dump among the suspects where waits and another kind of evidence agree on one rank."""
    proven = (root for _, root in named if root.certain and {"waits"} < root.families)
    agreed = any(one.strength >= 0.9 for root in proven for one in root.suspects)
    return [(label, root) for label, root in named if not (agreed and _is_faint(root))]


def _culprits(label: str, root: Candidate, topology: Topology, evidence: NumberedEvidence) -> list[Culprit]:
    if root.certain:
        return _one_entry_a_place(label, root, topology, evidence)
    ranks = tuple(sorted(root.ranks))
    shared = topology.shared_groups(ranks)
    exact = next((group for group in shared if set(group.members) == set(ranks)), None)
    nodes = {topology.nodes.get(rank) for rank in ranks}
    stage = {topology.coordinates.get(rank, {}).get("pp") for rank in ranks}
    kind = "stage" if exact is None and len(stage) == 1 and None not in stage and len(ranks) > 1 else "group"
    places = dict.fromkeys(place for s in root.suspects if (place := "/".join(filter(None, (s.node, s.device)))))
    name = (
        str(exact)
        if exact
        else f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
        if ranks
        else ", ".join(places) or kind
    )
    if (
        len(nodes) == 1
        and len(ranks) > 1
        and (node := next(iter(nodes))) is not None
        and root.finding.cause == "machine"
    ):
        kind, name = "node", node
    if len(root.suspects) == 1 and not ranks:
        one = root.suspects[0]
        kind, name = _place(one, root, topology) if one.kind in ("rank", "node") else (one.kind, one.device or one.kind)
    items = [(root.finding.analyzer, item) for suspect in root.suspects[:4] for item in suspect.evidence[:2]]
    items += [(one.analyzer, item) for one in root.arguments for item in one.evidence]
    ids = tuple(number for analyzer, item in items for number in evidence.ids(analyzer, (item,)))
    probability = round(min(sum(suspect.strength for suspect in root.suspects), MOST_SURE_OF_A_SET), 4)
    return [
        Culprit(
            root=label,
            kind=kind,
            id=name,
            ranks=ranks,
            probability=probability,
            why=why_of_set(root, ranks),
            evidence=tuple(dict.fromkeys(ids)),
        )
    ]


def _one_entry_a_place(label: str, root: Candidate, topology: Topology, evidence: NumberedEvidence) -> list[Culprit]:
    """One entry for a machine with all its guilty ranks; else one a suspect."""
    places: dict[tuple[str, str], list[Suspect]] = {}
    for suspect in root.suspects:
        places.setdefault(_place(suspect, root, topology), []).append(suspect)
    entries = [_entry(label, root, place, suspects, evidence) for place, suspects in places.items()]
    held = [len(topology.ranks_on(one.id)) if one.kind == "node" else 0 for one in entries]
    return [msgspec.structs.replace(one, ranks_on_node=count or None) for one, count in zip(entries, held, strict=True)]


def _place(suspect: Suspect, root: Candidate, topology: Topology) -> tuple[str, str]:
    """Return (kind, id) of what is named: the node where one is known and a machine is to blame, else the suspect's own."""
    nodes: set[str | None] = {topology.nodes[rank] for rank in suspect.ranks if rank in topology.nodes}
    nodes = nodes or {suspect.node}
    node = next(iter(nodes)) if len(nodes) == 1 else None
    if node is not None and _of_its_node(root) and suspect.kind in ("rank", "node", "device"):
        return ("node", node)
    if suspect.kind == "device":
        return ("device", suspect.device or suspect.kind)
    if suspect.kind in ("rank", "code") and suspect.ranks:
        return (suspect.kind, "rank " + ranges(suspect.ranks) if suspect.kind == "code" else ranges(suspect.ranks))
    return (suspect.kind, suspect.name or "/".join(part for part in (node, suspect.device) if part) or suspect.kind)


def _entry(
    label: str, root: Candidate, place: tuple[str, str], suspects: list[Suspect], evidence: NumberedEvidence
) -> Culprit:
    kind, name = place
    ids = [number for s in suspects for number in evidence.ids(root.finding.analyzer, s.evidence)]
    ranks = tuple(sorted({rank for suspect in suspects for rank in suspect.ranks}))
    about = [one for one in root.arguments if one.is_about(ranks)]
    ids += [number for one in about for number in evidence.ids(one.analyzer, one.evidence)]
    own, more = [suspect.why for suspect in suspects], [one.why for one in about if one.why]
    # What picked a suspect from a set explains more than that it was in the set.
    said = list(dict.fromkeys([*more, *own] if root.narrowed else [*own, *more]))
    reasons = [one for one in said if not any(other.startswith(f"{one}:") for other in said)]
    return Culprit(
        root=label,
        kind=kind,
        id=name,
        ranks=ranks,
        devices=tuple(dict.fromkeys(suspect.device for suspect in suspects if suspect.device)),
        role=next((suspect.role for suspect in suspects if suspect.role), None),
        instances=tuple(dict.fromkeys(name for suspect in suspects for name in suspect.instances)),
        probability=round(max(suspect.strength for suspect in suspects), 4),
        why="; ".join(reasons[:4]),
        evidence=tuple(dict.fromkeys(ids)),
    )


def _suspects(label: str, root: Candidate, topology: Topology, evidence: NumberedEvidence) -> list[Culprit]:
    """All that were considered, most probable first, with "unknown" making each root's sum 1."""
    if root.certain:
        entries = _one_entry_a_place(label, root, topology, evidence)
        total = sum(entry.probability for entry in entries)
    else:
        single = [_entry(label, root, _place(s, root, topology), [s], evidence) for s in root.suspects[:MOST_SUSPECTS]]
        total = max(sum(suspect.strength for suspect in root.suspects), 1.0)
        entries = [_scaled(entry, total) for entry in single]
        total = sum(suspect.strength for suspect in root.suspects) / total
    entries.sort(key=lambda entry: (-entry.probability, entry.id))
    if root.certain and total > 1:
        return [_scaled(entry, total) for entry in entries]
    unknown = Culprit(root=label, kind="unknown", id="unknown", probability=round(1 - min(total, 1.0), 4))
    return [*entries, unknown]


def _scaled(entry: Culprit, total: float) -> Culprit:
    return msgspec.structs.replace(entry, probability=round(entry.probability / total, 4))


def _headline(decision: Correlation, lead: Candidate | None) -> tuple[str, str]:
    """Return the symptom and the cause of the leading root; without one, what the findings show of the job."""
    crash = next((f for f in decision.findings if f.symptom == "crash" and f.suspects and f.cause != "none"), None)
    if lead is not None:
        symptom = lead.finding.symptom
        return (symptom, lead.finding.cause)
    if crash is not None or decision.died:
        return ("crash", "unknown")
    if decision.excused and not decision.roots:
        return (decision.excused[0].root.finding.symptom, decision.excused[0].cause)
    seen = {finding.symptom for finding in decision.findings}
    if "numeric" in seen:  # a job that runs on broken numbers is not healthy
        seen = {finding.symptom for finding in decision.findings if finding.family != "stacks"} - {"healthy"}
    if "slow" in seen:  # and a slow one runs
        seen -= {"healthy"}
    for symptom in ("healthy", "hang", "crash", "numeric", "slow", "hardware"):
        if symptom in seen:
            return (symptom, "none" if symptom == "healthy" else "unknown")
    return ("unknown", "unknown")


def _root_entry(label: str, root: Candidate, decision: Correlation) -> Root:
    began = instant(_began(root, decision))
    finding, claims = root.finding, root.finding.family
    families = (claims, *sorted(root.families - {claims}))
    agreeing = tuple(sorted(set(root.agreeing) - {finding.fault_class}))
    return Root(
        root=label,
        cause=finding.cause,
        fault_class=finding.fault_class,
        agreeing=agreeing,
        families=families,
        onset=began,
        assumes=finding.assumes if len(families) == 1 else "",  # what else agrees was seen while it stood
    )


def _excused_entries(decision: Correlation) -> tuple[Root, ...]:
    """A pause is a root of its own kind, with no culprit."""
    first = len(decision.roots) + 1
    return tuple(
        Root(root=f"r{number}", cause=excuse.cause, fault_class=excuse.fault_class)
        for number, excuse in enumerate(decision.excused, first)
    )


def _onset(decision: Correlation, named: list[Candidate]) -> float | None:
    """Return when what is named began; where nothing is named, the earliest of all findings."""
    known = [_began(root, decision) for root in named] or [finding.onset for finding in decision.findings]
    return min((onset for onset in known if onset is not None), default=None)


def _began(root: Candidate, decision: Correlation) -> float | None:
    """Return the onset of a root: of its finding, or of those that support it; another root's is not its own."""
    others = [other.finding for other in decision.roots if other.finding is not root.finding]
    about = [
        finding.onset
        for finding in decision.findings
        if finding.onset is not None and finding.symptom == root.finding.symptom
        if finding.family in root.families or has(root.finding.fault_class, "alike")
        if not any(finding is other for other in others)
    ]
    return min(about, default=root.finding.onset)


def _skew(window: Window) -> float | None:
    times = [dump.at for dump in window.dumps if dump.at is not None]
    return round(max(times) - min(times), 3) if len(times) > 1 else None


def coverage_of(window: Window, topology: Topology, nodes: Collection[str] = ()) -> Coverage:
    """Return how much of the job was seen. ``nodes``: those of the action."""
    kinds = Counter(str(record.__struct_config__.tag) for record in window.records if not isinstance(record, Unread))
    if window.earlier_dumps:
        kinds["flight_recorder"] -= len(window.earlier_dumps)
        kinds["flight_recorder_earlier"] = len(window.earlier_dumps)
    if loose := sum(dump.rank is None for dump in window.records_of(StackDump)):
        kinds["stacks_without_rank"] = loose
        kinds["stacks"] -= loose
    traces = {record.source for record in window.records_of(OpTimings)}
    kinds["placement"] -= sum(
        record.source in traces for record in window.records_of(Placement)
    )  # it states its rank's
    seen = {record.rank for record in window.records if record.rank is not None}
    unread = [f"{record.source}: {record.reason}"[:MOST_REASON] for record in window.records_of(Unread)]
    return Coverage(
        ranks_expected=len(topology.ranks) or None,
        ranks_at_least=bool(topology.ranks) and topology.world_size is None,
        ranks_seen=len(seen),
        has_gpus=window.has_gpus(nodes),
        has_ended=ended.with_error(window) or bool(ended.reported(window)),
        all_ended=ended.of_all(window, topology),
        backends=backends_seen(window),
        sources={kind: count for kind, count in sorted(kinds.items()) if count},
        other_attempts=tuple(str(number) for number in window.other_attempts),
        roles=dict(sorted(Counter(topology.roles[rank] for rank in seen & topology.roles.keys()).items())),
        unread=tuple(unread[:MOST_UNREAD])
        + ((f"{len(unread) - MOST_UNREAD} more",) if len(unread) > MOST_UNREAD else ()),
    )
