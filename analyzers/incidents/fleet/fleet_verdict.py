"""The symptom and the verdict of an infrastructure incident: it names what is shared, and evicts no node."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from analyzers.incidents.fleet.alarms import list_names
from analyzers.incidents.fleet.clusters import Cluster
from analyzers.incidents.fleet.explanations import Explanation
from analyzers.incidents.fleet.rules import Rules
from analyzers.incidents.fleet.shared_incident import MOST_NODES, OngoingIncident, detector_name
from analyzers.model.incident import Symptom
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
    instant,
)
from analyzers.verdict.build import VERSION

MOST_EVIDENCE, MOST_REJECTED, MOST_SUSPECTS = 16, 8, 8
_SHOWS = {
    "silence": "fell silent together",
    "link": "lost links or network cards together",
    "storage": "wait for a file system together",
    "device": "show the same fault of a device together",
    "host": "show the same fault of the host together",
}
_SYMPTOM = {"silence": "unknown", "link": "hardware", "storage": "hang", "device": "hardware", "host": "hardware"}
_TITLE = {"switch": "switch ", "storage": "file server "}
_SHARED_BY_SITE = (
    "which nodes share a switch, a rack or a power feed: the site's [domains] table states it (docs/fleet.md)"
)
_DECIDES = {
    "silence": "whether these machines have power, and answer from another network",
    "link": "the log of the switches that these nodes are connected to",
    "storage": "whether the file server answers a node that is not affected",
    "device": "which driver and firmware these nodes have and others have not",
    "host": "what the management controllers of these machines recorded",
}


def build_symptom(ongoing: OngoingIncident, rules: Rules) -> Symptom:
    """Return the symptom, with the numbers and the bound."""
    leading = ongoing.leading
    cluster = next((one for one in leading if detector_name(one) == ongoing.detector), leading[0])
    return Symptom(
        kind="infrastructure",
        detector=ongoing.detector,
        at=ongoing.onset,
        text=f"{_count(cluster)} {_what(cluster)}{_bound(cluster, rules)}: {list_names(cluster.members)}",
        nodes=ongoing.first,
    )


def first_nodes(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that showed it first, a bounded number."""
    order = sorted(cluster.members, key=lambda name: (min(sign.at for sign in cluster.members[name]), name))
    return tuple(order[:MOST_NODES])


def build_verdict(
    ongoing: OngoingIncident,
    cluster: Cluster,
    found: Sequence[Explanation],
    *,
    knowledge_hash: str,
    known: Collection[str],
    jobs: Collection[str],
    has_table: bool,
) -> Verdict:
    """Return the verdict.

    ``cluster`` leads and ``found`` is what explains it; ``known``: all nodes; ``jobs``: that run on the affected ones;
    ``has_table``: the site declares what nodes share.
    """
    best = best_explanation(found)
    evidence = tuple(_evidence(ongoing))
    return Verdict(
        symptom=_SYMPTOM[cluster.sign_class.family],
        cause=best.cause if best else "unknown",
        abstained=best is None,
        version=VERSION,
        knowledge=knowledge_hash,
        onset=instant(ongoing.onset),
        roots=(Root(root="r1", cause=best.cause if best else "unknown", fault_class=ongoing.detector),),
        culprits=(_culprit(best, evidence),) if best else (),
        suspects=(*(_culprit(one, evidence) for one in found[:MOST_SUSPECTS]), _unknown(found)),
        first_symptom=FirstSymptom(
            text=f"{_count(cluster)} {_what(cluster)}, first {ongoing.first[0]}", at=instant(ongoing.onset)
        ),
        rejected=tuple(_rejected(cluster)),
        evidence=evidence,
        missing=() if best else tuple(_missing(cluster, found, has_table=has_table)),
        action=Action(kind="none", why=_why(cluster, best, jobs)),
        coverage=Coverage(sources={"agents": len(known), "agents_affected": len(ongoing.nodes)}),
    )


def best_explanation(found: Sequence[Explanation]) -> Explanation | None:
    """Return the one explanation that is better than all others; two equal ones are no answer."""
    if not found or (len(found) > 1 and found[1].probability >= found[0].probability):
        return None
    return found[0]


def _count(cluster: Cluster) -> str:
    count = f"{len(cluster.members)} nodes"
    return f"all {count} that reported" if cluster.all_agents else count


def _what(cluster: Cluster) -> str:
    subject = f" ({cluster.sign_class.subject})" if cluster.sign_class.subject else ""
    return f"{_SHOWS[cluster.sign_class.family]}{subject}"


def _bound(cluster: Cluster, rules: Rules) -> str:
    if cluster.sign_class.family == "silence":
        return f", no batch for more than {rules.silence_seconds:g} s, their last ones within {_spread(cluster):.0f} s"
    if cluster.sign_class.family == "storage":
        return f", for more than {rules.storage_lasting_seconds:g} s"
    return f", within {rules.same_seconds:g} s"


def _spread(cluster: Cluster) -> float:
    last = [sign.at for signs in cluster.members.values() for sign in signs]
    return max(last) - min(last)


def _culprit(one: Explanation, evidence: Sequence[EvidenceItem]) -> Culprit:
    ids = tuple(item.id for item in evidence)
    return Culprit(root="r1", kind=one.kind, id=one.id, probability=one.probability, why=one.why, evidence=ids)


def _unknown(found: Sequence[Explanation]) -> Culprit:
    rest = max(0.0, 1 - sum(one.probability for one in found))
    return Culprit(root="r1", kind="unknown", id="unknown", probability=round(rest, 4))


def _evidence(ongoing: OngoingIncident) -> list[EvidenceItem]:
    """Return a line a node, of every class the same number."""
    clusters = ongoing.leading
    each = max(1, MOST_EVIDENCE // len(clusters))
    lines = [(name, min(signs)) for one in clusters for name, signs in sorted(one.members.items())[:each]]
    return [
        EvidenceItem(
            id=f"e{number}", text=f"{name}: {sign.text}", source=sign.source, analyzer="fleet", at=instant(sign.at)
        )
        for number, (name, sign) in enumerate(lines[:MOST_EVIDENCE], 1)
    ]


def _rejected(cluster: Cluster) -> list[Rejected]:
    others = len(cluster.members) - 1
    why = (
        f"its agent fell silent with {others} others: silence is no evidence against a machine"
        if cluster.sign_class.family == "silence"
        else f"{others} other nodes show the same at the same time: a fault of its own would be its own"
    )
    return [Rejected(kind="node", id=name, why=why) for name in sorted(cluster.members)[:MOST_REJECTED]]


def _missing(cluster: Cluster, found: Sequence[Explanation], *, has_table: bool) -> list[Missing]:
    missing = [Missing(what=_DECIDES[cluster.sign_class.family])]
    if not has_table and cluster.sign_class.family != "storage":
        missing.append(Missing(what=_SHARED_BY_SITE))
    if len(found) > 1:
        equal = " or ".join(f"{one.kind} {one.id}" for one in found[:MOST_SUSPECTS])
        missing.append(Missing(what=f"what distinguishes {equal}: they serve the same nodes"))
    return missing


def _why(cluster: Cluster, best: Explanation | None, jobs: Collection[str]) -> str:
    concerned = f"; it concerns job{'s' if len(jobs) > 1 else ''} {list_names(jobs)}" if jobs else ""
    if best is None:
        return (
            f"{_count(cluster)} {_what(cluster)}: a person must examine what they share; nothing indicates a single"
            f" machine{concerned}"
        )
    kind = _TITLE.get(best.kind, "")
    return f"look at {kind}{best.id}: {best.why}; no machine of a job is at fault{concerned}"
