"""What a verdict states beside its names: numbered evidence, reasons, victims, what was rejected, and what is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from analyzers.model.fault_classes import has
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.verdict import Culprit, EvidenceItem, FirstSymptom, Missing, Rejected, Victims, instant
from analyzers.model.window import Window
from analyzers.verdict import ended
from analyzers.verdict.candidates import Candidate, Correlation
from collectors.records import KernelEvent, LogEvent, RasCommunicator, Ring, StackDump

MOST_REJECTED = 8
DECIDED = 0.8  # what is so probable is called very likely
OF_PROCESSES = frozenset({"rank", "group", "stage", "node", "device"})  # kinds of suspects that ranks run on, or are
MOST_ASSUMED = 4  # files
MOST_CLAIMED = 64  # suspects and sentences of one finding
_BACKEND = re.compile(r"(?i)([nr]ccl|gloo)")
_BACKENDS = {"nccl": "nccl", "rccl": "nccl", "gloo": "gloo"}  # RCCL reads NCCL's variables


class NumberedEvidence:
    """Numbers evidence in order of first use."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, Evidence], str] = {}

    def ids(self, analyzer: str, evidence: Iterable[Evidence]) -> tuple[str, ...]:
        """Return the number of each sentence, new ones for those that have none."""
        return tuple(self.items.setdefault((analyzer, item), f"e{len(self.items) + 1}") for item in evidence)

    def entries(self) -> tuple[EvidenceItem, ...]:
        """Return all numbered sentences in order."""
        return tuple(
            EvidenceItem(id=number, text=item.text, source=item.source, analyzer=analyzer, at=instant(item.at))
            for (analyzer, item), number in self.items.items()
        )


def why_of_set(root: Candidate, ranks: tuple[int, ...]) -> str:
    """Say why a set is named, by its first member."""
    if len(ranks) == 1:
        return f"{root.suspects[0].why}; it cannot be excluded"
    if len(root.suspects) == 1 and not ranks:
        return root.suspects[0].why
    return f"for example, {root.suspects[0].why}"


def first_symptom_of(decision: Correlation) -> FirstSymptom | None:
    """Return the earliest first symptom of all findings, but for the wait of a rank that its stack shows elsewhere."""
    elsewhere = _in_own_input(decision)
    found = [finding.first_symptom for finding in decision.findings if finding.first_symptom is not None]
    known = [first for first in found if first.rank not in elsewhere]
    first = min(known, key=lambda one: one.at if one.at is not None else float("inf"), default=None)
    return None if first is None else FirstSymptom(text=first.text, rank=first.rank, at=instant(first.at))


def victims_of(decision: Correlation, named: list[tuple[str, Candidate]], culprits: tuple[Culprit, ...]) -> Victims:
    """Return the ranks that wait: for the culprits, or where none is named for any rank; an acquitted suspect waits too."""
    guilty = {rank for culprit in culprits for rank in culprit.ranks}
    others = (
        root for _, root in named if root.narrowed or any(one.kind == "storage" and one.ranks for one in root.suspects)
    )
    acquitted = {rank for root in others for rank in root.finding.scope}
    elsewhere = guilty | _in_own_input(decision)
    ranks = sorted(({rank for finding in decision.findings for rank in finding.victims} | acquitted) - elsewhere)
    ends = [chain for finding in decision.findings for chain in finding.chains if chain[0] not in elsewhere]
    chains = [" → ".join(map(str, chain)) for chain in ends if not guilty or chain[-1] in guilty]
    return Victims(count=len(ranks), ranks=ranges(ranks), chains=tuple(dict.fromkeys(chains))[:6])


def _in_own_input(decision: Correlation) -> set[int]:
    """Return the ranks whose stacks stand where each reads for itself: whatever their dumps show, that is no wait for another."""
    alike = (root for root in decision.roots if root.finding.cause == "data" and has(root.finding.fault_class, "alike"))
    return _found_in_own_input(decision).union(*(root.finding.scope for root in alike))


def _found_in_own_input(decision: Correlation) -> set[int]:
    claims = (finding for finding in decision.findings if has(finding.fault_class, "own_input"))
    return {rank for finding in claims for suspect in finding.suspects for rank in suspect.ranks}


