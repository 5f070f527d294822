"""What can go wrong: each fault is one rank's failure at one place of its program, or one operation's dead link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulation.programs import Kind, Operation, Program

FaultKind = Literal[
    "never_entered",  # the host stops before an operation: data loader, GIL, loop
    "device",  # a kernel never ends; the host runs ahead
    "completion_lost",  # the watchdog loses completions while the device goes on; the host stops at its next wait
    "network",  # every rank enqueued an operation and it never ends
    "operation",  # desync: another operation than the peers'
    "size",  # desync: the same operation with another size
    "skip",  # desync: one collective left out; the rank is ahead
    "deadlock",  # two collectives in the opposite order
    "gone",  # the process died and left no dump
    "init",  # the rank never reached the communicator's first operation
    "outside",  # every rank waits in storage, nothing is outstanding
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault at operation ``index`` of the rank's program."""

    kind: FaultKind
    rank: int
    index: int


HALTING = frozenset({"never_entered", "gone", "init", "outside"})
EDITING = frozenset({"operation", "size", "skip", "deadlock"})


def edited(program: Program, fault: Fault) -> Program:
    """Return the program that a desynchronised rank runs."""
    operations = list(program.operations)
    operation = operations[fault.index]
    if fault.kind == "operation":
        other = "nccl:broadcast" if operation.name != "nccl:broadcast" else "nccl:all_reduce"
        operations[fault.index] = operation._replace(name=other)
    elif fault.kind == "size":
        operations[fault.index] = operation._replace(sizes_in="[[24,1,8]]", sizes_out="[[24,1,8]]")
    elif fault.kind == "skip":
        nothing = Operation(Kind.HOST, step=operation.step)  # keeps the indices of the others
        operations = [nothing if other.target == fault.index else other for other in operations]
        operations[fault.index] = nothing
    elif fault.kind == "deadlock":
        second = next_collective(program, fault.index)
        operations[fault.index], operations[second] = operations[second], operation
    return Program(program.stage, operations).number()


def next_collective(program: Program, index: int) -> int:
    """Return the index of the following collective, -1 where another kind of communication or the end comes first."""
    for later in range(index + 1, len(program.operations)):
        kind = program.operations[later].kind
        if kind is Kind.COLLECTIVE:
            return later
        if kind in (Kind.TRANSFER, Kind.WAIT, Kind.SYNC):
            break
    return -1
