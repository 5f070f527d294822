"""A hang of which the engine asks for an hour, and agents whose answers come late, in part, or not at all.

Pure: the engine, the real analyzers and a clock of numbers. One rank spins and never changes; the others wait in a collective.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from analyzers.incidents import step as engine
from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Ask, EngineEvent, EngineInstruction, EngineTick, Judge, Open, Publish, Received
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Symptom
from collectors.records import CommandResult, Frame, Members, Placement, ProcessState, Record, StackDump, Thread
from tests.support.hand_made import SCHEDULED, START_NS, call, dump, group
from tests.support.live_hangs import KNOWLEDGE, REDUCE, SPIN

START = START_NS / 1e9
HANGS_AT = 30.0
JOB = "llama"
Delay = Callable[[str, int], float | None]
"""A node and the number of the round → after how many seconds its stacks come; None: they are lost."""


@dataclass
class SpinningJob:
    """Four ranks on four nodes; ``stands``: what the culprit's stack shows, by the number of the stack."""

    patch: pytest.MonkeyPatch
    delay: Delay
    culprit: int = 2
    ranks: int = 4
    stands: Callable[[int], tuple[Frame, ...]] = lambda _number: SPIN
    minutely: bool = True  # agents take a stack a minute unasked
    dumps: bool = False  # recorders answer too, as late as the stacks
    stacks_late: float = 0.0  # by so many seconds more than recorders
    cut_off: Callable[[str, float], bool] = lambda _node, _seconds: False  # whether a node sends nothing then
    published: list[Publish] = field(default_factory=list)
    said: list[tuple[float, EngineInstruction]] = field(default_factory=list)
    log: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = EngineState(KNOWLEDGE)
        self.queue: list[tuple[float, int, str, tuple[Record, ...]]] = []
        self.number, self.rounds, self.stacks = 0, 0, 0
        symptom = Symptom(kind="hang", detector="no_progress", at=START + HANGS_AT, text="no step")
        self.patch.setattr(
            engine, "find_symptoms", lambda _view, now: [symptom] if now > START + HANGS_AT + 10.0 else []
        )
        self.patch.setattr(engine, "ended_because", lambda *_: None)

    def run(self, seconds: float) -> SpinningJob:
        """Let time pass from the start."""
        for second in range(0, int(seconds), 10):
            for rank in range(self.ranks):
                self._send(START + second + rank, rank, *self._ordinary(rank, second))
        now, end = START, START + seconds
        while now < end:
            due = min(self.state.ticked_at + engine.TICK_SECONDS, engine.next_due_at(self.state) or 1e18)
            now = max(now + 0.05, min(due, self.queue[0][0] if self.queue else 1e18))
            while self.queue and self.queue[0][0] <= now:
                _at, _number, node, records = heapq.heappop(self.queue)
                batch = Received(
                    sequence=self.state.sequence + 1, received_at=now, node=node, records=records, sent_at=now
                )
                self.log.append(batch)
                self._step(batch, now)
            self._step(EngineTick(), now)
        return self

    def _ordinary(self, rank: int, second: int) -> list[Record]:
        whose = {"job": JOB, "attempt": 1, "rank": rank, "node": f"gpu-{rank}", "boot_id": "b"}
        at = START + second - 0.5
        state = "R" if rank == self.culprit else "S"
        found: list[Record] = [
            ProcessState(**whose, source="process", at=at, pid=100 + rank, state=state, cpu_seconds=at)  # type: ignore[arg-type]
        ]
        if second % 60 == 0:
            found.append(
                Placement(
                    node=f"gpu-{rank}",
                    job=JOB,
                    attempt=1,
                    source="placement",
                    at=at,
                    boot_id="b",
                    world_size=self.ranks,
                    ranks=Members.of([rank]),
                    nodes=(f"gpu-{rank}",),
                    pids=(100 + rank,),
                )
            )
        if self.minutely and second % 60 == 10 * rank and second > HANGS_AT:
            found.append(self._stack(rank, at))
        return found

    def _stack(self, rank: int, at: float) -> StackDump:
        self.stacks += 1
        frames = self.stands(self.stacks) if rank == self.culprit else REDUCE
        return StackDump(
            source=f"stacks/{100 + rank}", at=at, boot_id="b", node=f"gpu-{rank}", job=JOB, attempt=1, rank=rank,
            tool="py-spy", pid=100 + rank, threads=(Thread(frames=frames, main=True, name="MainThread"),),
        )  # fmt: skip

    def _dump(self, rank: int, at: float) -> Record:
        guilty, done = rank == self.culprit, [call(step, at_s=float(step)) for step in range(1, 31)]
        waits = [] if guilty else [call(31, SCHEDULED, at_s=31.0)]
        return dump(
            rank, [*done, *waits], [group("0", *range(self.ranks))], node=f"gpu-{rank}", job=JOB, attempt=1, pid=100 + rank,
            at=at, source=f"recorder/{100 + rank}",
        )  # fmt: skip

    def _send(self, at: float, rank: int, *records: Record) -> None:
        if self.cut_off(f"gpu-{rank}", at - START):
            return
        self.number += 1
        heapq.heappush(self.queue, (at, self.number, f"gpu-{rank}", records))

    def _step(self, event: EngineEvent, now: float) -> None:
        for one in engine.step(self.state, event, now)[1]:
            self.said.append((now - START, one))
            if isinstance(one, Judge):
                self._step(judge_cut(one, KNOWLEDGE), now)
            elif isinstance(one, Publish):
                self.published.append(one)
            elif isinstance(one, Ask):
                self._answer(one, now)

    def _answer(self, asked: Ask, now: float) -> None:
        self.rounds += asked.verb == "stacks"
        for rank in range(self.ranks):
            result = CommandResult(command="c", verb=asked.verb)
            if asked.verb == "recorders" and self.dumps:
                if (after := self.delay(f"gpu-{rank}", self.rounds)) is not None:
                    self._send(now + after, rank, self._dump(rank, now + max(0.3, after - 3.0)), result)
            elif asked.verb != "stacks":
                self._send(now + 1.0, rank, result)
            elif (after := self.delay(f"gpu-{rank}", self.rounds)) is not None:
                # An agent on a busy node takes both dumps late.
                after += self.stacks_late
                taken = now + max(0.5, after - 4.0)
                self._send(now + after, rank, self._stack(rank, taken), self._stack(rank, taken + 3.0), result)

    @property
    def opened(self) -> Open:
        """Return the opening of the job's incident."""
        (found,) = (one for _, one in self.said if isinstance(one, Open) and one.incident.job is not None)
        return found

    def reported(self) -> list[str]:
        """Return each version in short: what it names and asks for."""
        return [
            f"{one.cut.at - START:.0f} {'abstains' if one.verdict.abstained else ','.join(c.id for c in one.verdict.culprits)}"
            f" {one.verdict.action.kind}"
            for one in self.published
        ]


def prompt(_node: str, _round: int) -> float:
    """Answer in time."""
    return 3.5


def at_random(seed: int, late: float, lost: float) -> Delay:
    """Return delays of which these shares come after the round, or never."""
    noise = random.Random(seed)

    def delay(_node: str, _round: int) -> float | None:
        drawn = noise.random()
        return None if drawn < lost else noise.uniform(7.0, 40.0) if drawn < lost + late else noise.uniform(3.5, 6.0)

    return delay


def by_turns(turns: Sequence[Sequence[str]]) -> Delay:
    """Return delays by which these nodes answer a round, and no others; the rounds are taken in turns."""

    def delay(node: str, number: int) -> float | None:
        return 3.6 if node in turns[(number - 1) % len(turns)] else None

    return delay
