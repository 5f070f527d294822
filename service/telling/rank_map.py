"""Where each rank stands on the map, in the layout in which a sick node and its pipeline victims come apart at a glance.

Rows are pipeline stages, columns data-parallel replicas, blocks tensor-parallel groups. Without such coordinates: a block a
node, its ranks inside. A map wider than it is pleasant to look at is cut into bands. Lengths are in map units: a cell is 10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from analyzers.topology import Topology

CELL, BLOCK_GAP, BAND_GAP, LABELS = 10, 4, 16, 34  # LABELS: room left of a row for its name
WIDTH_TO_HEIGHT = 2.6
MOST_LABELS = 160


@dataclass(frozen=True, slots=True)
class Label:
    """A word on the map's margin; ``row``: it names a row (right-aligned before it), otherwise what is below it."""

    x: int
    y: int
    text: str
    row: bool


@dataclass(frozen=True, slots=True)
class RankMap:
    """Top left corners of the cells, by rank, and the size of the whole."""

    title: str
    cells: Mapping[int, tuple[int, int]]
    labels: tuple[Label, ...]
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """Rank → (row, column, place in the block), and how rows, columns and the map are called."""

    places: Mapping[int, tuple[int, int, int]]
    title: str
    row_names: tuple[str, ...]
    column_name: str


def rank_map(topology: Topology, ranks: tuple[int, ...]) -> RankMap:
    """Lay out these ranks by their parallel coordinates, else by node, else in rank order."""
    plan = _by_coordinates(topology, ranks) or _by_node(topology, ranks) or _in_order(ranks)
    return _drawn(plan)


def _by_coordinates(topology: Topology, ranks: tuple[int, ...]) -> _Plan | None:
    known = [topology.coordinates.get(rank, {}) for rank in ranks]
    if not ranks or not all("pp" in place or "tp" in place for place in known):
        return None
    inner = sorted({name for place in known for name in place} & {"tp", "cp"})
    outer = sorted({name for place in known for name in place} & {"dp"})
    sizes = {name: max(place.get(name, 0) for place in known) + 1 for name in inner}
    places = {}
    for rank, place in zip(ranks, known, strict=True):
        inside = 0
        for name in inner:
            inside = inside * sizes[name] + place.get(name, 0)
        places[rank] = (place.get("pp", 0), place.get("dp", 0), inside)
    if len(set(places.values())) < len(ranks):
        return None
    stages = max(row for row, _, _ in places.values()) + 1
    title = ", ".join(
        [f"rows: {stages} pipeline stages" if stages > 1 else "one pipeline stage"]
        + (["columns: data-parallel replicas"] if outer else [])
        + ([f"blocks: {'tensor-parallel' if 'tp' in inner else 'context-parallel'} groups"] if inner else [])
    )
    return _Plan(places, title, tuple(f"pp{row}" for row in range(stages)), "dp" if outer else "")


def _by_node(topology: Topology, ranks: tuple[int, ...]) -> _Plan | None:
    if not ranks or not topology.nodes:
        return None
    nodes = {name: index for index, name in enumerate(dict.fromkeys(topology.nodes.get(rank, "?") for rank in ranks))}
    taken: Counter[int] = Counter()
    places = {}
    for rank in ranks:
        node = nodes[topology.nodes.get(rank, "?")]
        places[rank] = (0, node, taken[node])
        taken[node] += 1
    return _Plan(places, "a block is a node, its ranks inside", ("",), "node")


def _in_order(ranks: tuple[int, ...]) -> _Plan:
    return _Plan({rank: (0, place, 0) for place, rank in enumerate(ranks)}, "in rank order; no parallel groups known", ("",), "")


def _drawn(plan: _Plan) -> RankMap:
    rows, columns, inside = (max((place[axis] for place in plan.places.values()), default=0) + 1 for axis in range(3))
    wide = _block_width(inside)
    gap = BLOCK_GAP if inside > 1 else 2
    step_x, step_y = wide * CELL + gap, ceil(inside / wide) * CELL + gap
    bands = _bands(columns * step_x, rows * step_y)
    a_band = ceil(columns / bands)
    left = LABELS if plan.row_names != ("",) else 2
    band_height = rows * step_y + BAND_GAP
    cells = {}
    for rank, (row, column, place) in plan.places.items():
        band, at = divmod(column, a_band)
        x = left + at * step_x + place % wide * CELL
        cells[rank] = (x, BAND_GAP + band * band_height + row * step_y + place // wide * CELL)
    labels = _labels(plan, rows, columns, a_band, (left, step_x, step_y, band_height))
    return RankMap(plan.title, cells, labels, left + a_band * step_x, BAND_GAP // 2 + ceil(columns / a_band) * band_height)


def _block_width(inside: int) -> int:
    """Return how many cells wide a block is: a divisor that makes it a little wider than high."""
    return next(wide for wide in range(ceil(sqrt(inside)), inside + 1) if inside % wide == 0 or wide * wide >= 4 * inside)


def _bands(width: int, height: int) -> int:
    return max(1, round(sqrt(width / (WIDTH_TO_HEIGHT * (height + BAND_GAP)))))


def _labels(plan: _Plan, rows: int, columns: int, a_band: int, lengths: tuple[int, int, int, int]) -> tuple[Label, ...]:
    left, step_x, step_y, band_height = lengths
    labels = []
    every = max(1, ceil(a_band / max(1, (a_band * step_x) // 60)))
    for start in range(0, columns, a_band):
        top = BAND_GAP + start // a_band * band_height
        if plan.row_names != ("",):
            labels += [Label(left - 4, top + row * step_y + step_y // 2 + 2, name, True) for row, name in enumerate(plan.row_names)]
        if plan.column_name:
            labels += [
                Label(left + at * step_x, top - 4, f"{plan.column_name}{start + at}" if plan.column_name == "dp" else f"#{start + at}", False)
                for at in range(0, min(a_band, columns - start), every)
            ]
    return tuple(labels[:MOST_LABELS]) if rows * (columns // a_band + 1) < MOST_LABELS * 4 else ()
