"""Which nodes report a process: what one node alone reports of a process on another accuses no process.

A program that listens on RAS's port of one node answers for that node's agent. So a process is accused by its own node's
report or by those of two nodes, and an agent that still sees the process alive refutes it. A node is not dead whose agent was
heard after it was first called dead, or within the last 15 s: agents report every ten. Files have no senders: they stay as
they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from analyzers.model.window import Window
from collectors.records import ProcessState, RasCommunicator, RasPeerDead, RasRank
from collectors.records.identity import short

ENDED = frozenset("XZ")
HEARD_SECONDS = 15.0
Process = tuple[str, int | None]  # host and pid


class Reporters:
    """The reports of a window by who sent them."""

    def __init__(self, window: Window) -> None:
        self._lost: dict[Process, set[str | None]] = defaultdict(set)
        self._behind: dict[Process, set[str | None]] = defaultdict(set)
        self._alive, self._heard_at = _alive(window), _heard_at(window)
        self._now = max(self._heard_at.values(), default=0.0)
        self._called_dead_at: dict[str, float] = {}
        for event in window.records_of(RasPeerDead):
            self._lost[short(event.host), event.pid].add(_sender(event))
            self._call_dead(event.host, event)

    def listen(self, report: RasCommunicator, behind: Iterable[RasRank]) -> None:
        """Take up one report of a communicator, and which ranks it shows behind."""
        for rank in report.ranks:
            if rank.missing:
                self._lost[short(rank.host), rank.pid].add(_sender(report))
                self._call_dead(rank.host, report)
        for rank in behind:
            self._behind[short(rank.host), rank.pid].add(_sender(report))

    def lost(self, host: str, pid: int | None, rank: int | None, *, mute: bool = False) -> bool:
        """Whether it is known that a process is lost, or, where it is only ``mute``, does not respond.

        ``rank``: whose it is. A process of no known rank stands for its node.
        """
        process = (short(host), pid)
        alive = process in self._alive or (pid is None and self._runs_one(process[0]))
        alive = alive or (rank is None and self._is_up(process[0]))
        return _known(host, self._lost[process]) and (mute or not alive)

    def behind(self, rank: RasRank) -> bool:
        """Whether it is known that a process launched less than its peers."""
        return _known(rank.host, self._behind[short(rank.host), rank.pid])

    def _call_dead(self, host: str, report: RasCommunicator | RasPeerDead) -> None:
        at = report.received_at if report.at is None else report.at
        if at is not None:
            self._called_dead_at[short(host)] = min(at, self._called_dead_at.get(short(host), at))

    def _runs_one(self, host: str) -> bool:
        return any(node == host for node, _ in self._alive)

    def _is_up(self, host: str) -> bool:
        """Whether a node's own agent shows that the node is up."""
        heard_at = self._heard_at.get(host)
        if heard_at is None:
            return False
        lately = self._now - heard_at <= HEARD_SECONDS
        return lately or heard_at > self._called_dead_at.get(host, heard_at) or self._runs_one(host)


def _heard_at(window: Window) -> dict[str, float]:
    """Return when each node's agent was last heard, by the receipt of what it sent."""
    found: dict[str, float] = {}
    for record in window.records:
        if record.received_at is not None and record.node is not None:
            found[short(record.node)] = max(record.received_at, found.get(short(record.node), 0.0))
    return found


def _known(host: str, reporters: set[str | None]) -> bool:
    return None in reporters or short(host) in reporters or len(reporters) > 1


def _sender(report: RasCommunicator | RasPeerDead) -> str | None:
    return None if report.received_at is None else short(report.node or "")


def _alive(window: Window) -> frozenset[Process]:
    """Return the processes that their own agents saw alive at last."""
    newest = {
        (short(row.node or ""), row.pid): row.state
        for row in sorted(window.records_of(ProcessState), key=lambda one: one.at or 0.0)
        if row.received_at is not None
    }
    return frozenset(process for process, state in newest.items() if state not in ENDED)
