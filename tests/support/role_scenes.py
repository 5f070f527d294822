"""An RL job as its agents report it: two trainers and four rollouts, each role counting from 0."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.records import Frame, Members, Placement, ProcessState, Record, StackDump, Thread

START = 1_763_000_000.0
TRAINERS, ROLLOUTS = (("trainer", 0), ("trainer", 1)), tuple(("rollout", rank) for rank in range(4))
SEATS = (*TRAINERS, *ROLLOUTS)
WORK = {
    "trainer": ("all_reduce (torch/distributed/distributed_c10d.py)", "train_step (train.py)"),
    "rollout": ("get (queue.py)", "generate (rollout.py)"),
}
JOB = {"job": "rl", "attempt": 0}


def pid_of(role: str, rank: int) -> int:
    """The pid of a process, each its own."""
    return (100 if role == "trainer" else 200) + rank


def node_of(role: str, rank: int, nodes: int) -> str:
    """With one node all are on it; with six, each on its own."""
    return "n0" if nodes == 1 else f"n{SEATS.index((role, rank))}"


def placements(nodes: int = 1, seats: Sequence[tuple[str, int]] = SEATS) -> list[Placement]:
    """One placement a node."""
    by_node: dict[str, list[tuple[str, int]]] = {}
    for seat in seats:
        by_node.setdefault(node_of(*seat, nodes), []).append(seat)
    return [
        Placement(
            **JOB, node=node, at=START, received_at=START, source="placement",
            ranks=Members.of(rank for _, rank in own), roles=tuple(role for role, _ in own), nodes=(node,) * len(own),
            pids=tuple(pid_of(*seat) for seat in own), world_sizes=tuple(2 if role == "trainer" else 4 for role, _ in own),
        )
        for node, own in by_node.items()
    ]  # fmt: skip


def looks(stopped: tuple[str, int] | None = None, nodes: int = 1, rounds: int = 3) -> list[Record]:
    """States and stacks of some rounds, ten seconds apart."""
    found: list[Record] = []
    for role, rank in SEATS:
        whose = {**JOB, "role": role, "rank": rank, "node": node_of(role, rank, nodes), "pid": pid_of(role, rank)}
        frames = tuple(Frame(*text.rstrip(")").split(" (")) for text in WORK[role])
        for number in range(rounds):
            at = START + 30.0 + 10.0 * number
            state = "T" if (role, rank) == stopped and number else "S"
            found.append(
                ProcessState(
                    **whose, at=at, received_at=at, boot_id="b", state=state, source="process", started_at=START
                )
            )
            found.append(
                StackDump(
                    **whose, at=at, received_at=at, boot_id="b", tool="py-spy", source=f"stacks:{role}{rank}",
                    threads=(Thread(frames=frames, main=True, active=True),),
                )
            )  # fmt: skip
    return found
