"""Which nodes report a process: what one node alone reports of a process on another accuses no process.

A program that listens on RAS's port of one node answers for that node's agent. So a process is accused by its own node's
report or by those of two nodes, and an agent that still sees the process alive refutes it. Files have no senders: they stay
as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from analyzers.model.processes import short
from analyzers.model.window import Window
from collectors.records import ProcessState, RasCommunicator, RasPeerDead, RasRank

ENDED = frozenset("XZ")
Process = tuple[str, int | None]  # host and pid


class Tellers:
    """The reports of a window by who sent them."""

    def __init__(self, window: Window) -> None:
        self._lost: dict[Process, set[str | None]] = defaultdict(set)
        self._behind: dict[Process, set[str | None]] = defaultdict(set)
        self._alive = _alive(window)
        for event in window.records_of(RasPeerDead):
            self._lost[short(event.host), event.pid].add(_sender(event))

    def listen(self, report: RasCommunicator, behind: Iterable[RasRank]) -> None:
        """Take up one report of a communicator, and which ranks it shows behind."""
        for rank in report.ranks:
            if rank.missing:
                self._lost[short(rank.host), rank.pid].add(_sender(report))
        for rank in behind:
            self._behind[short(rank.host), rank.pid].add(_sender(report))

    def lost(self, host: str, pid: int | None, *, mute: bool = False) -> bool:
        """Whether it is known that a process is lost, or, where it is only ``mute``, does not respond."""
        process = (short(host), pid)
        alive = process in self._alive or (pid is None and any(node == process[0] for node, _ in self._alive))
        return _known(host, self._lost[process]) and (mute or not alive)

    def behind(self, rank: RasRank) -> bool:
        """Whether it is known that a process launched less than its peers."""
        return _known(rank.host, self._behind[short(rank.host), rank.pid])


def _known(host: str, tellers: set[str | None]) -> bool:
    return None in tellers or short(host) in tellers or len(tellers) > 1


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
