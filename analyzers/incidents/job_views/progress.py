"""A job's reported steps: the newest step, and for how long no step was reported.

A reporter is a rank's log or its probe. The newest step of each is kept; for a few the whole step series, and the most
frequent of these gives the job's step rhythm. Silence counts only up to where the reporters' nodes have sent everything: a
sender that is late, or a log that is written in large blocks, is not a silent job. Nor is one whose node has no agent: there
silence counts anew from the agent's return.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

import msgspec
import numpy as np

from analyzers.incidents.job_views.loss_anomalies import GOOD_AGAIN, AnomalyScreen, LossAnomaly, find_anomaly
from analyzers.incidents.job_views.node import LOG_EVERY_SECONDS, OVERDUE_SECONDS, PROBE, NodeView
from analyzers.incidents.job_views.pace_changes import CodeSwitch, Slowdown, UsualPace, dated_by_steps
from analyzers.incidents.job_views.standstills import OWN, Standstill, Standstills
from analyzers.incidents.job_views.step_pace import SPAN_SECONDS, StepPace
from analyzers.incidents.job_views.step_rhythm import FEWEST, SHORTEST_SECONDS, StepRhythm, StepRow
from collectors.records import COUNTED, STEP_COLUMNS, Steps

MOST_FOLLOWED = 3
MOST_REPORTERS = 65_536
MOST_KINDS = 64  # readers of logs, and the probe
MOST_LATENESSES = 64
MOST_ROWS = 8_192  # of one record, the newest: an agent that starts reads a whole log, of which the rhythm keeps 512
LATE_FACTOR = 1.25  # a log that is written in blocks is not written at regular times
PROBE_EVERY_SECONDS = 10.0  # an agent reads the probe's rings this often
_KINDS = {name: np.dtype(kind) for name, kind in STEP_COLUMNS.items()}

Key = tuple[int, str]  # rank (-1: the log names none) and kind of reporter


@dataclass(slots=True)
class Reporter:
    """The newest step of a reporter."""

    at: float
    step: int
    node: str


@dataclass(slots=True)
class StepSeries:
    """The steps of a reporter."""

    rhythm: StepRhythm
    latenesses: list[float] = field(
        default_factory=list
    )  # of the newest batches, against the earliest possible reading
    pace: StepPace = field(default_factory=StepPace)
    glance: AnomalyScreen = field(default_factory=AnomalyScreen)
    _trouble: tuple[StepRow, LossAnomaly | None] | None = None  # as of this newest row

    @property
    def late_seconds(self) -> float:
        """Return how late a step may be reported: the second worst lateness, because a single one may be an exception."""
        worst = nlargest(2, self.latenesses)
        return LATE_FACTOR * worst[-1] if worst else 0.0

    def take(self, row: StepRow, *, counted: bool = False) -> None:
        """Add a step. ``counted``: its number is that of its line, and a log may print fewer lines from a moment on."""
        if not counted:
            self.pace.add(row.at, row.step, row.rate)
        if self.rhythm.add(row):
            self.glance.at(row, self.rhythm.rows)

    def update_pace(self, standstills: Standstills) -> None:
        """Look whether a slowdown has begun or ended; one that has begun is dated by the steps that are kept."""
        lasted, pace = self.pace.slowdown, self.pace
        pace.update(standstills, self.rhythm.rows)
        if lasted is None and (found := pace.slowdown) is not None:
            rows, around = self.rhythm.rows, 2 * SPAN_SECONDS + 4 * found.seconds
            at, step = np.array([row.at for row in rows]), np.array([row.step for row in rows], np.int64)
            pace.slowdown = dated_by_steps(found, at, step, around)

    def trouble(self) -> LossAnomaly | None:
        """Return the anomaly of its losses or gradient norms."""
        rows = self.rhythm.rows
        if not self.glance.odd or not rows:  # its steps may be forgotten: another run of the job has begun
            return None
        if self._trouble is None or self._trouble[0] is not rows[-1]:
            self._trouble = rows[-1], find_anomaly(rows)
            self.glance.odd = self._trouble[1] is not None or any(row.nan for row in rows[-GOOD_AGAIN:])
        return self._trouble[1]


@dataclass(slots=True)
class ReporterKind:
    """All reporters of one kind: up to when their steps are here."""

    until: float = 0.0
    looked: bool = False  # rings say when they were read
    since: float = math.inf  # reports begin then: silence before does not count
    nodes: set[str] = field(default_factory=set)


class Progress:
    """The steps of one attempt."""

    def __init__(self) -> None:
        self.step: int | None = None  # the newest
        self.at: float | None = None
        self.reporters: dict[Key, Reporter] = {}
        self.reporter_kinds: dict[str, ReporterKind] = {}
        self.series: dict[Key, StepSeries] = {}
        self.standstills = Standstills()
        self.has_loss = False  # one of them gives a loss, a number or none
        self._other_code: tuple[UsualPace, CodeSwitch] | None = None  # what steps took before, for reporters to come
        self._returned_at: dict[str, float] = {}  # node → when its agent was back after a span without one

    def take(self, steps: Steps, node: NodeView, before: float, received_at: float) -> None:
        """Apply one record. ``before``: ``reported_until`` of its node before this batch."""
        key = (-1 if steps.rank is None else steps.rank, steps.told_by)
        kind = self.reporter_kinds.get(steps.told_by)
        if kind is None:
            if len(self.reporter_kinds) >= MOST_KINDS:
                return
            kind = self.reporter_kinds[steps.told_by] = ReporterKind()
        series = self._follow(key)
        rows = list(_rows(steps, node, received_at, newest_only=series is None))
        reporter = self.reporters.get(key)
        if series is not None and rows:
            read_at = min(before - _every_seconds(steps.told_by), node.logs_until, kind.until or math.inf)
            self._learn_lateness(series, reporter, rows, read_at, node.returned_at)
        for row in rows:
            reporter = self._report(key, node.node, row, reporter)
            if series is not None:
                self.has_loss |= bool(row.nan & 1) or not math.isnan(row.loss)
                series.take(row, counted=steps.told_by.endswith(COUNTED))
        kind.nodes.add(node.node)
        kind.since = min(kind.since, node.reported_until)

    def batch_taken(self, node: NodeView) -> None:
        """Note up to when a node's reporters are here, after a batch."""
        for name, kind in self.reporter_kinds.items():
            if node.node in kind.nodes:
                overdue = OVERDUE_SECONDS if kind.looked else PROBE_EVERY_SECONDS
                kind.until = max(kind.until, node.reported_until - overdue if name == PROBE else node.logs_until)
        for series in self.series.values():
            series.update_pace(self.standstills)
        if node.returned_at > self._returned_at.get(node.node, 0.0):
            self._returned_at[node.node] = node.returned_at
            begin, end = node.absences[-1]
            key = f"{node.node} {begin:.3f}"
            self.standstills.put(Standstill(key=key, since=begin, until=end, why="agent"))

    def looked(self, rank: int, at: float) -> None:
        """Note that a rank's probe was read: its steps until then are here."""
        if (rank, PROBE) in self.reporters:
            kind = self.reporter_kinds[PROBE]
            kind.until, kind.looked = max(kind.until, at), True

    @property
    def lead(self) -> Key | None:
        """Return the most frequent reporter with a step series."""
        found: tuple[float, Key] | None = None
        for key, series in self.series.items():
            median = series.rhythm.median_seconds() if len(series.rhythm.rows) > FEWEST else math.inf
            if found is None or (math.inf if median is None else median, key) < found:
                found = (math.inf if median is None else median, key)
        return None if found is None else found[1]

    @property
    def rhythm(self) -> StepRhythm:
        """Return the job's step rhythm; an empty one without a reporter."""
        lead = self.lead
        return StepRhythm(self.standstills) if lead is None else self.series[lead].rhythm

    @property
    def until(self) -> float:
        """Return up to when the reported steps are here."""
        return max((kind.until for kind in self.reporter_kinds.values()), default=0.0)

    @property
    def silent_seconds(self) -> float:
        """Return for how long no step was reported, as far as that is known."""
        if self.at is None:
            return 0.0
        at_most = self.until - self.at
        lead = self.lead if at_most > SHORTEST_SECONDS else None  # slower to compute
        if lead is None:
            return max(0.0, at_most)
        kind = self.reporter_kinds[lead[1]]
        returned_at = self._returned_at.get(self.reporters[lead].node, 0.0) if lead in self.reporters else 0.0
        return kind.until - self.series[lead].late_seconds - max(self.at, kind.since, returned_at)

    @property
    def allowed_seconds(self) -> float:
        """Return for how long no step may be reported now."""
        return self.rhythm.allowed_seconds(self.step)

    @property
    def slowdown(self) -> Slowdown | None:
        """Return the slowdown that lasts, by the most frequent reporter that reports one."""
        pace = self._slow_pace
        return None if pace is None else pace.slowdown

    @property
    def recovered_at(self) -> float | None:
        """Return since when its steps seem as short as before; None: it lasts, or there is none."""
        pace = self._slow_pace
        return None if pace is None else pace.recovered_at()

    @property
    def _slow_pace(self) -> StepPace | None:
        lead = self.lead
        paces = (self.series[key].pace for key in sorted(self.series, key=lambda key: (key != lead, key)))
        return next((one for one in paces if one.slowdown is not None), None)

    def slowdown_after(self, at: float) -> Slowdown | None:
        """Return the newest slowdown that was over after an instant; None: it lasts, or is not known."""
        past = [one for series in self.series.values() for one in series.pace.past if (one.until or 0.0) > at]
        return max(past, key=lambda one: one.until or 0.0, default=None)

    def slowdowns_before(self, at: float) -> list[tuple[float, float]]:
        """Return since when and until when the job was slow before an instant."""
        past = (one for series in self.series.values() for one in series.pace.past if not one.adopted)
        return [(one.since, one.until) for one in past if one.until is not None and one.until <= at]

    @property
    def forgotten_at(self) -> float:
        """Return since when another pace may be usual: another run, or other code, has begun."""
        return max((series.pace.forgotten_at for series in self.series.values()), default=0.0)

    def usual_pace(self) -> UsualPace | None:
        """Return what steps take now by the most frequent reporter; None: too little is known."""
        lead = self.lead
        return None if lead is None else self.series[lead].pace.usual(self.standstills)

    def compare_with(self, before: UsualPace, code: CodeSwitch) -> None:
        """Compare the steps from now on with what they took under other code."""
        self._other_code = before, code
        for series in self.series.values():
            series.pace.compare_with(before, code)

    def trouble(self) -> LossAnomaly | None:
        """Return the anomaly of the first reporter that shows one."""
        found = (self.series[key].trouble() for key in sorted(self.series))
        return next((one for one in found if one is not None), None)

    def _follow(self, key: Key) -> StepSeries | None:
        """Return the series of a reporter that is among the first few by rank."""
        series = self.series.get(key)
        if series is None and (len(self.series) < MOST_FOLLOWED or key < max(self.series)):
            series = self.series[key] = StepSeries(StepRhythm(self.standstills))
            if self._other_code is not None:
                series.pace.compare_with(*self._other_code)
            if len(self.series) > MOST_FOLLOWED:
                del self.series[max(self.series)]
        return series

    def document(self) -> dict[str, Any]:
        """Return what is learned of the rhythm, and what is left out of it, as plain values; ``restore`` takes it."""
        return {
            "step": self.step, "at": self.at, **self.rhythm.document(), "allowed_seconds": _finite(self.allowed_seconds),
            "reporter": None if (lead := self.lead) is None else list(lead), "silent_seconds": self.silent_seconds,
            "pace": None if lead is None else self.series[lead].pace.document(), "has_loss": self.has_loss,
            "standstills": [msgspec.to_builtins(one) for one in self.standstills],
        }  # fmt: skip

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what an earlier engine had learned; what has ended since is in the log, or with its incident."""
        for plain in document.get("standstills", ()):
            one = msgspec.convert(plain, Standstill)
            if one.until is not None:
                self.standstills.put(one)
        self.has_loss |= bool(document.get("has_loss"))
        if reporter := document.get("reporter"):
            series = self._follow((int(reporter[0]), str(reporter[1])))
            if series is not None:
                series.rhythm.restore(document)
                series.pace.restore(document.get("pace") or {})

    def forget(self, before_at: float) -> None:
        """Forget the rhythm from before an instant: another run, or other code, has another."""
        for series in self.series.values():
            series.rhythm.forget(before_at)
            series.pace.forget(before_at)

    def _learn_lateness(
        self, series: StepSeries, reporter: Reporter | None, rows: list[StepRow], until: float, returned_at: float
    ) -> None:
        """Learn how late steps come from a log that is written through a buffer.

        In the first batch of a node the earliest possible reading of its oldest step is unknown. A writer that was stopped, and
        a reader that was away, are not late.
        """
        first = next((row.at for row in rows if reporter is None or row.at > reporter.at), None)
        held = self.standstills.during(first, max(first, until)) - OWN if first is not None else frozenset()
        if first is not None and first > returned_at and not held:
            late = max(0.0, until - first) if until > 0.0 else rows[-1].at - first
            series.latenesses = [*series.latenesses[1 - MOST_LATENESSES :], late]

    def _report(self, key: Key, node: str, row: StepRow, reporter: Reporter | None) -> Reporter | None:
        if reporter is None:
            if len(self.reporters) >= MOST_REPORTERS:
                return None
            reporter = self.reporters[key] = Reporter(row.at, row.step, node)
        elif (row.at, row.step) > (reporter.at, reporter.step):
            reporter.at, reporter.step, reporter.node = row.at, row.step, node
        if self.at is None or (row.at, row.step) > (self.at, self.step or 0):
            self.at, self.step = row.at, row.step
        return reporter


def _every_seconds(told_by: str) -> float:
    return PROBE_EVERY_SECONDS if told_by == PROBE else LOG_EVERY_SECONDS


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _rows(steps: Steps, node: NodeView, received_at: float, *, newest_only: bool) -> Iterator[StepRow]:
    """Yield the steps by the service's clock. A step without an instant is left out, except the last, which came just now."""
    newest = 1 if newest_only else MOST_ROWS
    numbers, instants = newest_values(steps, "step", newest), newest_values(steps, "at", newest)
    losses, norms, nans, skips = (
        ([], [], [], [])
        if newest_only
        else (newest_values(steps, name, newest) for name in ("loss", "gradient_norm", "nan", "skipped"))
    )
    rates = [] if newest_only else _rates(steps, newest)
    last = min(len(numbers), len(instants)) - 1
    odd_since: int | None = None
    for index in range(last + 1):
        at = instants[index]
        nan = int(nans[index]) if index < len(nans) else 0
        loss = losses[index] if index < len(losses) else math.nan
        if nan & 1 or math.isinf(loss):
            odd_since = int(numbers[index]) if odd_since is None else odd_since
        elif not (index < len(skips) and skips[index]):
            odd_since = None
        if at != at or node.impossible(at, received_at):  # noqa: PLR0124 it is NaN
            if index < last or steps.at is None or node.impossible(steps.at, received_at):
                continue
            at = steps.at
        yield StepRow(
            node.here(at, received_at),
            int(numbers[index]),
            loss,
            norms[index] if index < len(norms) else math.nan,
            nan,
            int(skips[index]) if index < len(skips) else 0,
            odd_since,
            rates[index] if index < len(rates) else math.nan,
        )


def _rates(steps: Steps, newest: int) -> list[float]:
    """Return what is done a second: the first of these that the log has."""
    found: list[float] = []
    for name in ("tokens_per_second", "samples_per_second", "tflops"):
        found = newest_values(steps, name, newest)
        if any(map(math.isfinite, found)):
            break
    return found


def newest_values(steps: Steps, name: str, newest: int) -> list[float]:
    """Return the last values of a column, as many at most; what a cut left of the last one is dropped."""
    kind = _KINDS[name]
    data = steps.columns.get(name, b"")
    count = len(data) // kind.itemsize
    first = max(0, count - newest)
    values: list[float] = np.frombuffer(data, kind, count - first, first * kind.itemsize).tolist() if count else []
    return values
