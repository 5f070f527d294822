"""The sentences of findings about waits: they name ranks, groups, operations and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.diagnosis.hang.desync import Disagreement
from analyzers.diagnosis.hang.waits import HangSituation, Operation, Waits
from analyzers.model.finding import Evidence
from analyzers.model.topology import Topology
from analyzers.model.window import Window

MOST_EVIDENCE = 6

UNRECORDED = "gloo records no send or receive: the stacks or process states of ranks {ranks} would show which is stuck"
UNLISTED = "no dump lists the members of {operation}: the dumps of its other members would decide"
UNTIMED = (
    "every member launched it: the devices' state would decide (TORCH_NCCL_ENABLE_TIMING=1, GPU metrics, link counters)"
)
ALL_STARTED = "every member's device is in it: link counters or a second communicator over the same link would decide"
OPAQUE = "ranks {ranks} wait in an operation whose peers the dump does not name: their stacks would decide"
SHARED = (
    "{count} ranks stand still at once without waiting for another: what they share (storage, a switch, the code), "
    "and their stacks, would decide"
)
CIRCLE = "ranks {ranks} wait for each other in {entered}: their stacks would show which of them stands still"


@dataclass(frozen=True)
class Words:
    """Describes one situation."""

    window: Window
    topology: Topology
    situation: HangSituation
    waits: Waits

    def waited(self, rank: int) -> list[Operation]:
        """Return the operations that wait for a rank, the oldest first."""
        created = self.situation.progress.table["created_ns"]
        found = [op for op, absent in self.waits.absent.items() if rank in absent and rank in self.waits.after[op]]
        return sorted(found, key=lambda op: (int(created[self.waits.row_of[op]]), op))

    def waiters_of(self, operations: list[Operation]) -> str:
        """Name the ranks that wait in the oldest of these operations."""
        if not operations:
            return "others wait with it in the same operation"
        first, more = operations[0], len(operations) - 1
        waiting = sorted(self.waits.waiting[first])
        text = f"{' '.join(wait(waiting))} for it in {self.named(first)}"
        return text + (f" and {more} more operation{'s' if more > 1 else ''}" if more else "")

    def named(self, operation: Operation) -> str:
        """Name an operation and its group."""
        table = self.situation.progress.table
        group = table.groups[operation.group]
        named = f"group {group.name}" + (f" ({group.description})" if group.description else "")
        row = self.waits.row_of[operation]
        if operation.source >= 0:
            return f"the transfer from rank {operation.source} to rank {operation.target} in {named}"
        return f"{table.operation(row)} {operation.sequence} of {named}"

    def disagreement(self, mismatch: Disagreement) -> str:
        """State which ranks called what where their group called something else."""
        group = self.situation.progress.table.groups[mismatch.group]
        others = next((r for r in mismatch.calls if r not in mismatch.odd), None)
        odd = f"rank {listed(mismatch.odd)} called {_called(mismatch.calls[mismatch.odd[0]])}"
        place = f"at collective {mismatch.sequence} of group {group.name}"
        if others is None:
            second = next(r for r in mismatch.odd if mismatch.calls[r] != mismatch.calls[mismatch.odd[0]])
            return (
                f"{place} rank {mismatch.odd[0]} called {_called(mismatch.calls[mismatch.odd[0]])} "
                f"and rank {second} called {_called(mismatch.calls[second])}"
            )
        ahead = ": it skipped one and is ahead" if mismatch.ahead else ""
        rest = len(mismatch.calls) - len(mismatch.odd)
        return f"{place} {odd} where the other {rest} called {_called(mismatch.calls[others])}{ahead}"

    def evidence_for(self, rank: int) -> tuple[Evidence, ...]:
        """Return the operations that wait for a rank, as evidence."""
        found = []
        for operation in self.waited(rank)[:MOST_EVIDENCE]:
            waiter = min(self.waits.waiting[operation])
            created = int(self.situation.progress.table["created_ns"][self.waits.row_of[operation]])
            text = f"{' '.join(wait(sorted(self.waits.waiting[operation])))} in {self.named(operation)}"
            found.append(self.evidence(text, waiter, created))
        return tuple(found)

    def evidence(self, text: str, rank: int, created_ns: int | None) -> Evidence:
        """Return a sentence with the record it rests on."""
        at = created_ns / 1e9 if created_ns is not None and created_ns > 0 else None
        return Evidence(text=text, source=self.window.source_of.get(rank, ""), at=at, rank=rank)

    def undumped(self, rank: int) -> str:
        """State what is missing of a rank; a whole node without dumps may be our own collection."""
        if rank in self.situation.progress.table.partial:
            return f"rank {rank} left no whole flight-recorder dump"
        node = self.topology.nodes.get(rank)
        beside = self.topology.ranks_on(node) if node else ()
        alone = len(beside) > 1 and all(other not in self.situation.progress.dumped for other in beside)
        more = f" (nor did any rank of {node}, which may be our own collection)" if alone else ""
        return f"rank {rank} left no flight-recorder dump{more}"


def listed(ranks: tuple[int, ...] | list[int], most: int = 8) -> str:
    """Write ranks for a sentence, no more than a few of them."""
    shown = ", ".join(str(rank) for rank in ranks[:most])
    return shown if len(ranks) <= most else f"{shown} and {len(ranks) - most} more"


def wait(ranks: list[int]) -> tuple[str, str]:
    """Return subject and verb for ranks that wait."""
    return (f"rank {ranks[0]}", "waits") if len(ranks) == 1 else (f"ranks {listed(ranks)}", "wait")


def _called(calls: tuple[tuple[str, int, str], ...]) -> str:
    return " + ".join(
        name + (f" of {count} elements" if count >= 0 else "") + (f" {kind}" if kind else "")
        for name, count, kind in calls[:2]
    )
