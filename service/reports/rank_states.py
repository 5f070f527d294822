"""What each rank shows on the map: named, suspected, waiting (in what), seen without a wait, or not seen at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from analyzers.model.topology import Topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from service.reports.hostlists import parse_ranks
from service.reports.waits import Wait, wait_of_rank

MOST_KINDS = 5  # kinds of waits with a shade of their own; the rest share one
LETTERS = "abcdefgh"


@dataclass(frozen=True, slots=True)
class RankState:
    """One kind of rank: its style class, the glyph that stands in a cell, what it means, and who."""

    style: str
    glyph: str
    meaning: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankStates:
    """Every rank in exactly one state, the named first; ``silent`` left no evidence of its own (hatched, whatever else)."""

    ranks: tuple[int, ...]
    states: tuple[RankState, ...]
    of_rank: dict[int, int]
    silent: frozenset[int]
    waits: dict[int, int]  # rank → index of its wait


def rank_states(verdict: Verdict, window: Window, topology: Topology, waits: tuple[Wait, ...]) -> RankStates:
    """Sort all ranks into states: a rank that is named is that, whatever it waits in."""
    ranks = all_ranks(verdict, window, topology)
    held = wait_of_rank(waits)
    silent = frozenset(ranks) - {record.rank for record in window.records if record.rank is not None}
    named = {rank for culprit in verdict.culprits if culprit.kind not in ("group", "stage") for rank in culprit.ranks}
    open_ = {
        rank for one in (verdict.culprits if not verdict.abstained else verdict.suspects[:20]) for rank in one.ranks
    } - named
    kinds = [
        kind
        for kind, _ in Counter(
            _kind(waits[index]) for rank, index in held.items() if rank not in named | open_
        ).most_common()
    ]
    states: list[RankState] = []

    def add(style: str, glyph: str, meaning: str, members: Iterable[int]) -> None:
        wanted = frozenset(members)
        chosen = tuple(rank for rank in ranks if rank in wanted)
        if chosen:
            states.append(RankState(style, glyph, meaning, chosen))

    add("culprit", "!", "named by the verdict", named)
    add("suspect", "?", "suspected; the evidence does not narrow it further", open_)
    taken = named | open_
    for place, kind in enumerate(kinds):
        last = place >= MOST_KINDS
        members = {rank for rank, index in held.items() if rank not in taken and (last or _kind(waits[index]) == kind)}
        add(
            f"wait{min(place, MOST_KINDS)}",
            LETTERS[min(place, MOST_KINDS)],
            "waits in something else" if last else f"waits in {kind}",
            members,
        )
        if last:
            break
    victims = _victims(verdict) - taken - held.keys()
    add("waits", "w", "waits, by the verdict", victims - silent)
    add("silent", "", "no evidence of its own", silent - taken - held.keys())
    add("idle", "", "seen; no unfinished operation recorded", set(ranks) - taken - held.keys() - victims - silent)
    of_rank = {rank: index for index, state in enumerate(states) for rank in state.ranks}
    return RankStates(ranks, tuple(states), of_rank, silent, held)


def all_ranks(verdict: Verdict, window: Window, topology: Topology) -> tuple[int, ...]:
    """Return every known rank, sorted."""
    found = set(topology.ranks)
    found.update(record.rank for record in window.records if record.rank is not None)
    found.update(rank for culprit in verdict.culprits for rank in culprit.ranks)
    return tuple(sorted(found))


def _kind(wait: Wait) -> str:
    verb = wait.operation.partition(" ")[0]
    return verb if wait.dimension == "other" else f"{verb} ({wait.dimension})"


def _victims(verdict: Verdict) -> set[int]:
    try:
        return set(parse_ranks(verdict.victims.ranks))
    except ValueError:
        return set()
