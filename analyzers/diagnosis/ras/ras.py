"""NCCL's own view (RAS): dead, silent and missing processes, and ranks that launched fewer operations than their peers.

RAS numbers ranks by communicator. Its counts are launches, sampled while the job runs: uneven counts in one poll are
normal, and OK during a hang acquits no rank (NVIDIA/nccl#1730).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from analyzers.diagnosis.ras.reporters import Reporters
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.processes import Owners
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import RasCommunicator, RasPeerDead, RasRank
from collectors.records.identity import short

DEAD = 0.9
UNRESPONSIVE = 0.75
MISSING = 0.6
LAG_ONCE = 0.3
LAG_FROZEN = 0.75
MAX_LAGGARDS_SHARE = 0.25
"""More than this share of a communicator behind: the others are ahead, which is no fault."""


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Find processes that RAS lost, and ranks behind their communicator."""
    del knowledge
    communicators, dead = window.records_of(RasCommunicator), window.records_of(RasPeerDead)
    if not communicators and not dead:
        return
    owners = window.once(Owners.from_records, topology)
    reporters = Reporters(window)
    for one in communicators:
        reporters.listen(one, (rank for rank, *_ in laggards(one)))
    yield from _lost(_newest(communicators), dead, owners, topology, reporters)
    yield from _lagging(communicators, owners, topology, reporters)


def _order(one: RasCommunicator) -> tuple[float, str, int]:
    """Order polls by time, then by their place in the file."""
    path, _, place = one.source.rpartition(":")
    return (one.at or 0.0, path, int(place) if place.isdigit() else 0)


def _polls(communicators: Sequence[RasCommunicator]) -> dict[tuple[str, str], list[RasCommunicator]]:
    """Return the polls of each communicator, oldest first."""
    polls: dict[tuple[str, str], list[RasCommunicator]] = defaultdict(list)
    for one in sorted(communicators, key=_order):
        if one.hash:
            polls[one.hash, one.secondary_hash].append(one)
    return polls


def _newest(communicators: Sequence[RasCommunicator]) -> list[RasCommunicator]:
    return [polls[-1] for _, polls in sorted(_polls(communicators).items())]


