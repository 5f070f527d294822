"""What the window shows of one rank beyond the findings: its stacks, its process, and whether its node still reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from analyzers.model.finding import Finding
from analyzers.model.frames import FrameRules, normal
from analyzers.model.processes import rows_by_rank
from analyzers.model.standings import WAITING, Observation, histories
from analyzers.model.topology import Topology
from analyzers.model.window import WILD_SECONDS, Window, placed, silent_nodes
from collectors.records import Placement, ProcessState

HELPER_SECONDS = 60.0  # a child's state that is older than this is out of date
END_SECONDS = 5.0  # deaths within this are one event: their order shows no cause
MOST_PEERS = 64
_DEAD = frozenset({"X", "Z"})


@dataclass
class Witness:
    """Answers about single ranks of a window. What an answer takes is computed when it is first asked for."""

    window: Window
    topology: Topology
    rules: FrameRules
    findings: Sequence[Finding] = field(default=())

    def observations(self, rank: int) -> tuple[Observation, ...]:
        """Return the stacks of a rank's training process, oldest first."""
        return self._histories(rank)

    def rows(self, rank: int) -> Sequence[ProcessState]:
        """Return the states of a rank's newest process, oldest first, without its end if it ended together with others."""
        found = self._rows.get(rank, [])
        alive = rank in self._ends and not self.ended_alone(rank)
        return [row for row in found if row.pid == found[-1].pid and not (alive and row.state in _DEAD)]

    def ended_alone(self, rank: int) -> bool:
        """Whether a rank's process ended, and no other ended before it or soon after."""
        if rank not in self._ends:
            return False
        at = self._ends[rank].at or 0.0
        return not any((row.at or 0.0) < at + END_SECONDS for other, row in self._ends.items() if other != rank)

    def helpers(self, rank: int) -> list[ProcessState]:
        """Return the newest state of each living process that the rank has started."""
        newest = {row.pid: row for row in self._helpers.get(rank, ())}
        since = self.until - HELPER_SECONDS
        return [row for row in newest.values() if row.state not in _DEAD and (row.at or 0.0) >= since]

    def stopped(self, rank: int) -> bool:
        """Whether a rank's process is stopped or has ended: then it is not busy, whatever its stack shows."""
        rows = self.rows(rank)
        return bool(rows) and rows[-1].state in {"T", *_DEAD}

    def absent(self, rank: int) -> bool:
        """Whether no record shows a process of this rank."""
        return rank not in self._rows

    def left(self, rank: int) -> str:
        """Say how a rank has left the training in good order; empty where it has not."""
        end, observed = self._ends.get(rank), self.observations(rank)
        if end is not None and end.exit_code == 0 and not end.signal:
            return "its process ended with exit code 0" if (end.at or 0.0) <= self._first_bad_end else ""
        return "its process is shutting down" if observed and observed[-1].duty.name == "exiting" else ""

    @property
    def failed(self) -> bool:
        """Whether a rank's process was seen to end with a failure."""
        return any(row.exit_code or row.signal for row in self._ends.values())

    def silent_since(self, rank: int) -> float | None:
        """Return when a rank's node last reported, if that is long before the others did; else None."""
        return self._silent.get(self.topology.nodes.get(rank, ""))

    def peers_frames(self, ranks: Iterable[int]) -> frozenset[str]:
        """Return all functions on the stacks of the other ranks that wait in communication."""
        # Without native frames a wait for the device looks like the training loop's own line: then all others count.
        return _functions(self._waiting(ranks) or self._newest(ranks))

    def waiting_frames(self, ranks: Iterable[int]) -> frozenset[str]:
        """Return all functions on the stacks of the other ranks that surely wait in communication."""
        return _functions(self._waiting(ranks))

    def _waiting(self, left_out: Iterable[int]) -> list[Observation]:
        return [one for one in self._newest(left_out) if one.duty.name in WAITING]

    def _newest(self, left_out: Iterable[int]) -> list[Observation]:
        out = frozenset(left_out)
        others = (self.observations(rank) for rank in self.topology.ranks if rank not in out)
        return [observed[-1] for observed in others if observed]

    @cached_property
    def onset(self) -> float | None:
        """Return when the hang began, by the findings."""
        return min(
            (one.onset for one in self.findings if one.symptom == "hang" and one.onset is not None), default=None
        )

    @cached_property
    def until(self) -> float:
        """Return the newest instant that a node reported, wild clocks left out."""
        instants = sorted(one.at for one in self.window.records if one.at is not None and one.node is not None)
        middle = instants[len(instants) // 2] if instants else 0.0
        return max((at for at in instants if at <= middle + WILD_SECONDS), default=0.0)

    @cached_property
    def age(self) -> float | None:
        """Return for how many seconds the job has hung, since the incident opened at least; None where no record shows it."""
        begun = self.onset if self.onset is not None else self.window.since
        return self.until - begun if begun is not None and self.until >= begun else None

    @cached_property
    def placed(self) -> dict[int, set[str]]:
        """Return the nodes that report each rank as theirs."""
        return placed(self.window.records_of(Placement), self._silent)

    @cached_property
    def _silent(self) -> dict[str, float]:
        return silent_nodes(self.window.records)

    @cached_property
    def _histories(self) -> Callable[[int], tuple[Observation, ...]]:
        return histories(self.window, self.topology, self.rules)

    @cached_property
    def _rows(self) -> dict[int, list[ProcessState]]:
        return self.window.once(rows_by_rank, self.topology)

    @cached_property
    def _ends(self) -> dict[int, ProcessState]:
        return {rank: rows[-1] for rank, rows in self._rows.items() if rows[-1].state in _DEAD}

    @cached_property
    def _first_bad_end(self) -> float:
        bad = (row.at or 0.0 for row in self._ends.values() if row.exit_code != 0 or row.signal)
        return min(bad, default=float("inf"))

    @cached_property
    def _helpers(self) -> dict[int, list[ProcessState]]:
        found: dict[int, list[ProcessState]] = defaultdict(list)
        for row in self.window.records_of(ProcessState):
            if row.rank is not None and row.parent_pid is not None:
                found[row.rank].append(row)
        return found


def _functions(stacks: Iterable[Observation]) -> frozenset[str]:
    return frozenset(normal(frame) for one in islice(stacks, MOST_PEERS) for frame in one.frames)
