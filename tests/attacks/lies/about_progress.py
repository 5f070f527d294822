"""Lies about where the job stands: stacks, recorders, rings and steps, some of an invented job in which the innocent spins."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collectors.records import Record
from simulation.live.recorders import recorders
from tests.attacks.lies.about_places import everybodys_place
from tests.attacks.lies.telling import AHEAD_SECONDS, Target, lie, steps


def _at_rest(target: Target, at: float, records: Iterable[Record]) -> Iterable[Record]:
    return [msgspec.structs.replace(record, node=None) for record in records]


@lie()
def its_stack(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank spins in its own code."""
    agent, attempt = target.agent(target.node), target.invented.attempts[0]
    yield from _at_rest(target, at, [agent.stack(attempt, target.rank, at - ago) for ago in (4.0, 1.0)])


@lie()
def everybodys_stack(target: Target, at: float) -> Iterable[Record]:
    """All others wait for it."""
    agent, attempt = target.agent(target.node), target.invented.attempts[0]
    for rank in range(target.job.world):
        yield from _at_rest(target, at, [agent.stack(attempt, rank, at - ago) for ago in (4.0, 1.0)])


@lie()
def its_recorder(target: Target, at: float) -> Iterable[Record]:
    """Its flight recorder stands behind."""
    ranks = range(target.rank, target.rank + 1)
    yield from _at_rest(target, at, recorders(target.invented, target.invented.attempts[0], ranks, at, 0.0))


@lie()
def everybodys_recorder(target: Target, at: float) -> Iterable[Record]:
    """All others' flight recorders wait for it."""
    ranks = range(target.job.world)
    yield from _at_rest(target, at, recorders(target.invented, target.invented.attempts[0], ranks, at, 0.0))


@lie()
def everybodys_ring(target: Target, at: float) -> Iterable[Record]:
    """The probe's rings of all ranks."""
    for node in target.job.nodes:
        yield from _at_rest(target, at, target.agent(node).rings(target.invented.attempts[0], at, 16))


@lie()
def a_whole_job(target: Target, at: float) -> Iterable[Record]:
    """Everything at once: places, states, stacks and recorders of a job in which the innocent spins."""
    attempt = target.invented.attempts[0]
    yield from everybodys_place(target, at)
    for node in target.job.nodes:
        yield from _at_rest(target, at, target.agent(node).states(attempt, target.job.ranks_on(node), at))
    yield from everybodys_stack(target, at)
    yield from everybodys_recorder(target, at)


@lie()
def it_steps(target: Target, at: float) -> Iterable[Record]:
    """The job moves."""
    yield steps(target, at)


@lie()
def it_steps_in_the_future(target: Target, at: float) -> Iterable[Record]:
    """The job has moved in an hour."""
    yield steps(target, at + AHEAD_SECONDS)


@lie()
def its_loss_is_not_a_number(target: Target, at: float) -> Iterable[Record]:
    """The loss is NaN."""
    yield steps(target, at, loss=[float("nan")] * 12, nan=[1.0] * 12)