def members_of(one: RasCommunicator, owners: Owners, topology: Topology) -> tuple[int, ...] | None:
    """Return the communicator's global ranks in its own order, None where more than one group fits.

    A group fits if it has the size, and wherever a rank's process or host is known it is the member in that place.
    """
    ranks = [rank for rank in one.ranks if 0 <= rank.rank < one.size]
    known = {rank.rank: owners.rank(rank.pid, rank.host) for rank in ranks}
    hosts = {rank.rank: short(rank.host) for rank in ranks if rank.host}
    nodes = {rank: short(node) for rank, node in topology.nodes.items()}
    comparable = set(hosts.values()) <= set(nodes.values())
    candidates = {group.members for group in topology.groups if len(group.members) == one.size}
    if one.size == len(topology.ranks):
        candidates.add(topology.ranks)
    fitting = [
        members
        for members in sorted(candidates)
        if all(rank is None or members[place] == rank for place, rank in known.items())
        and (not comparable or all(nodes.get(members[place]) == host for place, host in hosts.items()))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _lost(
    communicators: Sequence[RasCommunicator], dead: Sequence[RasPeerDead], owners: Owners, topology: Topology,
    reporters: Reporters,
) -> Iterator[Finding]:  # fmt: skip
    """Yield one finding of all processes that RAS lost; a communicator that is mostly missing is a failed collection."""
    found: dict[tuple[int | None, str, int | None], Suspect] = {}
    for one in communicators:
        missing = [rank for rank in one.ranks if rank.missing]
        if len(missing) * 2 > max(one.size, 1):
            continue
        members = members_of(one, owners, topology)
        for rank in missing:
            whose = owners.rank(rank.pid, rank.host)
            if whose is None and members is not None and 0 <= rank.rank < len(members):
                whose = members[rank.rank]
            if reporters.lost(rank.host, rank.pid, whose, mute=rank.unresponsive and not rank.dead):
                _keep(found, _lost_suspect(one, rank, whose), whose, rank.host, rank.pid)
    for event in dead:
        whose = owners.rank(event.pid, event.host)
        if not reporters.lost(event.host, event.pid, whose):
            continue
        text = f"NCCL RAS declared process {event.pid} on {event.host} dead"
        _keep(found, _suspect(DEAD, text, whose, event.host, event.source, event.at), whose, event.host, event.pid)
    suspects = tuple(
        found[key] for key in sorted(found, key=lambda key: (key[0] is None, key[0] or 0, key[1], key[2] or 0))
    )
    if suspects and (len(suspects) * 2 <= len(topology.ranks) or not topology.ranks or len(suspects) == 1):
        yield Finding(
            analyzer="ras",
            family="process",
            symptom="hang",
            cause="machine",
            fault_class="process_gone",
            suspects=suspects,
            together=len(suspects) > 1,
            scope=frozenset(rank for suspect in suspects for rank in suspect.ranks),
            evidence=tuple(item for suspect in suspects for item in suspect.evidence),
        )


def _keep(
    found: dict[tuple[int | None, str, int | None], Suspect],
    new: Suspect | None,
    whose: int | None,
    host: str,
    pid: int | None,
) -> None:
    """Keep the strongest word about each process; a process whose rank another report knows is that rank."""
    if new is None:
        return
    key = (whose, "", None) if whose is not None else (None, host, pid)
    before = found.get(key)
    if before is None or _weight(before) < _weight(new):
        found[key] = new


def _weight(suspect: Suspect) -> tuple[float, str, str]:
    return suspect.strength, suspect.why, suspect.evidence[0].source


def _lost_suspect(one: RasCommunicator, rank: RasRank, whose: int | None) -> Suspect | None:
    strength, word = MISSING, "gives no data"
    if rank.unresponsive:
        strength, word = UNRESPONSIVE, "does not respond"
    if rank.dead:
        strength, word = DEAD, "is considered dead"
    text = f"NCCL RAS: rank {rank.rank} of communicator {one.hash} {word}"
    return _suspect(strength, text, whose, rank.host, one.source, one.at)


def _suspect(strength: float, text: str, whose: int | None, host: str, source: str, at: float | None) -> Suspect | None:
    evidence = (Evidence(text=text, source=source, at=at),)
    if whose is not None:
        return Suspect(kind="rank", strength=strength, why=text, ranks=(whose,), evidence=evidence)
    if host:
        return Suspect(kind="node", strength=strength, why=text, node=host, evidence=evidence)
    return None


def _lagging(
    communicators: Sequence[RasCommunicator], owners: Owners, topology: Topology, reporters: Reporters
) -> Iterator[Finding]:
    """Yield the few ranks behind their communicator: strong only if two polls show the same standstill."""
    for _, polls in sorted(_polls(communicators).items()):
        newest = polls[-1]
        behind = [one for one in laggards(newest) if reporters.behind(one[0])]
        frozen = False
        if len(polls) > 1:
            if _counts(polls[-2]) != _counts(newest):
                continue
            frozen = True
        members = members_of(newest, owners, topology)
        suspects = []
        for rank, operation, count, most in behind:
            text = f"rank {rank.rank} of communicator {newest.hash} launched {count} {operation}, its peers {most}"
            text += ", and nothing moved between two polls" if frozen else ""
            whose = owners.rank(rank.pid, rank.host)
            whose = members[rank.rank] if whose is None and members and 0 <= rank.rank < len(members) else whose
            made = _suspect(LAG_FROZEN if frozen else LAG_ONCE, text, whose, rank.host, newest.source, newest.at)
            if made is not None:
                suspects.append(made)
        if suspects:
            yield Finding(
                analyzer="ras",
                family="waits",
                symptom="hang" if frozen else "unknown",
                cause="machine",
                fault_class="never_entered",
                suspects=tuple(suspects),
                narrows=not frozen,
                scope=frozenset(members or ()),
                missing=() if frozen else ("a second NCCL RAS poll ten seconds later: a standstill would decide",),
                evidence=tuple(item for suspect in suspects for item in suspect.evidence),
            )


def _counts(one: RasCommunicator) -> dict[int, dict[str, int]]:
    return {rank.rank: rank.counts for rank in one.ranks if rank.counts}


def laggards(one: RasCommunicator) -> list[tuple[RasRank, str, int, int]]:
    """Return (rank, operation, its count, the usual count) of ranks behind what most of the communicator launched."""
    found: dict[int, tuple[RasRank, str, int, int]] = {}
    for operation in sorted({name for rank in one.ranks for name in rank.counts}):
        counts = {rank.rank: rank.counts[operation] for rank in one.ranks if operation in rank.counts}
        usual, holders = max(Counter(counts.values()).items(), key=lambda item: (item[1], item[0]))
        behind = [rank for rank in one.ranks if counts.get(rank.rank, usual) < usual]
        if holders * 2 <= len(counts) or len(behind) > max(1.0, len(counts) * MAX_LAGGARDS_SHARE):
            continue
        for rank in behind:
            found.setdefault(rank.rank, (rank, operation, counts[rank.rank], usual))
    return [found[rank] for rank in sorted(found)]
