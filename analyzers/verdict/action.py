"""What to do about a verdict: the mildest action that its proof carries. An innocent machine is never evicted lightly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from analyzers.knowledge import Knowledge
from analyzers.knowledge.xids import advice_for
from analyzers.model.fault_classes import fault_class, hardware_action, has, in_words
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.verdict import Action, Culprit
from analyzers.verdict.candidates import Candidate

_ENOUGH = 0.85
_ENOUGH_TO_RESTART = 0.75
# A new process would end as well, or is not wanted.
_NO_MEND = frozenset({"raised_again", "everywhere", "asked", "from_outside"})
_MORE_THAN_A_ROLE = frozenset({"probe", "reattempt", "evict"})
"""What a failure asks for where no role is known. Of an instance of a role, the restart of that comes first."""
LOST_A_PEER = "echoes_only"
_TEST_OTHERS = "; test the others that are named before they are touched"
NOT_PROVEN = "the proof is not enough to evict"
"""The reason of a probe that only doubt holds back, which the plan weighs. Any other reason comes before the plan."""
# Evicting more nodes than this, or than a quarter of the job, is never proposed: they share a cause elsewhere.
MOST_EVICTED_NODES = 4
Held = Callable[[Candidate], str | None]
_BY_CAUSE = {
    "code": ("rollback", "the code is the cause: no machine is at fault"),
    "network": ("probe", "the network is suspected: test its links first"),
    "storage": ("none", "the file system is the cause: no machine of the job is at fault"),
    "platform": ("restart_job", "killed or preempted from outside: no machine of the job is at fault"),
    "data": ("none", "the data is the cause: no machine is at fault"),
    "imbalance": ("none", "the work is uneven: no machine is at fault"),
    "unknown": ("probe", "what is missing would decide"),
}
_OWN_DISK = ("none", "look at that disk (`smartctl -a`, `nvme smart-log`) before the next job writes there")
"""Its own disk is a machine's fault, and no reason to move a job whose ranks are not seen to wait for it."""


def nothing_held(_root: Candidate) -> str | None:
    """Hold no root back: there is no second evidence round to wait for."""
    return None


def choose_action(
    culprits: tuple[Culprit, ...],
    roots: list[Candidate],
    topology: Topology,
    knowledge: Knowledge,
    symptom: str,
    held: Held = nothing_held,
    *,
    lost_a_peer: bool = False,
) -> Action:
    """Choose the action for what the verdict names. ``held``: why a root may not be evicted yet, None where it may.

    ``lost_a_peer``: the job has ended, and all that its processes report is that they lost one another.
    """
    if not culprits and lost_a_peer:
        return Action(kind="reattempt", why=fault_class(LOST_A_PEER).advice)
    if not culprits:
        return Action(
            kind="none", why="nothing is at fault" if symptom == "healthy" else "nothing is named: nothing is done"
        )
    pairs = _paired(culprits, roots)
    if (restart := _restart(pairs)) is not None:
        return restart
    machines = [(root, entry) for root, entry in pairs if root.finding.cause == "machine"]
    proven = [(root, entry) for root, entry in machines if _proven(root, entry) and not _event_of(root)]
    # The plan weighs the doubt about a dead process by itself, unless something else holds the machine back.
    weighed = [(root, entry) for root, entry in machines if (root, entry) in proven or root.finding.symptom == "crash"]
    waiting = [(entry, why) for root, entry in weighed if (why := held(root)) is not None]
    proven = [(root, entry) for root, entry in proven if entry not in [other for other, _ in waiting]]
    if waiting and not proven:
        return _not_yet(waiting)
    if proven and not _too_many([entry for _, entry in proven], topology):
        return _evict(proven, partly=len(proven) < len(culprits))
    if machines and _event_of(machines[0][0]):
        return _hardware(machines, knowledge, of=len(culprits))
    if machines:
        others = (_restart([pair]) for pair in pairs[1:])
        sure = next((one for one in others if one is not None and one.kind == "restart_role"), None)
        leading = [
            entry for root, entry in pairs if root is roots[0] and root.finding.cause == "unknown" and entry.ranks
        ]
        return sure or _look_first([*leading, *(entry for _, entry in machines)])
    cause, row = roots[0].finding.cause, fault_class(roots[0].finding.fault_class)
    advised = row.advice and cause == row.causes[0]
    if cause == "unknown" and "kernel_decides" in row.traits and "hardware" in roots[0].families:
        return _look_first([entry for root, entry in pairs if root is roots[0]])  # the kernel's word is of its machine
    if "words_only" in row.traits:
        return Action(kind="none", why=row.advice)
    kind, why = (row.strongest, row.advice) if advised else _BY_CAUSE.get(cause, ("none", ""))
    if cause == "storage" and culprits[0].kind == "node":
        kind, why = _OWN_DISK
    role, instance = culprits[0].seat if kind == "restart_role" else (None, None)
    alike = (entry for root, entry in pairs if root.finding.fault_class == roots[0].finding.fault_class)
    ranks = tuple(sorted({rank for one in alike for rank in one.ranks})) if kind == "probe" else ()
    of_node = bool({"own_code", "device_decides"}.intersection(row.traits))
    placed = (topology.nodes[rank] for rank in ranks if of_node and rank in topology.nodes)
    nodes = tuple(dict.fromkeys(placed))
    return Action(kind=kind, nodes=nodes, ranks=ranks, role=role, instance=instance, why=why)


