"""What is known of one rank beyond the claims about it: how it stood at each look, its process, whether its node speaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from analyzers.finding import Finding
from analyzers.frames import Rules, normal
from analyzers.process import Owners, ranked_rows
from analyzers.standings import WAITING, Look, histories
from analyzers.topology import Topology
from analyzers.window import WILD_SECONDS, Window, silent_nodes
from collectors.records import ProcessState

HELPER_SECONDS = 60.0  # a child's state that is older than this is not of now
MOST_PEERS = 64


@dataclass
class Witness:
    """The window, asked about single ranks. What it takes to answer is made when it is first asked for."""

    window: Window
    topology: Topology
    rules: Rules
    findings: Sequence[Finding] = field(default=())

    def looks(self, rank: int) -> tuple[Look, ...]:
        """Return the looks at a rank's training process, oldest first."""
        return self._histories(rank)

    def rows(self, rank: int) -> Sequence[ProcessState]:
        """Return the states of a rank's newest process, oldest first."""
        rows = self._rows.get(rank, [])
        return [row for row in rows if row.pid == rows[-1].pid]

    def helpers(self, rank: int) -> list[ProcessState]:
        """Return the newest state of each process that the rank has started and that lives."""
        newest = {row.pid: row for row in self._helpers.get(rank, ())}
        since = self.until - HELPER_SECONDS
        return [row for row in newest.values() if row.state not in {"X", "Z"} and (row.at or 0.0) >= since]

    def stopped(self, rank: int) -> bool:
        """Whether a rank's process is stopped or has ended: then it is not busy, whatever its stack shows."""
        rows = self.rows(rank)
        return bool(rows) and rows[-1].state in {"T", "X", "Z"}

    def left(self, rank: int) -> str:
        """Say how a rank has left the training by itself; empty where it has not, or not by itself."""
        rows, looks = self.rows(rank), self.looks(rank)
        if rows and rows[-1].state in {"X", "Z"}:
            return "its process ended with exit code 0" if rows[-1].exit_code == 0 and not rows[-1].signal else ""
        return "its process is shutting down" if looks and looks[-1].duty.name == "exiting" else ""

    def silent_since(self, rank: int) -> float | None:
        """Return when a rank's node was last heard of, if that is long before the others were; else None."""
        return self._silent.get(self.topology.nodes.get(rank, ""))

    def peers_frames(self, ranks: Iterable[int]) -> frozenset[str]:
        """Return all functions on the stacks of ranks that wait in communication, these left out."""
        left_out = frozenset(ranks)
        others = (self.looks(rank) for rank in self.topology.ranks if rank not in left_out)
        waiting = (looks[-1] for looks in others if looks and looks[-1].duty.name in WAITING)
        return frozenset(normal(frame) for look in islice(waiting, MOST_PEERS) for frame in look.frames)

    @cached_property
    def onset(self) -> float | None:
        """Return when the hang began, as the waits tell."""
        return min(
            (one.onset for one in self.findings if one.symptom == "hang" and one.onset is not None), default=None
        )

    @cached_property
    def until(self) -> float:
        """Return the newest instant that a node told of, but for wild clocks."""
        told = sorted(record.at for record in self.window.records if record.at is not None and record.node is not None)
        return max((at for at in told if at <= told[len(told) // 2] + WILD_SECONDS), default=0.0)

    @cached_property
    def _silent(self) -> dict[str, float]:
        return silent_nodes(self.window.records)

    @cached_property
    def _histories(self) -> Callable[[int], tuple[Look, ...]]:
        return histories(self.window, self.topology, self.rules)

    @cached_property
    def _rows(self) -> dict[int, list[ProcessState]]:
        return ranked_rows(self.window.of(ProcessState), Owners.of(self.window, self.topology), self.topology)

    @cached_property
    def _helpers(self) -> dict[int, list[ProcessState]]:
        found: dict[int, list[ProcessState]] = defaultdict(list)
        for row in self.window.of(ProcessState):
            if row.rank is not None and row.parent_pid is not None:
                found[row.rank].append(row)
        return found
