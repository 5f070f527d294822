"""Healthy jobs whose steps change for reasons of their own, or whose agents do: none is slow."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest

from analyzers.incidents.detectors.slow import detect
from analyzers.incidents.job_views import JobView
from tests.analyzers.incidents.test_slow import Law, newest_alone, shown_either_way
from tests.support.watched_jobs import START, WatchedJob


def _by_time(times: Callable[[float], float], noise: float = 0.04) -> Law:
    """Return steps of a second times what a function of the seconds since the start says."""
    now = 0.0

    def law(_step: int, random: random.Random) -> float:
        nonlocal now
        length = math.exp(random.gauss(0, noise)) * times(now)
        now += length
        return length

    return law


def _every(steps: int, seconds: float, first: int = 0) -> Law:
    return lambda step, random: math.exp(random.gauss(0, 0.04)) + (seconds if step > first and step % steps == 0 else 0)


def more(*values: object) -> Any:
    """Return values whose test is a second proof."""
    return pytest.param(*values, marks=pytest.mark.acceptance)


HEALTHY = {
    "evaluations at each 25th step from a moment on": lambda: _every(25, 2.0, 2_000),
    "evaluations at each 500th step": lambda: _every(500, 90.0),
    "evaluations at each 2,000th step": lambda: _every(2_000, 900.0),
    "checkpoints at each 1,000th step": lambda: _every(1_000, 120.0),
    "compilation of five minutes": lambda: _by_time(lambda now: 60.0 if now < 300 else 1.0),
    "a second compilation for other shapes": lambda: _by_time(lambda now: 8.0 if 1_500 < now < 1_590 else 1.0),
    "slow steps while caches fill": lambda: _by_time(lambda now: 1.0 + math.exp(-now / 200)),
    "lengths in twenty stages": lambda: _by_time(lambda now: 1.0 + 0.05 * int(now / 360)),
    "a minute of other work": lambda: _by_time(lambda now: 1.7 if 2_000 < now < 2_060 else 1.0),
    "a hundred seconds of other work": lambda: _by_time(lambda now: 1.7 if 2_000 < now < 2_100 else 1.0),
    "minutes of other work at random": lambda: _by_time(
        lambda now: 1.7 if now % 600 < 60 and random.Random(int(now // 600)).random() < 0.6 else 1.0
    ),
    "noise that wanders within minutes": lambda: _by_time(lambda now: 1.0 + 0.08 * math.sin(now / 90)),
    "noise that wanders within an hour": lambda: _by_time(lambda now: 1.0 + 0.2 * math.sin(now / 600)),
}


SECOND = {
    "evaluations at each 2,000th step", "checkpoints at each 1,000th step", "a minute of other work", "lengths in twenty stages",
    "noise that wanders within minutes", "slow steps while caches fill",
}  # fmt: skip
"""Milder than another of the same kind, here or in ``test_slow.py``."""


@pytest.mark.parametrize("name", [more(name) if name in SECOND else name for name in HEALTHY])
def test_a_job_with_reasons_of_its_own_is_not_slow(name: str) -> None:
    """Pauses, compilation, growth in small stages, less than two minutes of other work, and noise that wanders."""
    assert shown_either_way(WatchedJob(nodes=1, law=HEALTHY[name](), seed=5), 7_200.0) == []


@pytest.mark.parametrize(
    ("buffered", "seconds"),
    [(10, 1.0), (400, 0.1), (100, 10.0), *map(more, (10, 10, 100, 100, 400, 400), (0.1, 10.0, 0.1, 1.0, 1.0, 10.0))],
)
def test_a_log_that_is_written_in_blocks_is_not_slow(buffered: int, seconds: float) -> None:
    """With stamps, or with the newest line alone."""
    law = lambda _step, random: seconds * math.exp(random.gauss(0, 0.04))  # noqa: E731
    assert shown_either_way(WatchedJob(nodes=1, law=law, buffered=buffered), 7_200.0) == []


@pytest.mark.parametrize(
    ("kept", "away"),
    [
        (True, 45.0), (False, 45.0), (True, 900.0), (False, 200.0),
        *(more(*one) for one in product((True, False), (15.0, 90.0))), more(True, 200.0), more(False, 900.0),
    ],
)  # fmt: skip
def test_an_agent_that_was_away_makes_no_job_slow(away: float, kept: bool) -> None:
    """It is restarted again and again, and sends what it missed, or only the newest line."""
    job, view = WatchedJob(nodes=2, law=_every(100, 5.0)), JobView("run", 0)
    for batch in job.batches(0.0, 5_400.0):
        at = batch.received_at - START
        if batch.node == "n0" and at > 1_000 and at % (away * 3) < away:
            continue
        read = batch if kept else newest_alone(batch)
        view.take(read, read.records)
        assert list(detect(view, batch.received_at)) == []


@pytest.mark.parametrize("late", [60.0, more(20.0), more(180.0)])
def test_batches_that_come_late_make_no_job_slow(late: float) -> None:
    """From a moment on everything comes late, by a queue that grows and drains."""
    job, view = WatchedJob(nodes=1), JobView("run", 0)
    for batch in job.batches(0.0, 3_600.0):
        at = batch.received_at - START
        behind = late * max(0.0, math.sin(at / 200)) if at > 1_200 else 0.0
        late_batch = msgspec.structs.replace(
            newest_alone(batch), received_at=batch.received_at + behind, sent_at=batch.received_at + behind - 0.05
        )
        view.take(late_batch, late_batch.records)
        assert list(detect(view, late_batch.received_at)) == []
