"""Who waits for whom at the end of a run, and what of it the surviving dumps show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from simulation.execution import NEVER, Trace
from simulation.programs import Kind, Part
from simulation.recorder import Recording


class Snapshot:
    """One snapshot of a run that stands still."""

    def __init__(self, trace: Trace, recording: Recording) -> None:
        self.trace, self.recording, self.job = trace, recording, trace.job
        self.seen = [rank for rank in range(self.job.shape.world) if rank not in recording.without]
        self.unfinished = cache(self._unfinished)
        self.waits_for = cache(self._waits_for)

    def _unfinished(self, rank: int) -> list[int]:
        """Return the communications that a rank launched and that never ended."""
        created, done = self.trace.created[rank], self.trace.done[rank]
        return [index for index, at in enumerate(created) if at != NEVER and done[index] == NEVER]

    def counterparts(self, rank: int, index: int) -> Iterator[tuple[int, int]]:
        """Yield the other ranks that an operation needs, and the place of their part in their programs, -1 without."""
        program = self.job.programs[rank]
        operation = program.operations[index]
        if operation.kind is Kind.COLLECTIVE:
            key = (operation.dimension, None, program.nth[index])
            for member in self.job.groups.members[self.job.groups.of[rank][operation.dimension]]:
                if member != rank:
                    yield member, self.job.programs[member].places.get(key, -1)
            return
        for part, number in zip(operation.parts, program.part_nth[index], strict=True):
            peer = self.job.peer(rank, part.offset)
            mirrored = Part(not part.send, -part.offset)
            yield peer, self.job.programs[peer].places.get((operation.dimension, mirrored, number), -1)

    def launched(self, rank: int, index: int) -> bool:
        """Whether the rank's host launched the operation."""
        return index >= 0 and self.trace.created[rank][index] != NEVER

    def reached(self, rank: int, index: int) -> bool:
        """Whether the rank's device reached the operation."""
        return index >= 0 and self.trace.ready[rank][index] != NEVER

    def _waits_for(self, rank: int) -> frozenset[int]:
        """Return the ranks whose devices have not reached what this rank's device is in, or may not have: no dump."""
        found = set()
        for index in self.unfinished(rank):
            if self.reached(rank, index):
                found |= {
                    peer
                    for peer, place in self.counterparts(rank, index)
                    if peer in self.recording.without or not self.reached(peer, place)
                }
        return frozenset(found)

    def reach(self, rank: int) -> frozenset[int]:
        """Return every rank that a rank waits for, directly or through others; itself, where waits form a circle."""
        found: set[int] = set()
        agenda = [rank]
        while agenda:
            fresh = self.waits_for(agenda.pop()) - found
            found |= fresh
            agenda.extend(fresh - self.recording.without)
        return frozenset(found)

    def missed_by(self, culprit: int, *, started: bool = False) -> bool:
        """Whether a surviving dump waits for what the culprit never launched, or never started where others did."""
        for rank in self.neighbours(culprit):
            for index in self.unfinished(rank):
                for peer, place in self.counterparts(rank, index):
                    if peer != culprit:
                        continue
                    if not started and not self.launched(peer, place):
                        return True
                    if (
                        started
                        and self.launched(peer, place)
                        and self.reached(rank, index)
                        and not self.reached(peer, place)
                    ):
                        return True
        return False

    def neighbours(self, rank: int) -> list[int]:
        """Return the ranks with a dump that share a group with this one."""
        groups = self.job.groups
        near = {member for group in groups.of[rank].values() for member in groups.members[group]}
        return sorted(near - {rank} - self.recording.without)

    def missing_and_awaited(self) -> frozenset[int]:
        """Return the ranks without a dump that take part in anything unfinished of a surviving dump."""
        return frozenset(gone for gone in self.recording.without if self._awaited(gone, self.launched))

    def missing_and_absent(self) -> frozenset[int]:
        """Return those of them that never came to where a surviving rank's device is."""
        return frozenset(gone for gone in self.recording.without if self._awaited(gone, self._stands_without(gone)))

    def _awaited(self, gone: int, stands: Callable[[int, int], bool]) -> bool:
        return any(
            peer == gone and stands(rank, index)
            for rank in self.neighbours(gone)
            for index in self.unfinished(rank)
            for peer, _ in self.counterparts(rank, index)
        )

    def _stands_without(self, gone: int) -> Callable[[int, int], bool]:
        def stands(rank: int, index: int) -> bool:
            if not self.reached(rank, index):
                return False
            return any(
                peer == gone and not self.launched(peer, place) for peer, place in self.counterparts(rank, index)
            )

        return stands

    def end_is_shown(self, culprit: int, index: int) -> bool:
        """Whether a peer's dump shows that an operation ended which the culprit's watchdog lost."""
        operation = self.job.programs[culprit].operations[index]
        if operation.name == "nccl:broadcast":
            return False  # its root may leave before the others arrive
        for peer, place in self.counterparts(culprit, index):
            if peer in self.recording.without or place < 0 or place >= self.trace.lost_from.get(peer, place + 1):
                continue
            if not self.recording.active_only or self._is_behind(peer, place):
                return True
        return False

    def _is_behind(self, rank: int, index: int) -> bool:
        """Whether a rank shows a later unfinished collective of the same group."""
        operations = self.job.programs[rank].operations
        dimension = operations[index].dimension
        return operations[index].kind is Kind.COLLECTIVE and any(
            later > index and operations[later].dimension == dimension and operations[later].kind is Kind.COLLECTIVE
            for later in self.unfinished(rank)
        )
