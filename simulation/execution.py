"""A job runs until nothing can move: hosts launch ahead of their devices, streams wait for one another, peers for peers.

No clock drives it. Every operation is handled once, when all it waits for is known, and its times follow by taking
maxima (max-plus); what never becomes known is the hang. So 16,384 ranks × hundreds of operations need one pass.

A rank's device passes an operation when its compute stream came that far and the communicator's stream is free; a
collective ends when every member's device reached it, a transfer when the k-th send of an ordered pair met the k-th
receive. Where the device is stuck for good the host still launches on, up to its next wait for the device.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulation.faults import EDITING, HALTING, Fault, edited
from simulation.programs import Groups, Kind, Operation, Program, Shape, build_groups
from simulation.schedule import build_programs

LAUNCH_NS = 20_000
NEVER = -1


@dataclass(slots=True)
class Job:
    """A shape with its groups and programs; ``programs`` maps a rank to what it runs."""

    shape: Shape
    groups: Groups
    stages: list[Program]
    programs: list[Program]

    @classmethod
    def of(cls, shape: Shape, faults: Iterable[Fault] = ()) -> Job:
        """Build the job; ranks with a desync fault run a program of their own."""
        stages = build_programs(shape)
        programs = [stages[shape.coordinate(rank, "pp")] for rank in range(shape.world)]
        for fault in faults:
            if fault.kind in EDITING:
                programs[fault.rank] = edited(programs[fault.rank], fault)
        return cls(shape, build_groups(shape), stages, programs)

    def peer(self, rank: int, offset: int) -> int:
        """Return the rank ``offset`` stages away."""
        return rank + offset * self.shape.stride("pp")


@dataclass(slots=True)
class Trace:
    """When each rank's operation was launched, began to wait on the device, and ended; NEVER where it did not."""

    job: Job
    created: list[array[int]]
    ready: list[array[int]]
    done: list[array[int]]
    lost_from: dict[int, int] = field(default_factory=dict)  # rank → index from which its watchdog sees nothing end
    stopped: dict[int, int] = field(default_factory=dict)  # rank → index its host stopped before, by a fault
    dead: set[int] = field(default_factory=set)  # collectives that mismatch or whose link is dead, as instance keys
    idle_at: int = 0  # the last thing that happened anywhere


def instance_key(group: int, number: int) -> int:
    """Name the number-th collective of a group."""
    return group * 1_000_000 + number


