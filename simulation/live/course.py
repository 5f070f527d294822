"""What happens to one attempt of a job, span after span, generated as far as it was asked for.

    starting ─► training ─► checkpoint ─► training ─► … ─► ended
                   │  ▲
                   ▼  │ when it is over
                an interruption: a pause, or a fault that does not end

Ranks step in lockstep: a rank that is held up holds up the others, which wait for it in the next collective.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random

from simulation.live.activities import part_of_step
from simulation.live.habits import Habits

KEPT_SECONDS = 900.0
CHUNK_STEPS = 512
CHUNK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """At the first end of a step after ``at`` some ranks do something else for so long; ``inf``: without end.

    ``actors`` empty: every rank. ``before_first``: it comes before the first step.
    """

    at: float
    activity: str
    seconds: float
    actors: frozenset[int] = frozenset()
    wait: str = ""  # where the others wait; empty: where the job's ranks wait by habit
    before_first: bool = False


@dataclass(slots=True)
class Span:
    """What ranks do for a while: the actors (empty: all) one thing, the others wait for them."""

    begin: float
    end: float
    activity: str  # "training", or a name in ``activities``
    step: int  # that had ended when it began
    actors: frozenset[int] = frozenset()
    wait: str = ""
    ends: array[float] = field(default_factory=lambda: array("d"))  # of training: when step + 1, step + 2 … ended

    def does(self, rank: int, at: float, waits_in: str) -> str:
        """Name what a rank does at an instant of this span."""
        if self.activity == "training":
            place = bisect_right(self.ends, at)
            before = self.ends[place - 1] if place else self.begin
            until = self.ends[place] if place < len(self.ends) else self.end
            share = (at - before) / max(until - before, 1e-9)
            activity = part_of_step(min(share + rank * 37 % 11 / 200, 1.0))
            return waits_in if activity == "backward" else activity
        return self.activity if not self.actors or rank in self.actors else self.wait or waits_in


class Course:
    """An attempt's spans, oldest first."""

    def __init__(self, habits: Habits, random: Random, begin: float, first_step: int = 0,
                 interruptions: tuple[Interruption, ...] = (), end: float = inf) -> None:  # fmt: skip
        self.habits, self.random, self.begin, self.end = habits, random, begin, end
        self.stalled_at = inf  # when a fault that does not end struck
        self.first_step_at = inf
        self.spans: deque[Span] = deque()
        self._interruptions = deque(sorted(interruptions, key=lambda one: (not one.before_first, one.at)))
        self._made = self._make(begin, first_step)

    def advance(self, at: float) -> None:
        """Generate what happens up to an instant."""
        while not self.spans or self.spans[-1].end <= at:
            self.spans.append(next(self._made))

    def forget(self, at: float) -> None:
        """Drop the spans that ended long before an instant."""
        while len(self.spans) > 1 and self.spans[0].end < at - KEPT_SECONDS:
            self.spans.popleft()

    def struck(self) -> float:
        """Return when the fault that does not end strikes."""
        while self.stalled_at == inf:
            self.advance(self.spans[-1].end if self.spans else self.begin)
        return self.stalled_at

    def span(self, at: float) -> Span:
        """Return what happens at an instant."""
        self.advance(at)
        return next((span for span in reversed(self.spans) if span.begin <= at), self.spans[0])

    def steps(self, since: float, until: float) -> Iterator[tuple[int, float, float]]:
        """Yield the steps that ended after ``since`` and not after ``until``: number, instant, length."""
        self.advance(until)
        for span in self.spans:
            if span.begin >= until:
                return
            if span.activity == "training" and span.end > since:
                for place in range(bisect_right(span.ends, since), bisect_right(span.ends, until)):
                    before = span.ends[place - 1] if place else span.begin
                    yield span.step + place + 1, span.ends[place], span.ends[place] - before

    def last_steps(self, at: float, most: int) -> list[tuple[int, float, float]]:
        """Return the newest steps that had ended, oldest first: number, instant, length."""
        self.advance(at)
        found: list[tuple[int, float, float]] = []
        for span in reversed(self.spans):
            for place in range(bisect_right(span.ends, at) - 1, -1, -1):
                if len(found) == most:
                    return found[::-1]
                before = span.ends[place - 1] if place else span.begin
                found.append((span.step + place + 1, span.ends[place], span.ends[place] - before))
        return found[::-1]

    def progress(self, at: float) -> float:
        """Return how many steps were taken, the begun one in part."""
        span = self.span(at)
        place = bisect_right(span.ends, at)
        if span.activity != "training" or place == len(span.ends):
            return span.step + len(span.ends)
        before = span.ends[place - 1] if place else span.begin
        return span.step + place + (at - before) / max(span.ends[place] - before, 1e-9)

    def began(self, since: float, until: float) -> Iterator[Span]:
        """Yield the spans that began in an interval."""
        self.advance(until)
        return (span for span in self.spans if since < span.begin <= until)

    def _make(self, now: float, step: int) -> Iterator[Span]:
        """Yield one span after the other, without an end."""
        habits = self.habits
        yield self._plain("importing", now, habits.start_seconds * 0.7, step)
        now += habits.start_seconds * 0.7
        yield self._plain("rendezvous", now, habits.start_seconds * 0.3, step)
        now += habits.start_seconds * 0.3
        while self._interruptions and self._interruptions[0].before_first:
            now = yield from self._interrupt(now, step)
        now += habits.first_step_seconds
        self.first_step_at = now
        yield Span(now - habits.first_step_seconds, now, "training", step, ends=array("d", [now]))
        step += 1
        while True:
            span = self._train(now, step)
            yield span
            now, step = span.end, span.step + len(span.ends)
            while self._interruptions and self._interruptions[0].at <= now:
                now = yield from self._interrupt(now, step)
            now = yield from self._recurring(now, step)

    def _train(self, begin: float, step: int) -> Span:
        """Take steps up to the next interruption of any kind."""
        habits, ends, now = self.habits, array("d"), begin
        recurring = [one for one in (habits.checkpoint_every, habits.evaluation_every, habits.collection_every) if one]
        until = self._interruptions[0].at if self._interruptions else inf
        while len(ends) < CHUNK_STEPS and now - begin < CHUNK_SECONDS:
            now += habits.step(self.random)
            step += 1
            ends.append(now)
            if now >= until or any(step % every == 0 for every in recurring):
                break
        return Span(begin, now, "training", step - len(ends), ends=ends)

    def _recurring(self, now: float, step: int) -> Generator[Span, None, float]:
        """Yield what recurs at this step."""
        habits, alone = self.habits, frozenset({0})
        if habits.collection_every and step % habits.collection_every == 0:
            span = self._plain("collection", now, habits.collection_seconds, step)
            span.actors = frozenset({step // habits.collection_every % 2})
            yield span
            now = span.end
        if habits.checkpoint_every and step % habits.checkpoint_every == 0:
            length = habits.checkpoint_seconds * self.random.uniform(0.8, 1.25)
            span = self._plain("checkpoint", now, length, step)
            span.actors, span.wait = (frozenset() if habits.saved_by_all else alone), "barrier"
            yield span
            now = span.end
        if habits.evaluation_every and step % habits.evaluation_every == 0:
            length = habits.evaluation_seconds * self.random.uniform(0.9, 1.1)
            span = self._plain("evaluation", now, length, step)
            span.actors, span.wait = (frozenset() if habits.evaluated_by_all else alone), "evaluated"
            yield span
            now = span.end
        return now

    def _interrupt(self, now: float, step: int) -> Generator[Span, None, float]:
        one = self._interruptions.popleft()
        if one.seconds == inf:
            self.stalled_at = now
        yield Span(now, now + one.seconds, one.activity, step, one.actors, one.wait)
        return now + one.seconds

    def _plain(self, activity: str, begin: float, seconds: float, step: int) -> Span:
        return Span(begin, begin + seconds, activity, step)
