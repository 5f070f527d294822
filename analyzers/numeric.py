"""A loss or a gradient norm that is not a number: which step, told by whom. It names nobody.

A reduction hands one rank's value to all: where every rank tells the same, nothing says where it came from. Only ranks that
disagree at the first such step show whose it was, and that is told as evidence; what would decide is missing by nature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.finding import Evidence, Finding, analyzer
from analyzers.knowledge import Knowledge
from analyzers.ranges import ranges
from analyzers.topology import Topology
from analyzers.window import Window
from collectors.records import STEP_COLUMNS, Steps

MOST_TELLERS = 32_768
MISSING = "each rank's loss or gradient norm before the reduction: the first that is not a number is the one to look at"


@dataclass(frozen=True, slots=True)
class _Told:
    """One step as one record tells it."""

    step: int
    at: float
    broken: bool  # the loss or the gradient norm is not a number
    skipped: bool  # the optimizer left it out: ordinary with fp16
    rank: int | None
    source: str


@analyzer("numeric")
def analyze(window: Window, _topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Tell the first step from which the job's numbers are none, if it has not found back."""
    told = [one for record in window.of(Steps)[:MOST_TELLERS] for one in _steps(record) if not one.skipped]
    if not told or not _broken_at_the_end(told):
        return
    onset = min((one for one in told if one.broken), key=lambda one: (one.step, one.at, one.source))
    at_onset = [one for one in told if one.step == onset.step]
    yield Finding(
        analyzer="numeric",
        family="log",
        symptom="numeric",
        cause="unknown",
        fault_class="not_a_number",
        scope=frozenset(one.rank for one in at_onset if one.rank is not None),
        onset=onset.at,
        evidence=tuple(_evidence(onset, at_onset)),
        missing=(MISSING,),
    )


def _evidence(onset: _Told, at_onset: list[_Told]) -> Iterator[Evidence]:
    yield Evidence(
        text=f"step {onset.step}: the loss or the gradient norm is not a number",
        source=onset.source, at=onset.at, rank=onset.rank,
    )  # fmt: skip
    broken = sorted({one.rank for one in at_onset if one.broken and one.rank is not None})
    sound = sorted({one.rank for one in at_onset if not one.broken and one.rank is not None} - set(broken))
    if broken and sound:
        text = f"at step {onset.step} it is none on rank {ranges(broken)} and one on rank {ranges(sound)}"
        yield Evidence(text=text, source=onset.source, at=onset.at)


def _broken_at_the_end(told: list[_Told]) -> bool:
    """Whether the newest step that is told is still without a number: a spike that passed is history."""
    newest: dict[int, list[bool]] = defaultdict(list)
    for one in told:
        newest[one.step].append(one.broken)
    return any(newest[max(newest)])


def _steps(record: Steps) -> Iterator[_Told]:
    """Yield a record's steps; of one whose columns do not fit its count, none."""
    columns = {name: record.columns.get(name, b"") for name in ("step", "at", "skipped", "nan")}
    if any(len(data) != record.count * np.dtype(STEP_COLUMNS[name]).itemsize for name, data in columns.items()):
        return
    values = {name: np.frombuffer(data, STEP_COLUMNS[name]) for name, data in columns.items()}
    for step, at, skipped, nan in zip(*(values[name].tolist() for name in columns), strict=True):
        yield _Told(step, at, nan > 0, skipped > 0, record.rank, record.source)
