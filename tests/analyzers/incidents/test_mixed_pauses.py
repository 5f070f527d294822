"""A pause, and what may follow it within one silence: that teaches silence at its place alone."""

from __future__ import annotations

import pytest

from analyzers.incidents.messages import EngineInstruction, Judge
from analyzers.incidents.recurrence import shown_by
from analyzers.model.verdict import Verdict
from tests.analyzers.incidents.test_repeated_stops import NOTHING, PAUSE, Engine, apart, stopped
from tests.support.watched_jobs import WatchedJob

HEALTHY = Verdict(symptom="healthy", cause="none", abstained=False)


@pytest.mark.parametrize(
    ("before", "shown"), [("pause", "place"), ("place", "place"), ("", "unknown"), ("fault", "unknown")]
)
def test_a_healthy_verdict_does_not_take_a_pause_back(before: str, shown: str) -> None:
    """A healthy verdict explains nothing by itself, and an abstention is none."""
    assert shown_by(HEALTHY, before) == shown
    assert shown_by(NOTHING, before) == "unknown"


def test_a_fault_that_follows_a_pause_teaches_no_silence_elsewhere() -> None:
    """A first verdict on each stop says pause, a later one healthy: stops at other places are reported as soon as before."""
    stops = apart(237.0, [90.0] * 4 + [110.0, 120.0], between=190.0)
    judged = set[str]()

    class Mixed(Engine):
        def _note(self, one: EngineInstruction, at: float) -> None:
            if isinstance(one, Judge):
                self.verdict = HEALTHY if one.incident in judged else PAUSE
                judged.add(one.incident)
            super()._note(one, at)

    reported = Mixed().run(WatchedJob(law=stopped(stops)), 0.0, stops[-1][0] + 300.0).reported(stops)

    assert all(after is not None and after <= 40.0 for after in reported), reported