def rejected_by(decision: Correlation, culprits: tuple[Culprit, ...]) -> tuple[Rejected, ...]:
    """Return the suspects that lost, each with the reason; what a culprit names under another kind or name is none of them."""
    entries = [
        Rejected(kind=suspect.kind, id=_name(suspect), why=suspect.why)
        for suspect in decision.rejected
        if not any(_is_named(suspect, culprit) for culprit in culprits)
    ]
    return tuple(dict.fromkeys(entries))[:MOST_REJECTED]


def _is_named(suspect: Suspect, culprit: Culprit) -> bool:
    """Whether a culprit is, or holds, the same rank, node or device. Its code or its link is another matter."""
    if (suspect.kind, _name(suspect)) == (culprit.kind, culprit.id):
        return True
    if suspect.kind not in OF_PROCESSES or (culprit.kind not in OF_PROCESSES and suspect.kind in {"node", "device"}):
        return False
    if suspect.ranks:
        return set(suspect.ranks) <= set(culprit.ranks)
    return suspect.device in culprit.devices if suspect.device else suspect.node == culprit.id


def _name(suspect: Suspect) -> str:
    return suspect.name or suspect.device or suspect.node or ranges(suspect.ranks) or suspect.kind


def missing_from(
    decision: Correlation, window: Window, topology: Topology, culprits: tuple[Culprit, ...]
) -> tuple[Missing, ...]:
    """Return the evidence that was not there: what open findings ask for, and dumps of ranks that left none."""
    answered = {
        what
        for root in decision.roots
        if root.certain
        and (not root.finding.together or (len(root.families) > 1 and has(root.finding.fault_class, "no_dump")))
        for what in root.finding.missing
        if what != root.finding.assumes or len(root.families) > 1
    }
    looks = Counter(dump.rank for dump in window.records_of(StackDump) if dump.parent_pid is None)
    twice = any(count > 1 for rank, count in looks.items() if rank is not None)
    asked = [one for one in decision.findings if not _of_no_standstill(one, decision)]
    entries = [Missing(what=what) for one in asked for what in one.missing if what not in answered]
    entries += [
        Missing(what=f"{one.why}: a {'later' if twice else 'second'} set of stacks{'' if twice else ', later'}")
        for one in decision.excused
        if one.cause == "unknown" and not has(one.fault_class, "from_outside")
    ]
    entries += _still_reading(decision, culprits)
    dumped = {dump.rank for dump in window.dumps}
    absent = [rank for rank in topology.ranks if rank not in dumped]
    if absent and window.dumps and not any("left no dump" in entry.what for entry in entries):
        guilty = {rank for culprit in culprits for rank in culprit.ranks}
        named = f"rank{'s' if len(absent) > 1 else ''} {ranges(absent)}"
        open_still = not culprits or any(not root.certain for root in decision.roots)
        matters = open_still or bool(guilty & set(absent))
        entries.append(Missing(what=f"no flight-recorder dump from {named}", matters=matters))
    if not decision.findings:
        entries.append(Missing(what=_nothing_to_go_by(window)))
    if loose := sum(dump.rank is None for dump in window.records_of(StackDump)):
        named = "stack dump names" if loose == 1 else "stack dumps name"
        entries.append(
            Missing(what=f"{loose:,} {named} no rank: name the files stacks_rankN.json", matters=not culprits)
        )
    entries = [*entries, *_assumed_years(decision, window)]
    return tuple(dict.fromkeys(_confirming(entries) if _decided(decision, culprits) else entries))


def _of_no_standstill(finding: Finding, decision: Correlation) -> bool:
    """Whether stacks leave open if the job stands still, beside a fault of which that is no question."""
    leads = {root.finding.symptom for root in decision.roots}
    return finding.family == "stacks" and finding.symptom == "unknown" and bool(leads) and "hang" not in leads


def _decided(decision: Correlation, culprits: tuple[Culprit, ...]) -> bool:
    """Whether what is named is surely so: what is missing can confirm that, and no more."""
    certain = all(root.certain for root in decision.roots)
    return certain and bool(culprits) and all(one.probability >= DECIDED for one in culprits)


def _confirming(entries: Iterable[Missing]) -> list[Missing]:
    return [msgspec.structs.replace(one, what=one.what.replace("would decide", "would confirm it")) for one in entries]


