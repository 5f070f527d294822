"""Where the instances of roles run, by their agents' word."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from analyzers.model.processes import short
from collectors.records import DIRECTORY, Placement, Record, RoleState
from collectors.records.identity import places


def on_their_nodes(records: Sequence[Record]) -> list[Record]:
    """Return the records; a directory's reading of a role is of a node only where an agent has placed its process there.

    A process says itself on which node it runs, and any holder of the job's token can say that of any node.
    """
    if not any(isinstance(one, RoleState) and one.source == DIRECTORY for one in records):
        return list(records)
    by_pid, by_seat = dict[tuple[str, int], str](), dict[tuple[str, int], set[str]]()
    for one in records:
        if isinstance(one, Placement):
            for place, role, rank in places(one):
                node = one.nodes[place] if place < len(one.nodes) else ""
                by_seat.setdefault((role, rank), set()).add(node)
                if place < len(one.pids):
                    by_pid[_plain(node), one.pids[place]] = node

    def node_of(one: RoleState) -> str | None:
        own = by_pid.get((_plain(one.node or ""), one.pid or 0))
        seat = by_seat.get((one.role or "", int(one.instance))) if one.instance.isdecimal() else None
        return own or (next(iter(seat)) if seat is not None and len(seat) == 1 else None)

    return [
        replace(one, node=node_of(one)) if isinstance(one, RoleState) and one.source == DIRECTORY else one
        for one in records
    ]


def _plain(node: str) -> str:
    return short(node).lower()
