"""What reports of stragglers add to a slowdown: whom rank 0's log names, and whether the node that is named shows it, too.

They are the word of one node. It may accuse its own ranks; a rank of another node is named only where what that node's agent
reads agrees: one of its readings, or its stack in look after look. Otherwise a node could have any other one tested.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.model.finding import Evidence, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.slow_look import Apart, ReportedRanks, StragglerLook


def shown(reported: StragglerLook | None) -> tuple[Evidence, ...]:
    """Return what the reports say."""
    return () if reported is None else tuple(Evidence(text=text) for text in reported.shown)


def contradicts(reported: StragglerLook | None, apart: Apart) -> bool:
    """Whether they name others than the one whose own readings changed."""
    if reported is None or not reported.named:
        return False
    return not any(set(one.ranks) & set(apart.ranks) or one.node == apart.node for one in reported.named)


def confirmed(reported: StragglerLook | None, hints: Iterable[Evidence]) -> tuple[Suspect, ...]:
    """Return whom they name, where their own node shows it of each of them; nothing where one is hearsay."""
    if reported is None or not reported.named:
        return ()
    seen = {one.rank: one for one in hints if one.rank is not None}
    found = [_suspect(one, [seen[rank] for rank in one.ranks if rank in seen]) for one in reported.named]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _suspect(one: ReportedRanks, seen: list[Evidence]) -> Suspect | None:
    if not one.own and not seen:
        return None
    why = "; ".join([one.why, *(each.text for each in seen)])
    evidence = (Evidence(text=one.why, rank=one.ranks[0]), *seen)
    return Suspect(
        kind="rank" if len(one.ranks) == 1 else "group", strength=one.strength, why=why, ranks=one.ranks, node=one.node,
        evidence=evidence,
    )  # fmt: skip


def unconfirmed(reported: StragglerLook) -> tuple[str, ...]:
    """Return what is missing before a rank is named."""
    if not reported.named:
        return reported.missing
    ranks = ranges(sorted({rank for one in reported.named for rank in one.ranks}))
    nodes = ", ".join(sorted({one.node for one in reported.named if one.node})) or "their node"
    alone = f"whether ranks {ranks} are slow: rank 0's log alone names them, and nothing that their own agent reads shows it"
    return (f"{alone}; a test of {nodes}, or the probe in each rank (docs/probe.md), would",)