def _still_reading(decision: Correlation, culprits: tuple[Culprit, ...]) -> Iterator[Missing]:
    """Yield, beside what is named, the ranks that stand in their data loaders: they are neither named nor known to wait."""
    if culprits and (ranks := sorted(_found_in_own_input(decision) - {rank for one in culprits for rank in one.ranks})):
        named = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
        yield Missing(
            what=f"whether {named} will leave the data loader that the stacks show: stacks taken again, later"
        )


def _assumed_years(decision: Correlation, window: Window) -> Iterator[Missing]:
    """Yield for each log without a year the one that was taken; it matters where a finding rests on its lines."""
    shown = [one for finding in decision.findings for one in finding.evidence]
    shown += [one for finding in decision.findings for suspect in finding.suspects for one in suspect.evidence]
    rests_on = {one.source.rpartition(":")[0] for one in shown}
    stated = [
        event for event in window.records_of(KernelEvent) if event.at is not None and event.yearless_at is not None
    ]
    years = {event.source.rpartition(":")[0]: (instant(event.at) or "")[:4] for event in stated}
    for file, year in islice(years.items(), MOST_ASSUMED):
        by = "by stamps read beside them, or else the file's time (`touch -d` sets another)"
        what = f"the year of {file}: its lines state none, and {year} is assumed {by}"
        yield Missing(what=what, matters=file in rests_on)


def _nothing_to_go_by(window: Window) -> str:
    have = Counter(str(record.__struct_config__.tag) for record in window.records)
    read = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in sorted(have.items())) or "nothing"
    if ended.reported(window):
        return "why a process ended: its own log, its exit status and the kernel log of its node would decide"
    return f"no symptom in what was read ({read}): flight-recorder dumps, stacks and logs of every rank would decide"


def claim_to_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON values, for the record of how a verdict came about."""
    return {
        "analyzer": finding.analyzer,
        **({"role": finding.role} if finding.role else {}),
        "family": finding.family,
        "symptom": finding.symptom,
        "cause": finding.cause,
        "fault_class": finding.fault_class,
        "suspects": [
            {
                "kind": suspect.kind,
                "ranks": list(suspect.ranks),
                "node": suspect.node,
                "device": suspect.device,
                "strength": suspect.strength,
                "why": suspect.why,
            }
            for suspect in finding.suspects[:MOST_CLAIMED]
        ],
        "evidence": [item.text for item in finding.evidence[:MOST_CLAIMED]],
        "missing": list(finding.missing[:MOST_CLAIMED]),
    }


def backends_seen(window: Window) -> tuple[str, ...]:
    """Return ``gloo`` and ``nccl``, sorted, as far as recorders, probes, stacks and lines of logs name them."""
    texts = set(_texts(window))
    return tuple(sorted({_BACKENDS[found.lower()] for text in texts for found in _BACKEND.findall(text)}))


def _texts(window: Window) -> Iterator[str]:
    yield from (text.partition(":")[0] for text in window.recorder.strings if text.startswith(("nccl:", "gloo:")))
    yield from (ring.backend for ring in window.records_of(Ring))
    yield from ("nccl" for _ in window.records_of(RasCommunicator)[:1])
    for stacks in window.records_of(StackDump):
        for thread in stacks.threads:
            for frame in thread.frames:
                yield frame.function
                yield frame.file
    for event in window.records_of(LogEvent):
        yield event.message or event.text


def in_their_roles(entries: list[Culprit], topology: Topology) -> list[Culprit]:
    """Add the role of each entry's ranks, where all of them have the same, and the instances that they are."""
    if not topology.roles:
        return entries
    return [_in_role(entry, {topology.roles.get(rank) for rank in entry.ranks}, topology) for entry in entries]


def _in_role(entry: Culprit, roles: set[str | None], topology: Topology) -> Culprit:
    role = next(iter(roles)) if len(roles) == 1 and entry.role is None else entry.role
    known = tuple(topology.instances[rank] for rank in entry.ranks if rank in topology.instances)
    named = entry.role is None and role is not None and len(known) == len(entry.ranks)  # not by a rule of its role
    instances = entry.instances or (known if named else ())
    return msgspec.structs.replace(entry, role=role, instances=instances)
