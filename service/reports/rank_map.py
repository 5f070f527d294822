"""Where each rank stands on the map, in the layout in which a sick node and its pipeline victims come apart at a glance.

Rows are pipeline stages, columns data-parallel replicas, blocks tensor-parallel groups. Without such coordinates: a block a
node, its ranks inside. A map wider than it is pleasant to look at is cut into bands. Lengths are in map units: a cell is 10.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

from analyzers.model.topology import Topology

CELL, BLOCK_GAP = 10, 4
WIDTH_TO_HEIGHT = 2.2
PAGE_PIXELS, MOST_SCALE = 1100, 4.4  # how wide the page shows a map, and how large the cells of a small one may get
MOST_LABELS, MOST_LETTERS = 400, 24


@dataclass(frozen=True, slots=True)
class Label:
    """A word on the map's margin; ``row``: it names a row (right-aligned before it), otherwise what is below it."""

    x: int
    y: int
    text: str
    row: bool


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Top left corners of the cells, by rank, and the size of the whole."""

    title: str
    cells: Mapping[int, tuple[int, int]]
    labels: tuple[Label, ...]
    width: int
    height: int
    pixel: float  # one screen pixel in map units, at the size the map is meant for


@dataclass(frozen=True, slots=True)
class _Plan:
    """Rank → (row, column, place in the block), and how rows, columns and the map are called."""

    places: Mapping[int, tuple[int, int, int]]
    title: str
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]


def rank_map(topology: Topology, ranks: tuple[int, ...]) -> RankLayout:
    """Lay out these ranks by their parallel coordinates, else by node, else in rank order."""
    plan = _by_coordinates(topology, ranks) or _by_node(topology, ranks) or _in_order(ranks)
    return _drawn(plan)


def _by_coordinates(topology: Topology, ranks: tuple[int, ...]) -> _Plan | None:
    known = [topology.coordinates.get(rank, {}) for rank in ranks]
    if not ranks or not all("pp" in place or "tp" in place for place in known):
        return None
    inner = sorted({name for place in known for name in place} & {"tp", "cp"})
    outer = sorted({name for place in known for name in place} & {"dp"})
    blocks: dict[tuple[int, int], list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for rank, place in zip(ranks, known, strict=True):
        blocks[place.get("pp", 0), place.get("dp", 0)].append((tuple(place.get(name, 0) for name in inner), rank))
    # A dimension may be known only for some ranks, or twice under two names: the order inside a block is what is shown.
    places = {
        rank: (row, column, inside)
        for (row, column), block in blocks.items()
        for inside, (_, rank) in enumerate(sorted(block))
    }
    stages = max(row for row, _, _ in places.values()) + 1
    title = ", ".join(
        [f"rows: {stages} pipeline stages" if stages > 1 else "one pipeline stage"]
        + (["columns: data-parallel replicas"] if outer else [])
        + ([f"blocks: {'tensor-parallel' if 'tp' in inner else 'context-parallel'} groups"] if inner else [])
    )
    columns = tuple(f"dp{column}" for column in range(max(at for _, at, _ in places.values()) + 1)) if outer else ()
    return _Plan(places, title, tuple(f"pp{row}" for row in range(stages)), columns)


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
    return _Plan(places, "a block is a node, its ranks inside", ("",), tuple(nodes))


def _in_order(ranks: tuple[int, ...]) -> _Plan:
    return _Plan(
        {rank: (0, place, 0) for place, rank in enumerate(ranks)}, "in rank order; no parallel groups known", ("",), ()
    )


def _drawn(plan: _Plan) -> RankLayout:
    rows, columns, inside = (max((place[axis] for place in plan.places.values()), default=0) + 1 for axis in range(3))
    wide = _block_width(inside)
    gap = BLOCK_GAP if inside > 1 else 2
    step_x, step_y = wide * CELL + gap, ceil(inside / wide) * CELL + gap
    a_band = ceil(columns / _bands(columns * step_x, rows * step_y))
    pixel = max(1 / MOST_SCALE, a_band * step_x / PAGE_PIXELS)  # in map units, so that words keep their size on screen
    grid = _Grid(
        rows,
        columns,
        a_band,
        step_x,
        step_y,
        pixel,
        round(44 * pixel) if plan.row_names != ("",) else 2,
        round(20 * pixel),
    )
    cells = {}
    for rank, (row, column, place) in plan.places.items():
        band, at = divmod(column, a_band)
        cells[rank] = (
            grid.left + at * step_x + place % wide * CELL,
            grid.top(band) + row * step_y + place // wide * CELL,
        )
    width = grid.left + a_band * step_x
    return RankLayout(
        plan.title, cells, tuple(_labels(plan, grid)), width, grid.top(ceil(columns / a_band)) - grid.head + 2, pixel
    )


@dataclass(frozen=True, slots=True)
class _Grid:
    """The lattice of blocks: how many rows and columns, how many columns a band, and the room for words."""

    rows: int
    columns: int
    a_band: int
    step_x: int
    step_y: int
    pixel: float
    left: int
    head: int

    def top(self, band: int) -> int:
        """Return where a band's first row begins, below its column names."""
        return self.head + band * (self.rows * self.step_y + self.head)


def _block_width(inside: int) -> int:
    """Return how many cells wide a block is: a divisor that makes it a little wider than high."""
    return next(
        wide for wide in range(ceil(sqrt(inside)), inside + 1) if inside % wide == 0 or wide * wide >= 4 * inside
    )


def _bands(width: int, height: int) -> int:
    return max(1, round(sqrt(width / (WIDTH_TO_HEIGHT * (height + CELL)))))


def _labels(plan: _Plan, grid: _Grid) -> list[Label]:
    labels = []
    room = 8 + 7 * max((min(len(name), MOST_LETTERS) for name in plan.column_names), default=0)
    each_row, each_column = (
        max(1, ceil(pixels * grid.pixel / step)) for pixels, step in ((12, grid.step_y), (room, grid.step_x))
    )
    for band, start in enumerate(range(0, grid.columns, grid.a_band)):
        top = grid.top(band)
        for row in range(0, grid.rows, each_row) if plan.row_names != ("",) else ():
            middle = top + row * grid.step_y + grid.step_y / 2 + 2 * grid.pixel
            labels.append(Label(grid.left - round(9 * grid.pixel), round(middle), plan.row_names[row], True))
        named = range(0, min(grid.a_band, grid.columns - start), each_column) if plan.column_names else ()
        above = top - round(5 * grid.pixel)
        labels += [
            Label(grid.left + at * grid.step_x, above, plan.column_names[start + at][:MOST_LETTERS], False)
            for at in named
        ]
    return labels[:MOST_LABELS]
