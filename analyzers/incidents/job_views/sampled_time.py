"""How long each rank works by itself in a step, from samples of its stack: the share outside communication, times the step.

    a step of 0.30 s, a rank outside communication in 62 % of its samples ──► 0.19 s of its own

Where ranks train in step, the late one is outside communication while the others are inside, so that its own time becomes
longer and theirs does not. What it was before is compared, because ranks with more work than others are healthy. Work inside of
a call that also waits (a backward pass that reduces gradients) counts as waiting: of a rank that is slow there nothing is seen.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analyzers.incidents.job_views.minutes import MINUTE_SECONDS, Minutes
from analyzers.knowledge import Knowledge
from analyzers.model.frames import FrameRules
from analyzers.model.standings import WAITING
from collectors.records import Profile

Floats = NDArray[np.float64]
COUNT_A_STEP = 8.0  # samples of one step that count: more of them show the same step again
MOST_SAMPLES = 1e6  # of one profile: more are a lie
_compiled: dict[str, FrameRules] = {}


class Span(NamedTuple):
    """Whole minutes of a span of time, and how long a step took in it."""

    begin: float
    end: float
    step_seconds: float


class SampledTime:
    """The samples of one attempt's ranks."""

    def __init__(self, rows: Sized, knowledge: Knowledge) -> None:
        """``rows``: the ranks."""
        self._knowledge = knowledge
        self._outside = Minutes(rows)  # of the samples, those outside communication
        self._sampled = Minutes(rows)  # seconds that the samples are spread over

    def take(self, row: int, profile: Profile, at: float) -> None:
        """Take the samples of one rank."""
        counted = sum(one.samples for one in profile.stacks if one.samples > 0)
        if not (0 < counted <= profile.samples <= MOST_SAMPLES and 0 < profile.seconds <= MINUTE_SECONDS):
            return
        rules = compiled_rules(self._knowledge)
        waited = sum(one.samples for one in profile.stacks if rules.duty(one.frames).name in WAITING)
        middle = at - profile.seconds / 2
        self._outside.add(row, middle, profile.samples - waited, profile.samples)
        self._sampled.add(row, middle, profile.seconds, 1.0)

    def compare(
        self, before: Span, since: Span, without: Sequence[tuple[float, float]]
    ) -> tuple[Floats, Floats, Floats]:
        """Return of each rank the seconds a step of its own, before and since, and the standard error of their difference.

        ``without``: spans whose samples do not count, as those of a checkpoint are of no step.
        """
        own_before, error_before = self._own(before, without)
        own_since, error_since = self._own(since, without)
        return own_before, own_since, np.hypot(error_before, error_since)

    def _own(self, span: Span, without: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
        outside, samples = self._outside.totals(span.begin, span.end, without)
        seconds, _ = self._sampled.totals(span.begin, span.end, without)
        count = np.minimum(samples, COUNT_A_STEP * seconds / span.step_seconds)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(samples > 0, outside / samples, np.nan)
            smooth = (share * count + 1) / (count + 2)  # samples that are all alike are no certainty
            error = np.sqrt(smooth * (1 - smooth) / count)
        return share * span.step_seconds, error * span.step_seconds


def compiled_rules(knowledge: Knowledge) -> FrameRules:
    """Return the rules, compiled once for all jobs: they remember the stacks that ranks share."""
    if knowledge.hash not in _compiled:
        _compiled.clear()
        _compiled[knowledge.hash] = FrameRules.from_knowledge(knowledge)
    return _compiled[knowledge.hash]
