"""One verdict on a job whose roles share rank numbers, from a verdict on each role.

Ranks are compared with those of their own role only. Roles wait for one another, which no collective shows: a rollout waits
for weights, a trainer for experience. So what one role's waits or stacks suggest yields to better evidence in another role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import has
from analyzers.model.finding import Finding
from analyzers.model.standings import WAITING
from analyzers.model.topology import Topology
from analyzers.model.verdict import (
    Action,
    Coverage,
    Culprit,
    EvidenceItem,
    FirstSymptom,
    Missing,
    Rejected,
    Root,
    Verdict,
    Victims,
)
from analyzers.model.window import Window
from analyzers.verdict.build import MOST_SUSPECTS, MOST_UNREAD, coverage_of
from analyzers.verdict.candidates import Candidate, Correlation
from analyzers.verdict.explain import MOST_REJECTED
from analyzers.verdict.witness import Witness
from collectors.records.identity import names_of_placed, shown_rank, with_role

_MOST_CHAINS = 6
_COMMUNICATES = WAITING - {"waiting_device"}  # a line where most ranks stand is taken for that, an idle one too


def without_idle(decision: Correlation, witness: Witness) -> None:
    """Accuse no rank by stacks alone in a role of which none waits in communication; it may idle by design.

    Rollouts that wait for work stand alike, and one that generates on stands apart from them.
    """
    observed = (witness.observations(rank) for rank in witness.topology.ranks)
    if any(found[-1].duty.name in _COMMUNICATES for found in observed if found):
        return
    idle = [root for root in decision.roots if (root.families | {root.finding.family}) == {"stacks"}]
    why = "no rank of its role waits in communication: the role may wait for another"
    decision.rejected.extend(replace(suspect, why=why) for root in idle for suspect in root.suspects[:4])
    decision.roots = [root for root in decision.roots if root not in idle]


def each_for_itself(claims: Iterable[Finding], role: str, topology: Topology, knowledge: Knowledge) -> list[Finding]:
    """Return the claims on a role; where its instances work each by itself, none is the victim of another one's end.

    What an instance waits for then is no question of the end that another one met.
    """
    claims = list(claims)
    if not topology.instances or "role_rules" not in knowledge.tables or all(one.symptom != "crash" for one in claims):
        return claims
    from analyzers.knowledge.role_rules import role_rules  # few jobs have a directory of roles

    if not role_rules(knowledge).works_alone(role):
        return claims
    return [_for_itself(one, topology) for one in claims]


def _for_itself(claim: Finding, topology: Topology) -> Finding:
    victims = tuple(rank for rank in claim.victims if rank not in topology.instances)
    return replace(claim, victims=victims, missing=claim.missing if claim.symptom == "crash" else ())


def between_roles(decisions: Mapping[str, Correlation]) -> None:
    """Leave of the roots of all roles those with the best evidence, and of crashes the first."""
    roots = [(role, root) for role, decision in decisions.items() for root in decision.roots]
    if len({role for role, _ in roots}) < 2:
        return
    best = max(_weight(root) for _, root in roots)
    crashes = [(root.finding.onset, role) for role, root in roots if _crashed(root) and root.finding.onset is not None]
    lead = next((role, root) for role, root in roots if _weight(root) == best)
    for role, decision in decisions.items():
        kept = []
        for root in decision.roots:
            late = _crashed(root) and bool(crashes) and min(crashes)[1] != role
            if _weight(root) == best and not late:
                kept.append(root)
                continue
            why = f"a role may wait for another, and {_named(*lead)} is shown by better evidence"
            why = "another role failed before it" if late else why
            decision.rejected.extend(replace(suspect, why=why) for suspect in root.suspects[:4])
        decision.roots = kept


def _named(role: str, root: Candidate) -> str:
    """Name what leads as an instance of its role: in a sentence of another role its rank would be taken for one of that."""
    ranks = sorted(root.ranks)
    return f"{role} {shown_rank(ranks[0])}" if ranks and role else role or "a process without a role"


def _crashed(root: Candidate) -> bool:
    return root.finding.symptom == "crash"


def _weight(root: Candidate) -> int:
    """Return how good its evidence is: a process's own state or words, what roles wait for, waits, hardware, stacks alone."""
    families = root.families | {root.finding.family}
    if families & {"process", "log"} or has(root.finding.fault_class, "own_state"):
        return 4
    return 3 if "roles" in families else 2 if "waits" in families else 1 if "hardware" in families else 0


