"""The rank map as the page needs it: cells for the drawing without a script, columns for the script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analyzers.model.topology import Topology
from collectors.records.printable import printable
from service.reports import story
from service.reports.rank_map import CELL, RankLayout
from service.reports.rank_states import RankStates
from service.reports.waits import Wait

MOST_CALLOUTS = 12
MOST_LETTERS = 160  # of the sentence that a cell is read out with


def cells(laid_out: RankLayout, states: RankStates, topology: Topology) -> Iterator[dict[str, Any]]:
    """Yield what stands in each cell."""
    for rank in sorted(laid_out.cells):
        x, y = laid_out.cells[rank]
        state = states.states[states.of_rank[rank]]
        yield {"rank": rank, "x": x, "y": y, "state": state, "silent": rank in states.silent,
               "title": f"{topology.label(rank)}: {state.meaning}"}  # fmt: skip


def callouts(laid_out: RankLayout, states: RankStates) -> list[tuple[int, int, int]]:
    """Return (rank, x, y) of the cells that are pointed out: named or suspected."""
    named = [state for state in states.states if state.style in ("culprit", "suspect")]
    ranks = [rank for state in named for rank in state.ranks if rank in laid_out.cells]
    return [(rank, *laid_out.cells[rank]) for rank in ranks[:MOST_CALLOUTS]]


def map_data(laid_out: RankLayout, states: RankStates, topology: Topology, waits: tuple[Wait, ...]) -> dict[str, Any]:
    """Return what the script draws and reads out: columns, because 16,384 objects would be ten times the bytes."""
    ranks = sorted(laid_out.cells)
    used = sorted({states.waits[rank] for rank in ranks if rank in states.waits})
    place = {index: position for position, index in enumerate(used)}
    nodes = {name: index for index, name in enumerate(dict.fromkeys(topology.nodes.values()))}
    dimensions = list(dict.fromkeys(name for rank in ranks[:64] for name in topology.coordinates.get(rank, {})))
    return {
        "width": laid_out.width,
        "height": laid_out.height,
        "cell": CELL,
        "ranks": ranks,
        "x": [laid_out.cells[rank][0] for rank in ranks],
        "y": [laid_out.cells[rank][1] for rank in ranks],
        "state": [states.of_rank[rank] for rank in ranks],
        "silent": [int(rank in states.silent) for rank in ranks],
        "node": [nodes.get(topology.nodes.get(rank, ""), -1) for rank in ranks],
        "nodes": list(nodes),
        "dimensions": dimensions,
        "coordinates": [[topology.coordinates.get(rank, {}).get(name, -1) for rank in ranks] for name in dimensions],
        "wait": [place.get(states.waits.get(rank, -1), -1) for rank in ranks],
        "waits": [printable(_sentence(waits[index]))[:MOST_LETTERS] for index in used],
        "states": [[state.style, state.glyph, state.meaning] for state in states.states],
        "labels": [[label.x, label.y, label.text, int(label.row)] for label in laid_out.labels],
        "callouts": [list(callout) for callout in callouts(laid_out, states)],
        "scale": 1 / laid_out.pixel,
    }


def _sentence(wait: Wait) -> str:
    which = f" {wait.sequence}" if wait.sequence is not None else ""
    who = f", {story.plural_ranks(wait.missing, 3)} missing" if wait.missing else ", none missing"
    return f"{wait.operation}{which} of {wait.group}{who}"
