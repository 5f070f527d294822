"""How long a rank's steps take without its waits: the probe in real gloo jobs, of which one rank keeps the others waiting."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from collectors.formats.probe_ring import parse
from tests.support.needs import needs_torch
from tests.support.probed_runs import image, start

pytestmark = pytest.mark.system

needs_torch("real jobs cannot be started")

RANKS, LOADS_SECONDS = 3, 0.04


@pytest.mark.parametrize("case", ["ddp", "by hand"])
def test_only_the_rank_that_is_waited_for_has_long_steps_of_its_own(tmp_path: Path, case: str) -> None:
    """All steps are equally long; without the waits, seen or C++'s, only those of the rank that loads for longer are."""
    ended = start(tmp_path, "own_time", ranks=RANKS, CASE=case)
    assert [one.returncode for one in ended] == [0] * RANKS, ended[0].stderr[-2000:]

    rings = [image(tmp_path, rank) for rank in range(RANKS)]

    assert [ring.swallowed for ring in rings] == [0] * RANKS
    assert min(len(ring.own) for ring in rings) >= 5  # the first steps show what DDP does
    steps, own = ([statistics.median(row[place] for row in ring.own) for ring in rings] for place in (2, 3))
    assert min(steps) >= LOADS_SECONDS
    assert own[-1] >= LOADS_SECONDS
    assert max(own[:-1]) < LOADS_SECONDS / 2


def test_steps_with_waits_that_were_not_seen_have_no_own_time(tmp_path: Path) -> None:
    """A collective that C++ issued outside of backward may have kept the rank waiting: nothing is said of that step."""
    start(tmp_path, "own_time", ranks=2, CASE="unseen")

    assert image(tmp_path).own == ()
    assert image(tmp_path).swallowed == 0


def test_the_record_has_the_newest_steps_alone(tmp_path: Path) -> None:
    """What is sent every ten seconds is bounded, and what the agent reads of the device's timings is not the host's."""
    start(tmp_path, "own_time", CASE="by hand")

    ring = parse((tmp_path / "ring0").read_bytes(), 64)

    assert ring.timings == ()
    assert ring.record().timed == len(ring.own) >= 6