def with_places(action: Action, topology: Topology) -> Action:
    """Add where the ranks of an action ran, if it is known of all: words name it, and no plan takes it as a node's guilt."""
    found = [topology.nodes.get(rank) for rank in action.ranks]
    known = tuple(dict.fromkeys(node for node in found if node is not None))
    if action.nodes or None in found:
        return action
    return msgspec.structs.replace(action, nodes_of_ranks=known)


def lost_a_peer_alone(findings: Sequence[Finding]) -> bool:
    """Return whether processes only report that they lost a peer, and nothing else is claimed."""
    claims = {finding.fault_class for finding in findings}
    return claims == {LOST_A_PEER} and all(finding.symptom == "crash" for finding in findings)


def _restart(pairs: list[tuple[Candidate, Culprit]]) -> Action | None:
    """Restart what the roles' own reports name, or an instance's stopped process; hardware of its machine comes first."""
    root, entry = pairs[0]
    row = fault_class(root.finding.fault_class)
    own = "own_failure" in row.traits and "was_ended" not in row.traits  # also of its code, or for want of memory
    ended = root.finding.symptom == "crash" and not _NO_MEND.intersection(row.traits)
    more = row.strongest in _MORE_THAN_A_ROLE or own or ended
    of_process = "of_process" in row.traits and bool(entry.instances)
    reported = more and ("roles" in root.families - {root.finding.family} or of_process)
    if not (reported or row.strongest == "restart_role") or not root.certain or "hardware" in root.families:
        return None
    named_by = root.families | set(row.claimed_by)
    one = len(entry.instances) == 1 and "roles" in named_by  # the roles' own readings name this instance
    alike = root.finding.cause == "unknown" and not (
        root.narrowed or one
    )  # no evidence tells the ranks of the role apart
    if entry.probability < _ENOUGH_TO_RESTART or alike:
        return _look_first([entry]) if root.finding.cause in ("machine", "unknown") else None
    restarts = root.suspects[0].restarts
    if restarts == "job":
        return Action(kind="restart_job", why=f"{row.words}: nothing goes on without the role {entry.role}")
    instance = next(iter(entry.instances), None) if not restarts else None
    return Action(kind="restart_role", role=restarts or entry.role, instance=instance, why=row.advice or row.words)


def _paired(culprits: tuple[Culprit, ...], roots: list[Candidate]) -> list[tuple[Candidate, Culprit]]:
    labels = list(dict.fromkeys(culprit.root for culprit in culprits))
    return [(roots[labels.index(culprit.root)], culprit) for culprit in culprits]


def _proven(root: Candidate, entry: Culprit) -> bool:
    """Evict on the machine's own record, or where a second family of evidence agrees; never a set."""
    agreed = root.narrowed or bool(root.families & {"process", "hardware"} and len(root.families) > 1)
    return (
        root.certain
        and entry.probability >= _ENOUGH
        and entry.kind in ("node", "rank", "device")
        and (bool(fault_class(root.finding.fault_class).proof) or agreed)
    )


