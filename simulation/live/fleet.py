"""Jobs and their agents together: every batch in the order of its receipt, and answers to what agents are asked.

A node may be cut off for a while: its agent spools, and sends what it kept, a batch after the other,
when the connection is back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random
from typing import NamedTuple

from collectors.records import CommandResult, Record
from simulation.live.agent import Agent
from simulation.live.job import LiveJob
from simulation.live.recorders import recorders

FLUSH_SECONDS = 0.05  # between two spooled batches
LOOKS_SECONDS = (0.3, 3.3)  # of an answer's two looks at the stacks
FIRST_SEQUENCE = 1


class Delivery(NamedTuple):
    """One batch as the service receives it."""

    received_at: float
    sequence: int
    node: str
    sent_at: float
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """These nodes cannot reach the service from ``begin`` to ``end``; ``inf``: without end."""

    nodes: frozenset[str]
    begin: float
    end: float


@dataclass(order=True, slots=True)
class _Due:
    at: float
    order: int
    agent: Agent = field(compare=False)
    answer: tuple[Record, ...] | None = field(compare=False, default=None)


class Fleet:
    """The agents of all jobs. ``ahead_seconds``: node → how far its clock is ahead."""

    def __init__(
        self, jobs: Sequence[LiveJob], seed: int, began_at: float, cuts: Iterable[Cut] = (),
        ahead_seconds: dict[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.jobs, self.cuts, self._random = tuple(jobs), tuple(cuts), Random(f"fleet {seed}")
        self.agents: dict[str, Agent] = {}
        self._order, self._sequence = count(), count(FIRST_SEQUENCE)
        self._due: list[_Due] = []
        for job in self.jobs:
            for node in job.nodes:
                agent = Agent(job, node, Random(f"{seed} {node}"), began_at, (ahead_seconds or {}).get(node, 0.0))
                self.agents[node] = agent
                heapq.heappush(self._due, _Due(agent.next_at(), next(self._order), agent))

    @property
    def next_at(self) -> float:
        """Return when the next batch is received."""
        return self._due[0].at if self._due else inf

    def receive(self) -> Delivery | None:
        """Return the next batch; None: what was due cannot leave its node now, or the node is dead."""
        due = heapq.heappop(self._due)
        agent, at = due.agent, due.at
        if at >= agent.job.dead_nodes.get(agent.node, inf):
            return None
        closed_until = self._closed_until(agent.node, at)
        if closed_until > at:
            if closed_until < inf:
                again = closed_until + self._random.uniform(0.0, 5.0) if due.answer is None else closed_until + 5.0
                heapq.heappush(self._due, _Due(again, next(self._order), agent, due.answer))
            return None
        if due.answer is not None:
            return self._delivery(agent, at, due.answer)
        sent_for = agent.next_at()  # earlier than now only where the way was closed
        records = tuple(agent.batch(sent_for))
        following = agent.next_at()
        again = following if following > at else at + FLUSH_SECONDS
        heapq.heappush(self._due, _Due(again, next(self._order), agent))
        return self._delivery(agent, at, records) if records else None

    def ask(self, at: float, nodes: Iterable[str], verb: str, command: str) -> None:
        """Ask agents; their answers are received in time, or never."""
        for node in nodes:
            self.command(at, node, verb, f"{command}-{node}-{verb}")

    def command(self, at: float, node: str, verb: str, command: str) -> None:
        """Give an agent a command by its id."""
        agent = self.agents.get(node)
        if agent is None:
            return
        heard_at = at + self._random.uniform(0.05, 0.4)
        if heard_at >= agent.job.dead_nodes.get(node, inf) or self._closed_until(node, heard_at) > heard_at:
            return
        records, took_seconds = self._answer(agent, verb, heard_at)
        result = CommandResult(
            source="agent", at=heard_at + took_seconds, command=command, verb=verb,
            outcome="done" if records else "nothing", records=len(records),
        )  # fmt: skip
        answer = tuple(agent.as_written([*records, result]))
        sent_at = heard_at + took_seconds + self._random.uniform(0.1, 0.6)
        heapq.heappush(self._due, _Due(sent_at, next(self._order), agent, answer))

    def _answer(self, agent: Agent, verb: str, at: float) -> tuple[list[Record], float]:
        job = agent.job
        attempt = job.attempt(at)
        if attempt is None:
            return [], 0.1
        ranks = job.ranks_on(agent.node)
        if verb == "stacks":
            looks = [at + after for after in LOOKS_SECONDS]
            found: list[Record] = [
                agent.stack(attempt, rank, look) for look in looks for rank in ranks if attempt.runs(rank, look)
            ]
            return found, LOOKS_SECONDS[-1] + 0.3
        if verb == "recorders":
            if job.habits.reported_by == "probe":
                return list(agent.rings(attempt, at, 64)), 0.2
            return list(recorders(job, attempt, ranks, at, agent.ahead_seconds)), 0.4
        return list(agent.states(attempt, ranks, at)), 0.2

    def _closed_until(self, node: str, at: float) -> float:
        return max((cut.end for cut in self.cuts if node in cut.nodes and cut.begin <= at < cut.end), default=at)

    def _delivery(self, agent: Agent, at: float, records: tuple[Record, ...]) -> Delivery:
        took_seconds = self._random.uniform(0.01, 0.15)
        return Delivery(at + took_seconds, next(self._sequence), agent.node, at + agent.ahead_seconds, records)
