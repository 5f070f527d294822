"""A loss or a gradient norm that is not a number, or many times what it was: from which step on, told by whom. It names nobody.

A reduction hands one rank's value to all: where every rank tells the same, nothing says where it came from. Only ranks that
disagree at the first such step show whose it was, and that is told as evidence; what would decide is missing by nature.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding, analyzer
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, Steps

MOST_RECORDS = 32_768
TIMES, BEFORE, FEWEST = 5.0, 50, 20  # so many times the median of the 50 steps before, of which 20 must be known
BROKEN = "the loss or the gradient norm is not a number"
MISSING = "each rank's loss and gradient norm before the reduction: the first to break is the one to look at"
_NAMES = ("step", "at", "loss", "gradient_norm", "skipped", "nan")


@dataclass(frozen=True, slots=True)
class _Told:
    """One step as one record tells it."""

    step: int
    at: float
    loss: float
    gradient_norm: float
    broken: bool
    rank: int | None
    source: str


@analyzer("numeric")
def analyze(window: Window, _topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Tell from which step on the job's numbers are wrong, if it has not found back: one that passed is history."""
    told = [one for record in window.of(Steps)[:MOST_RECORDS] for one in _steps(record)]
    told.sort(key=lambda one: (one.step, one.at, -1 if one.rank is None else one.rank, one.source))
    if not told:
        return
    newest = [one for one in told if one.step == told[-1].step]
    if any(one.broken for one in newest):
        onset = next(one for one in told if one.broken)
        at_onset = [one for one in told if one.step == onset.step]
        yield _finding("not_a_number", onset, (_said(onset, BROKEN), *_apart(onset, at_onset)))
    else:
        yield from (_finding("spike", newest[0], (said,)) for said in _spikes(told, newest[0]))


def _finding(fault_class: str, onset: _Told, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        analyzer="numeric", family="log", symptom="numeric", cause="unknown", fault_class=fault_class, onset=onset.at,
        evidence=evidence, missing=(MISSING,),
    )  # fmt: skip


def _said(one: _Told, what: str) -> Evidence:
    return Evidence(text=f"step {one.step}: {what}", source=one.source, at=one.at, rank=one.rank)


def _apart(onset: _Told, at_onset: Iterable[_Told]) -> Iterator[Evidence]:
    """Yield which ranks had lost their numbers at the first such step, where others had not."""
    broken = sorted({one.rank for one in at_onset if one.broken and one.rank is not None})
    sound = sorted({one.rank for one in at_onset if not one.broken and one.rank is not None} - set(broken))
    if broken and sound:
        yield _said(onset, f"on rank {ranges(broken)} it is none, on rank {ranges(sound)} it is one")


def _spikes(told: list[_Told], newest: _Told) -> Iterator[Evidence]:
    """Yield what is many times its usual value at the newest step."""
    for name, value in (("loss", newest.loss), ("gradient norm", newest.gradient_norm)):
        field = name.replace(" ", "_")
        by_step = {one.step: float(getattr(one, field)) for one in told if one.step < newest.step}
        before = [each for each in list(by_step.values())[-BEFORE:] if isfinite(each)]
        usual = statistics.median(map(abs, before)) if len(before) >= FEWEST else nan
        if isfinite(value) and abs(value) > TIMES * usual > 0:
            yield _said(newest, f"the {name} is {value:.4g}, {abs(value) / usual:.1f} times the median before")


def _steps(record: Steps) -> Iterator[_Told]:
    """Yield a record's steps, but those that the optimizer left out (ordinary with fp16); of a damaged record none."""
    if not record.columns:
        return
    columns = {name: record.columns.get(name, b"") for name in _NAMES}
    if any(len(data) != record.count * np.dtype(STEP_COLUMNS[name]).itemsize for name, data in columns.items()):
        return
    values = (np.frombuffer(data, STEP_COLUMNS[name]).tolist() for name, data in columns.items())
    for step, at, loss, norm, skipped, broken in zip(*values, strict=True):
        if not skipped:
            yield _Told(step, at, loss, norm, broken > 0, record.rank, record.source)