def of_roles(verdicts: Mapping[str, Verdict], window: Window) -> Verdict:
    """Write the one verdict: the leading role's, with what the others add."""
    order = sorted(verdicts, key=lambda role: (_place(verdicts[role]), -_likeliest(verdicts[role]), role))
    lead, joined = verdicts[order[0]], _Joined()
    for role in order:
        joined.add(role, verdicts[role])
    said = lead.culprits or lead.symptom not in ("unknown", "healthy")
    return msgspec.structs.replace(
        lead,
        onset=min((one.onset for one in verdicts.values() if one.onset), default=None),
        roots=tuple(joined.roots),
        culprits=tuple(joined.culprits),
        suspects=tuple(joined.suspects[:MOST_SUSPECTS]),
        first_symptom=_first(order, verdicts),
        victims=_victims(order, verdicts),
        rejected=tuple(dict.fromkeys(joined.rejected))[:MOST_REJECTED],
        evidence=tuple(joined.evidence),
        missing=tuple(dict.fromkeys(_missing(order, verdicts, matters=not said))),
        action=_action(order, verdicts),
        coverage=_coverage(verdicts, window),
    )


def _place(verdict: Verdict) -> int:
    """Return where a role's verdict stands: a culprit, a symptom without one, a pause, healthy, nothing known."""
    if verdict.culprits:
        return 0
    if verdict.symptom in ("healthy", "unknown"):
        return 3 if verdict.symptom == "healthy" else 4
    return 1 if verdict.abstained else 2


def _likeliest(verdict: Verdict) -> float:
    return max((one.probability for one in verdict.culprits), default=0.0)


@dataclass
class _Joined:
    """Lists of several verdicts as one, their ids made unique; a node that two roles name for one thing is one root."""

    roots: list[Root] = field(default_factory=list)
    culprits: list[Culprit] = field(default_factory=list)
    suspects: list[Culprit] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    evidence: list[EvidenceItem] = field(default_factory=list)

    def add(self, role: str, verdict: Verdict) -> None:
        """Add a role's verdict."""
        ids = self._evidence(role, verdict)
        labels = {root.root: self._root(root, verdict) for root in verdict.roots}

        def own(one: Culprit) -> Culprit:
            nameless = not one.ranks or one.kind in ("node", "device", "unknown")
            name = one.id if nameless else with_role(f"rank {one.id}" if one.kind == "rank" else one.id, role)
            return msgspec.structs.replace(
                one, root=labels[one.root], id=name.replace(" rank ", " ") if one.kind == "rank" else name,
                role=(role or one.role) if one.ranks else one.role, why=with_role(one.why, role),
                evidence=tuple(ids[number] for number in one.evidence), names=names_of_placed(one.ranks, role),
            )  # fmt: skip

        self.culprits += map(own, verdict.culprits)
        self.suspects += map(own, verdict.suspects)
        self.rejected += (
            Rejected(kind=one.kind, id=_rejected_id(one, role), why=with_role(one.why, role))
            for one in verdict.rejected
        )

    def _evidence(self, role: str, verdict: Verdict) -> dict[str, str]:
        ids = {}
        for item in verdict.evidence:
            ids[item.id] = f"e{len(self.evidence) + 1}"
            self.evidence.append(msgspec.structs.replace(item, id=ids[item.id], text=with_role(item.text, role)))
        return ids

    def _root(self, root: Root, verdict: Verdict) -> str:
        nodes = {(one.kind, one.id) for one in verdict.culprits if one.root == root.root and one.kind == "node"}
        for known in self.culprits:
            same = next(one for one in self.roots if one.root == known.root).fault_class == root.fault_class
            if same and (known.kind, known.id) in nodes:
                return known.root
        label = f"r{len(self.roots) + 1}"
        self.roots.append(msgspec.structs.replace(root, root=label))
        return label


