"""Claims about what lies between ranks: communicators whose collectives are long on all members, and slow paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzers.diagnosis.slow import late_ranks, paths
from analyzers.diagnosis.slow.arrivals import Arrivals, Collectives, TimedProcess
from analyzers.diagnosis.slow.claim import LIKELY, MOST_NAMED, WORTH, finding, percent
from analyzers.diagnosis.slow.grouping import Floats
from analyzers.diagnosis.slow.paths import SlowCell
from analyzers.diagnosis.slow.peer_transfers import PeerTransfers
from analyzers.model.finding import Evidence, Finding, Kind, SlowPathClaim, Suspect

LEAST_SHARE = 1 - 1 / WORTH  # of the time
SPAN_UNKNOWN = (
    "how much of a step it takes: NCCL_INSPECTOR_DUMP_VERBOSE=1 writes when each operation began, and "
    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=1000000 writes as the job runs"
)
WHICH_LINK = (
    "which link of them: transfers between each two (NCCL_INSPECTOR_ENABLE_P2P=1), or a bandwidth test of their nodes"
)


def suspect_process(process: TimedProcess, strength: float, shown: Evidence) -> Suspect:
    """Return a process as a suspect, by its rank or else by its host and process id."""
    ranks, name = ((process.rank,), "") if process.rank >= 0 else ((), process.name)
    return Suspect(
        kind="rank",
        strength=strength,
        why=shown.text,
        ranks=ranks,
        node=process.node or None,
        name=name,
        evidence=(shown,),
    )


def slow_cells(found: Arrivals, between: PeerTransfers) -> list[SlowCell]:
    """Return the slow cells of the matrix; a cell is compared with those of its size within a node, or between nodes."""
    nodes = _nodes(found)
    alike = {
        cell: (between.bytes[cell], nodes[cell[0]] == nodes[cell[1]] if cell[0] in nodes and cell[1] in nodes else None)
        for cell in between.seconds
    }
    return paths.slow_cells(between.seconds, alike)


def _nodes(found: Arrivals) -> dict[int, str]:
    return {index: process.node for index, process in enumerate(found.processes) if process.node}


def slow_fabric(found: Arrivals, bases: list[Floats], long: Mapping[int, float]) -> Iterator[Finding]:
    """Yield that collectives take long on all members: of one communicator, or of those that share a node."""
    worth = {
        index: times for index, times in long.items() if _extra_share(found.communicators[index], times) >= LEAST_SHARE
    }
    if not worth:
        return
    index = max(sorted(worth), key=lambda one: worth[one])
    one = found.communicators[index]
    share = max(_extra_share(found.communicators[each], times) for each, times in worth.items())
    p = late_ranks.split_p(one, bases[index] / worth[index])
    text = (
        f"collectives of {len(one.members)} ranks take {worth[index]:.2f} times as long as those of others like them, "
        f"or as before, on all members alike: {percent(1 / (1 - share))} of the time"
        + ("" if np.isnan(p) else f"; P = {max(p, 0.0):.2f}")
    )
    shown = Evidence(text=text, source=one.sources[0])
    measured = sum(1 for other in found.communicators if other.whole)
    common = _common(found, list(worth))
    if len(worth) > max(1, measured // 4) and not common:
        yield finding(
            "slow_together", "slow", "unknown", evidence=(shown,), missing=(WHICH_LINK,), costs=1 / (1 - share)
        )
        return
    common = common or list(one.members)
    suspects = tuple(suspect_process(found.processes[who], LIKELY / len(common), shown) for who in common)
    yield finding(
        "slow_fabric", "slow", "network", *suspects, evidence=(shown,), missing=(WHICH_LINK,), costs=1 / (1 - share)
    )


def _extra_share(one: Collectives, times: float) -> float:
    """Return which part of the time the operations take more than they would."""
    total = float(np.nanmin(one.seconds, axis=0).sum()) * one.scale
    share = total * (1 - 1 / times) / one.span
    return min(share, 0.999) if np.isfinite(share) else 0.0


def _common(found: Arrivals, slow: list[int]) -> list[int]:
    """Return the members on the only node that all slow communicators have in common, none where there is no such node."""
    every = [{found.processes[who].node for who in found.communicators[index].members} - {""} for index in slow]
    shared = set.intersection(*every) if every else set()
    if len(shared) != 1 or len(slow) < 2:
        return []
    node = next(iter(shared))
    touched = Counter(who for index in slow for who in found.communicators[index].members)
    return [who for who in sorted(touched) if found.processes[who].node == node]


def slow_paths(found: Arrivals, between: PeerTransfers, slow: Sequence[SlowCell]) -> Iterator[Finding]:
    """Yield the paths on which transfers take longer than on others like them, and what they share."""
    if not slow:
        return
    listed = tuple(
        SlowPathClaim(source=found.processes[one.source].name, target=found.processes[one.target].name, times=one.times)
        for one in slow
    )
    shared = paths.patterns(slow, sorted(between.seconds), _nodes(found))
    suspects = tuple(_of_pattern(found, one, between) for one in shared)
    first = suspects[0].evidence
    share = between.extra_share(slow)
    if np.isnan(share):
        yield finding("slow_unmeasured", "unknown", "unknown", evidence=first, paths=listed, missing=(SPAN_UNKNOWN,))
        return
    if share < LEAST_SHARE:
        yield finding("even_pace", "healthy", "none", evidence=first, paths=listed)
        return
    many = len(slow) > len(between.seconds) // 4 and len(shared) > 1
    yield finding(
        "slow_path", "slow", "network", *(() if many else suspects[:MOST_NAMED]), together=True, paths=listed,
        evidence=first, missing=(WHICH_LINK,) if many else (), costs=1 / (1 - share),
    )  # fmt: skip


def _of_pattern(found: Arrivals, one: paths.PathPattern, between: PeerTransfers) -> Suspect:
    names = [found.processes[end].name for end in one.ends]
    times = min(path.times for path in one.paths)
    sides = [[path.source for path in one.paths], [path.target for path in one.paths]]
    where = {
        paths.SENDER: f"every transfer that {' or '.join(names[:MOST_NAMED])} sends",
        paths.RECEIVER: f"every transfer to {' or '.join(names[:MOST_NAMED])}",
        paths.CELL: f"a transfer from {_side(found, sides[0])} to {_side(found, sides[1])}",
        paths.BLOCK: f"every transfer between the nodes of {len(names)} ranks",
    }[one.kind]
    text = f"{where} takes {times:.1f} times as long as others of the same size"
    ranks = tuple(sorted(found.processes[end].rank for end in one.ends if found.processes[end].rank >= 0))
    shown = Evidence(text=text, source=between.sources.get(one.ends[0], ""), rank=ranks[0] if ranks else None)
    name = " → ".join(_side(found, side) for side in sides) if one.kind == paths.CELL else ""
    node = one.node if one.kind in (paths.SENDER, paths.RECEIVER) else None
    kinds: dict[str, Kind] = {paths.CELL: "link", paths.BLOCK: "switch"}
    kind = kinds.get(one.kind, "node" if len(ranks) != 1 and node else "rank")
    return Suspect(kind=kind, strength=LIKELY, why=text, ranks=ranks, node=node or None, name=name, evidence=(shown,))


def _side(found: Arrivals, ends: Sequence[int]) -> str:
    """Return one side of a path: its rank, or the node of several."""
    several = sorted({found.processes[end] for end in ends})
    return several[0].name if len(several) == 1 else several[0].node
