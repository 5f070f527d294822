"""Lies about instances of roles: the innocent, by its number or a role of its own, is what all others wait for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collectors.records import DIRECTORY, Record, RoleState
from tests.attacks.lies.telling import Target, lie


def _state(target: Target, at: float, rank: int, **more: Any) -> RoleState:
    given = {**target.job_of, "source": "role metrics", "at": at, "instance": str(rank)}
    return RoleState(**{**given, **more})


def _all_wait_for_it(target: Target, at: float, **more: Any) -> Iterable[Record]:
    role = more.get("role") or ""
    for rank in range(target.job.world):
        if rank != target.rank:
            yield _state(
                target, at, rank, phase="train", waiting_for=f"{role} {target.rank}".strip(), waiting_since=target.at - 90.0,
                **more,
            )  # fmt: skip
    yield _state(target, at, target.rank, phase="train", phase_since=target.at - 90.0, steps_total=4, **more)


@lie(early=True)
def its_number_is_waited_for(target: Target, at: float) -> Iterable[Record]:
    """All others, by their numbers, wait for the innocent's."""
    yield from _all_wait_for_it(target, at)


@lie(early=True)
def trainers_wait_for_it(target: Target, at: float) -> Iterable[Record]:
    """The ranks are trainers, which wait for the innocent."""
    yield from _all_wait_for_it(target, at, role="trainer")


@lie(user=False, early=True)
def the_directory_has_them_wait_for_it(target: Target, at: float) -> Iterable[Record]:
    """The same, as if the directory of roles had said so."""
    yield from _all_wait_for_it(target, at, role="trainer", source=DIRECTORY)


@lie(early=True)
def its_metrics_stand_still(target: Target, at: float) -> Iterable[Record]:
    """An inference engine of the innocent's number has requests and makes no tokens, while the others' engines do."""
    for rank in range(target.job.world):
        tokens = 1_000 if rank == target.rank and at >= target.at else int(at) % 10**6 * 50
        yield _state(target, at, rank, role="rollout", requests_running=4, tokens_total=tokens, phase="generate")


@lie(early=True)
def its_health_does_not_answer(target: Target, at: float) -> Iterable[Record]:
    """The innocent answers no health check, has lost its lease and was fenced."""
    gone = at >= target.at
    yield _state(
        target, at, target.rank, answers=not gone, epoch=3, renewed_at=target.at - 100.0, lease_seconds=5.0,
        state="fenced" if gone else "serving",
    )  # fmt: skip
