"""Since which step a job is slow: the step that its lines show, and not the first of a span of ten seconds."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest

from analyzers.incidents.job_views import JobView
from collectors.records import Record, Steps
from tests.support.watched_jobs import START, WatchedJob, feed, watched

BEGAN_AFTER = 1_560


@pytest.mark.parametrize(
    ("seconds", "noise", "off"), [(0.665, 0.01, 1), (0.665, 0.1, 4), (5.0, 0.03, 1), (0.3, 0.02, 2)]
)
@pytest.mark.parametrize("times", [1.2, 1.42, 3.0])
def test_a_slowdown_began_after_the_step_that_the_lines_show(
    seconds: float, noise: float, off: int, times: float
) -> None:
    """As exactly as steps are even; its instant is that step's."""

    def law(step: int, source: random.Random) -> float:
        return seconds * math.exp(source.gauss(0, noise)) * (times if step > BEGAN_AFTER else 1.0)

    job = WatchedJob(nodes=1, law=law)
    view = watched(job, BEGAN_AFTER * seconds + 300.0 + 40 * seconds)

    found = view.progress.slowdown

    assert found is not None
    assert abs(found.step - BEGAN_AFTER) <= off
    assert found.since - START == pytest.approx(dict(job.done)[found.step], abs=0.1)


def test_stamps_of_whole_seconds_and_a_pause_beside_it_move_it_little() -> None:
    """Each stamp is up to a second early, and a checkpoint of half a minute was written five steps before."""

    def law(step: int, source: random.Random) -> float:
        pause = 30.0 * (step == BEGAN_AFTER - 5)
        return 0.665 * math.exp(source.gauss(0, 0.02)) * (1.5 if step > BEGAN_AFTER else 1.0) + pause

    def coarse(record: Record) -> Record:
        if not isinstance(record, Steps):
            return record
        stamps = np.floor(np.frombuffer(record.columns["at"], np.float64))
        return msgspec.structs.replace(record, columns={**record.columns, "at": stamps.tobytes()})

    batches = WatchedJob(nodes=1, law=law).batches(0.0, 1_300.0)
    given = (msgspec.structs.replace(one, records=tuple(map(coarse, one.records))) for one in batches)
    found = feed(JobView("run", 0), given).progress.slowdown

    assert found is not None
    assert abs(found.step - BEGAN_AFTER) <= 6