def _event_of(root: Candidate) -> str:
    """Return the hardware event that decides what is done; "" where other evidence is more than that event seen again.

    What a program says of its GPU, or that it ended, is the same fault as the kernel's event beside it.
    """
    if "hardware" not in root.families or not root.families <= {"hardware", "log"}:
        return ""
    said = (root.finding.fault_class, *root.agreeing) if root.finding.family == "hardware" else root.agreeing
    return next((name for name in said if "hardware" in fault_class(name).claimed_by), "")


def _too_many(entries: list[Culprit], topology: Topology) -> bool:
    nodes = {entry.id for entry in entries if entry.kind == "node"}
    total = len(set(topology.nodes.values()))
    return len(nodes) > MOST_EVICTED_NODES and 4 * len(nodes) > total


def _evict(pairs: list[tuple[Candidate, Culprit]], *, partly: bool) -> Action:
    entries = [entry for _, entry in pairs]
    found: dict[str, list[str]] = {}
    for root, entry in pairs:
        found.setdefault(_reason(root), []).append(entry.kind if entry.id == entry.kind else f"{entry.kind} {entry.id}")
    reasons = [_reason_for(guilty, reason, alone=len(found) == 1) for reason, guilty in found.items()]
    return _on(entries, "evict", "; ".join(reasons) + (_TEST_OTHERS if partly else ""))


def _on(entries: list[Culprit], kind: str, why: str) -> Action:
    """Return an action on these: by their nodes, and where none is known by their ranks and devices."""
    devices = dict.fromkeys(entry.id for entry in entries if entry.kind == "device" and entry.id != "device")
    return Action(kind=kind, nodes=_nodes(entries), ranks=_homeless(entries), devices=tuple(devices), why=why)


def _reason_for(guilty: list[str], reason: str, *, alone: bool) -> str:
    """Name the guilty before a reason, where there are several."""
    if len(guilty) == 1 and alone:
        return reason
    return f"{' and '.join(guilty)}: {reason}" if not alone else f"for each of them, {reason}"


def _reason(root: Candidate) -> str:
    """Return why the evidence is enough to evict this machine."""
    if root.narrowed:
        own_state = (fault_class(name) for name in root.agreeing if has(name, "own_state"))
        if shown := next((row.proof for row in own_state if row.proof), ""):
            return shown
        return "the dumps leave a few ranks open, and other evidence picks it from them"
    proof = fault_class(root.finding.fault_class).proof
    return proof or "independent kinds of evidence agree: " + " and ".join(sorted(root.families))


def _hardware(machines: list[tuple[Candidate, Culprit]], knowledge: Knowledge, of: int) -> Action:
    """Return what the first device's own event asks for, by the vendor's table or the site's, on all that it is asked for."""
    own = [(event, entry) for root, entry in machines if (event := _event_of(root))]
    kind = hardware_action(own[0][0], knowledge)
    asked = [(name, entry) for name, entry in own if hardware_action(name, knowledge) == kind]
    if advice := fault_class(asked[0][0]).advice:
        return _on([entry for _, entry in asked], kind, advice)
    events = " and ".join(dict.fromkeys(_event(name) for name, _ in asked))
    why = f"that is what the table of hardware events asks for after {events}"
    if kind == "none" and (own_advice := advice_for(asked[0][0], knowledge)):
        why = f"{own_advice}: {why}"
    return _on([entry for _, entry in asked], kind, why + (_TEST_OTHERS if len(asked) < of and kind != "probe" else ""))


def _event(name: str) -> str:
    """Return a hardware event in words: by its number where the vendor gave it one."""
    words = in_words(name)
    return words if words.startswith(("Xid ", "SXid ")) else f"this: {words}"


def _not_yet(waiting: list[tuple[Culprit, str]]) -> Action:
    """Probe these, and state what keeps them from being evicted."""
    why = "; ".join(dict.fromkeys(why for _, why in waiting))
    return msgspec.structs.replace(_look_first([entry for entry, _ in waiting]), why=why)


def _look_first(entries: list[Culprit]) -> Action:
    ranks = tuple(sorted({rank for entry in entries for rank in entry.ranks}))
    return Action(kind="probe", nodes=_nodes(entries), ranks=ranks, why=NOT_PROVEN)


def _nodes(entries: list[Culprit]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry.id for entry in entries if entry.kind == "node" and entry.id != "node"))


def _homeless(entries: list[Culprit]) -> tuple[int, ...]:
    """Return the guilty ranks whose node is unknown."""
    return tuple(sorted({rank for entry in entries if entry.kind != "node" for rank in entry.ranks}))