def _rejected_id(one: Rejected, role: str) -> str:
    return (
        with_role(f"rank {one.id}", role).replace(" rank ", " ")
        if one.kind == "rank" and one.id[:1].isdigit()
        else one.id
    )


def _first(order: list[str], verdicts: Mapping[str, Verdict]) -> FirstSymptom | None:
    """Return the earliest first symptom of all roles."""
    known = [(role, first) for role in order if (first := verdicts[role].first_symptom) is not None]
    role, first = min(known, key=lambda one: one[1].at or "9", default=("", None))
    if first is None:
        return None
    whose = role or None if first.rank is not None else None
    return msgspec.structs.replace(first, text=with_role(first.text, role), role=whose)


def _victims(order: list[str], verdicts: Mapping[str, Verdict]) -> Victims:
    waiting = {role: verdicts[role].victims for role in order if verdicts[role].victims.count}
    chains = [f"{role} {chain}" if role else chain for role, one in waiting.items() for chain in one.chains]
    return Victims(
        count=sum(one.count for one in waiting.values()),
        ranks=next((one.ranks for one in waiting.values()), ""),
        chains=tuple(dict.fromkeys(chains))[:_MOST_CHAINS],
        roles={role: one.ranks for role, one in waiting.items() if role},
    )


def _missing(order: list[str], verdicts: Mapping[str, Verdict], *, matters: bool) -> Iterator[Missing]:
    """Yield what the leading role lacks; what another one lacks matters only where nothing is said."""
    findings = any(verdict.evidence or verdict.symptom != "unknown" for verdict in verdicts.values())
    for role in order:
        verdict = verdicts[role]
        if findings and verdict.symptom == "unknown" and not verdict.evidence and role != order[0]:
            continue  # nothing was read of it, which its place in the coverage shows
        for one in verdict.missing:
            yield Missing(what=with_role(one.what, role), matters=one.matters and (role == order[0] or matters))


def _action(order: list[str], verdicts: Mapping[str, Verdict]) -> Action:
    """Return the leading role's action, with the nodes for which another role asks for the same."""
    lead = verdicts[order[0]].action
    same = [
        verdicts[role].action for role in order if verdicts[role].culprits and verdicts[role].action.kind == lead.kind
    ]
    nodes = dict.fromkeys(node for action in same or [lead] for node in action.nodes)
    whose = (order[0] or None) if verdicts[order[0]].culprits else None
    return msgspec.structs.replace(lead, nodes=tuple(nodes), role=lead.role or whose, why=with_role(lead.why, order[0]))


def _coverage(verdicts: Mapping[str, Verdict], window: Window) -> Coverage:
    parts = [verdict.coverage for verdict in verdicts.values()]
    seen = Counter(
        {role: one.coverage.ranks_seen for role, one in verdicts.items() if role and one.coverage.ranks_seen}
    )
    expected = sum(one.ranks_expected or 0 for one in parts)
    return msgspec.structs.replace(
        coverage_of(window, Topology()),
        ranks_expected=expected or None,
        ranks_at_least=any(one.ranks_at_least for one in parts),
        ranks_seen=sum(one.ranks_seen for one in parts),
        roles=dict(sorted(seen.items())),
        unread=tuple(dict.fromkeys(line for one in parts for line in one.unread))[: MOST_UNREAD + 1],
    )