class _Machine:
    """The state of a run: where each rank's device is, who waits for what."""

    def __init__(self, job: Job, faults: Sequence[Fault]) -> None:
        world = job.shape.world
        self.job = job
        blank = [array("q", [NEVER]) * len(program.operations) for program in job.programs]
        self.trace = Trace(job, [a[:] for a in blank], [a[:] for a in blank], blank)
        self.position = [0] * world
        self.host = [(rank * 7919 % 97) * 1000 for rank in range(world)]
        self.compute = [0] * world
        self.halt = [len(program.operations) for program in job.programs]
        self.stuck_kernel = [NEVER] * world
        self.awaits = [NEVER] * world
        self.tails: list[dict[object, int]] = [{} for _ in range(world)]
        self.behind: dict[tuple[int, int], tuple[int, int]] = {}
        self.collectives: dict[int, list[tuple[int, int, int]]] = {}
        self.halves: dict[tuple[int, int, int, int], tuple[int, int, int]] = {}
        self.parts_left: dict[tuple[int, int], list[int]] = {}
        self.dead_transfers: set[tuple[int, int]] = set()
        self.arrivals: list[tuple[int, int, int]] = []
        self.walkers: list[int] = list(range(world))
        for fault in faults:
            self._apply(fault)

    def _apply(self, fault: Fault) -> None:
        operations = self.job.programs[fault.rank].operations
        if fault.kind in HALTING:
            self._halt(fault.rank, fault.index)
        elif fault.kind == "device":
            self.stuck_kernel[fault.rank] = fault.index
        elif fault.kind == "completion_lost":
            waits = (i for i in range(fault.index, len(operations)) if operations[i].kind is Kind.SYNC)
            self._halt(fault.rank, next(waits, len(operations) - 1))
            self.trace.lost_from[fault.rank] = fault.index
        elif fault.kind == "network":
            operation = operations[fault.index]
            if operation.kind is Kind.TRANSFER:
                self.dead_transfers.add((fault.rank, fault.index))
            else:
                group = self.job.groups.of[fault.rank][operation.dimension]
                self.trace.dead.add(instance_key(group, self.job.programs[fault.rank].nth[fault.index]))

    def _halt(self, rank: int, index: int) -> None:
        self.halt[rank] = min(self.halt[rank], index)
        self.trace.stopped[rank] = self.halt[rank]

    def run(self) -> Trace:
        """Move everything that can move, then let the stuck ranks' hosts launch ahead."""
        while self.walkers or self.arrivals:
            while self.arrivals:
                self._arrive(*self.arrivals.pop())
            if self.walkers:
                self._walk(self.walkers.pop())
        for rank in range(self.job.shape.world):
            self._run_ahead(rank)
        trace = self.trace
        trace.idle_at = max(
            max(max(column, default=0) for column in columns) for columns in (trace.created, trace.done)
        )
        return trace

    def _walk(self, rank: int) -> None:
        """Advance one rank's device until it waits for another rank."""
        operations = self.job.programs[rank].operations
        position, halt, created, done = (
            self.position[rank],
            self.halt[rank],
            self.trace.created[rank],
            self.trace.done[rank],
        )
        host, compute = self.host[rank], self.compute[rank]
        self.awaits[rank] = NEVER
        while position < halt:
            operation = operations[position]
            kind = operation.kind
            if kind is Kind.COMPUTE:
                if position == self.stuck_kernel[rank]:
                    break
                host += LAUNCH_NS
                jitter = (rank * 31 + position * 17) % 64  # up to 6 % between ranks and operations
                compute = max(compute, host) + operation.duration_ns * (1000 + jitter) // 1000
            elif kind is Kind.COLLECTIVE or kind is Kind.TRANSFER:
                if created[position] == NEVER:
                    host += LAUNCH_NS
                    created[position] = host
                    self._launch(rank, position, operation, max(host, compute))
                if operation.blocking:
                    if done[position] == NEVER:
                        self.awaits[rank] = position
                        break
                    compute = max(compute, done[position])
            elif kind is Kind.WAIT:
                if done[operation.target] == NEVER:
                    self.awaits[rank] = operation.target
                    break
                compute = max(compute, done[operation.target])
            elif kind is Kind.SYNC:
                host = max(host, compute)
            else:
                host += operation.duration_ns
            position += 1
        self.position[rank], self.host[rank], self.compute[rank] = position, host, compute

    def _launch(self, rank: int, position: int, operation: Operation, ready: int) -> None:
        """Queue an operation on its communicator's stream; a lone send or receive has a communicator for its pair."""
        single = operation.kind is Kind.TRANSFER and not operation.coalesced
        queue: object = (operation.dimension, operation.parts[0].offset) if single else operation.dimension
        tail = self.tails[rank].get(queue, NEVER)
        self.tails[rank][queue] = position
        if tail != NEVER and self.trace.done[rank][tail] == NEVER:
            self.behind[rank, tail] = (position, ready)
        else:
            earlier = self.trace.done[rank][tail] if tail != NEVER else 0
            self.arrivals.append((rank, position, max(ready, earlier)))

    def _arrive(self, rank: int, position: int, ready: int) -> None:
        """A rank's device reached an operation and now waits in it for its peers."""
        self.trace.ready[rank][position] = ready
        operation = self.job.programs[rank].operations[position]
        if operation.kind is Kind.COLLECTIVE:
            self._join(rank, position, ready, operation)
            return
        left = self.parts_left[rank, position] = [len(operation.parts), ready]
        group = self.job.groups.of[rank][operation.dimension]
        for part, number in zip(operation.parts, self.job.programs[rank].part_nth[position], strict=True):
            peer = self.job.peer(rank, part.offset)
            key = (group, *((rank, peer) if part.send else (peer, rank)), number)
            other = self.halves.pop(key, None)
            if other is None:
                self.halves[key] = (rank, position, ready)
                continue
            if (rank, position) in self.dead_transfers or other[:2] in self.dead_transfers:
                continue
            ends_at = max(ready, other[2]) + operation.duration_ns
            for place, counter in (((rank, position), left), (other[:2], self.parts_left[other[:2]])):
                counter[0] -= 1
                counter[1] = max(counter[1], ends_at)
                if not counter[0]:
                    del self.parts_left[place]
                    self._end(*place, counter[1])

    def _join(self, rank: int, position: int, ready: int, operation: Operation) -> None:
        group = self.job.groups.of[rank][operation.dimension]
        key = instance_key(group, self.job.programs[rank].nth[position])
        inside = self.collectives.setdefault(key, [])
        inside.append((rank, position, ready))
        first = self.job.programs[inside[0][0]].operations[inside[0][1]]
        if first is not operation and not _matches(first, operation):
            self.trace.dead.add(key)
        if len(inside) == len(self.job.groups.members[group]) and key not in self.trace.dead:
            ends_at = max(entry[2] for entry in inside) + operation.duration_ns
            del self.collectives[key]
            for member, place, _ in inside:
                self._end(member, place, ends_at)

    def _end(self, rank: int, position: int, ends_at: int) -> None:
        self.trace.done[rank][position] = ends_at
        if self.awaits[rank] == position:
            self.walkers.append(rank)
        follower = self.behind.pop((rank, position), None)
        if follower is not None:
            self.arrivals.append((rank, follower[0], max(follower[1], ends_at)))

    def _run_ahead(self, rank: int) -> None:
        """Let the host of a stuck device launch until it waits for the device itself."""
        operations, created, host = self.job.programs[rank].operations, self.trace.created[rank], self.host[rank]
        for position in range(self.position[rank], self.halt[rank]):
            operation = operations[position]
            if operation.kind is Kind.SYNC:
                break
            if operation.kind in (Kind.COLLECTIVE, Kind.TRANSFER) and created[position] == NEVER:
                host += LAUNCH_NS
                created[position] = host
            elif operation.kind is Kind.HOST:
                host += operation.duration_ns


def _matches(first: Operation, second: Operation) -> bool:
    """Members may differ in size only where the operation allows it."""
    if first.name != second.name or first.name == "nccl:all_to_all":
        return first.name == second.name
    return first.sizes_in == second.sizes_in and first.sizes_out == second.sizes_out


def execute(job: Job, faults: Sequence[Fault] = ()) -> Trace:
    """Run the job with its faults until nothing moves."""
    return _Machine(job, faults).run()
