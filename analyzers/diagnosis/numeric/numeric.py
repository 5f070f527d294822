"""A loss or a gradient norm that is not a number, or many times its usual value: since which step, and on which ranks.

A reduction hands one rank's value to all: where every rank reports the same, nothing shows where it came from. Where few
ranks report it first while the others still report numbers of their own, those are suspects, to be tested and never evicted
for it: a batch of bad data on one rank is no different from a faulty device. Where all ranks report it at one step, it is
the code's or the data's. What would decide is in ``missing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from analyzers.diagnosis.numeric import replicas
from analyzers.diagnosis.numeric.lasting import lasting, skipped
from analyzers.diagnosis.numeric.spikes import FEWEST, jump, passed, spikes_in
from analyzers.diagnosis.numeric.step_rows import (
    LASTS,
    LOSS,
    MISSING,
    MOST_SUSPECTS,
    NULL,
    OF_LOSS,
    SOME,
    ZERO,
    Rows,
    evidence_of,
    finding,
    place,
    read_rows,
    tail_of,
)
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import LogEvent, Steps

MOST_RECORDS = 32_768
# An odd gradient norm is noise unless a second one lies within so many steps: fp16 training skips such a step.
WITHIN = 3
WARMED_UP = 1000  # at this step no loss scale is still sought: each overflow halves it
MOST_LISTED = 4  # ranks one by one, more as ranges
TAIL, LONG_TAIL, MOST_ROWS = 64, 512, 16_384  # of one record, the rows that are read: more of fewer records
REPLAY = "a replay of step {} on another node: the same NaN there is the data's or the program's, not the device's"

FIRST_ALONE, FIRST_FEW = 0.6, 0.45  # the strength of one rank that broke first, and of several together
AT_ONCE, WHOLE = 0.55, 0.5


def analyze(window: Window, topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Report since which step the job's numbers are wrong, unless they came back: what passed is history."""
    if window.onset is None or not window.live:  # wrong parameters hold no job up
        yield from replicas.compare(window, topology)
    records = window.records_of(Steps)[:MOST_RECORDS]
    every = [rows for number, record in enumerate(records) if len(rows := read_rows(record, number))]
    if not every:
        yield from (_of_whole(finding("not_a_number", line)) for line in _lines(window))
        return
    tail = max(TAIL, min(LONG_TAIL, MOST_ROWS // len(every)))
    rows = np.concatenate([tail_of(each, tail) for each in every])
    rows = rows[np.lexsort((rows["record"], rows["rank"], rows["at"], rows["step"]))]
    onset = _onset(rows, every)
    if onset is not None:
        first_lines = _first_lines(window, every)
        onset = min(onset, *first_lines.values()) if first_lines else onset
        at_onset = np.concatenate([each[each["step"] == onset] for each in every])
        broken, sound = _ranks(at_onset, onset, first_lines)
        began = _not_a_number(window, records, at_onset if len(at_onset) else rows, broken, sound, onset)
        missing = REPLAY.format(onset) if broken and sound else MISSING
        made = finding("not_a_number", began, *_lines(window, broken if sound else ()), missing=missing)
        yield (
            _of_whole(made)
            if (rows["rank"] < 0).all()
            else _blamed(made, broken, sound, topology, of_loss=_of_loss(at_onset, first_lines))
        )
    else:
        spikes = list(spikes_in(records, rows, topology))
        whole = every[0] if len(every) == 1 else rows
        if window.live:
            yield from spikes or passed(records, rows, topology)
            return
        found = spikes or [*jump(records, whole), *skipped(records)]
        yield from found or lasting(records, max(every, key=len))


def _of_whole(made: Finding) -> Finding:
    """Add the code to what one log shows of the whole job, without a rank: seldom is one device the origin."""
    said = made.evidence[0]
    if said.rank is not None:
        return made
    why = f"{said.text}: the code, the data or a setting; a value of the whole job shows no rank, and seldom begins on one device"
    return replace(made, cause="code", suspects=(Suspect(kind="code", strength=WHOLE, why=why, evidence=(said,)),))


def _first_lines(window: Window, every: Sequence[Rows]) -> dict[int, int]:
    """Return the step at which each rank's log first printed a loss that is none, as far as its later steps do not deny it.

    An agent sends such a line once; of a rank's steps a live window holds the newest.
    """
    denied: dict[int, int] = {}  # of the ranks with steps
    for rows in every:
        denied.setdefault(int(rows["rank"][0]), -1)
        sound = rows["step"][np.isfinite(rows["loss"]) & ((rows["odd"] & LASTS) == 0)]
        if len(sound) and rows["numbered"].any():
            denied[int(rows["rank"][0])] = max(denied.get(int(rows["rank"][0]), -1), int(sound.max()))
    found: dict[int, int] = {}
    for event in window.records_of(LogEvent):
        if event.event == "nan" and event.step is not None and event.rank is not None:
            rank, step = event.rank, event.step
            if step > denied.get(rank, step) and step < found.get(rank, step + 1):
                found[rank] = step
    return found


def _of_loss(at_onset: Rows, first_lines: dict[int, int]) -> bool:
    """Whether it is a loss that is none, and not a norm alone, which is of all ranks' gradients."""
    return bool(first_lines) or bool((at_onset["odd"] & OF_LOSS).any())


def _blamed(
    made: Finding, broken: Sequence[int], sound: Sequence[int], topology: Topology, *, of_loss: bool
) -> Finding:
    """Add whom the first odd step points at: the few ranks that were the first, or what all of them share."""
    said = made.evidence[0]
    if broken and len(broken) <= len(sound):
        strength = FIRST_ALONE if len(broken) == 1 else FIRST_FEW / len(broken)
        why = f"{said.text}: its data or its device"
        suspects = tuple(
            Suspect(
                kind="rank", strength=strength, why=why, ranks=(rank,), node=topology.nodes.get(rank), evidence=(said,)
            )
            for rank in broken[:MOST_SUSPECTS]
        )
        return replace(made, suspects=suspects if len(broken) <= MOST_SUSPECTS else ())
    if len(broken) > 1 and not sound and of_loss:
        why = f"{said.text}: the code or the data, or what one rank's gradients gave to all in the step before"
        shared = Suspect(kind="code", strength=AT_ONCE, why=why, evidence=(said,))
        return replace(made, cause="code", suspects=(shared,))
    return made


def _onset(rows: Rows, every: Sequence[Rows]) -> int | None:
    """Return the first of the steps that are odd without a break until the newest; None where it is sound, or noise.

    ``every``: the whole records. A job that recovered from as many odd steps before can recover from these.
    """
    steps, first = np.unique(rows["step"], return_index=True)
    odd = np.bitwise_or.reduceat(rows["odd"], first)
    sound = np.flatnonzero(odd == 0)
    run = odd[int(sound[-1]) + 1 if len(sound) else 0 :]
    if not len(run):
        return None
    newest = odd[-WITHIN:]
    of_norm_alone = not (run & LASTS).any()
    # fp16 training begins with a loss scale that overflows until it is small enough; a log may begin later.
    begins = not len(sound) and len(steps) < FEWEST and int(steps[0]) < WARMED_UP
    if of_norm_alone and (np.count_nonzero(newest) < 2 or begins):
        return None
    if not of_norm_alone and len(run) <= min(TAIL, max(map(_longest_passed, every))):
        return None
    return int(steps[len(steps) - len(run)])


def _longest_passed(rows: Rows) -> int:
    """Return how many steps in a row reported a loss that is not a number, before one reported a number again."""
    sound = np.flatnonzero((rows["odd"] & LASTS) == 0)
    return int(np.diff(sound, prepend=-1).max(initial=1)) - 1


def _ranks(at_onset: Rows, onset: int, first_lines: dict[int, int]) -> tuple[list[int], list[int]]:
    """Return the ranks that report an odd value at the first step, and those that report a sound one there.

    A stage without a loss may print 0. A rank whose first line without a number is of a later step was sound at this one.
    """
    lost = (at_onset["odd"] & OF_LOSS) > 0
    at_first = {rank for rank, step in first_lines.items() if step == onset}
    # A norm is of all ranks' gradients: at the first step one rank's loss is enough to make it NaN for all.
    odd = lost if at_first or (lost & (at_onset["rank"] >= 0)).any() else at_onset["odd"] > 0
    own = np.isfinite(at_onset["loss"]) & (at_onset["loss"] != 0.0) & ~lost
    own |= np.isfinite(at_onset["gradient_norm"]) & (at_onset["odd"] == 0)
    broken = {int(rank) for rank in at_onset["rank"][odd] if rank >= 0} | at_first
    sound = {int(rank) for rank in at_onset["rank"][own & ~odd] if rank >= 0}
    if broken:
        sound |= first_lines.keys() - at_first
    return sorted(broken), sorted(sound - broken)


def _not_a_number(
    window: Window, records: Sequence[Steps], rows: Rows, broken: Sequence[int], sound: Sequence[int], onset: int
) -> Evidence:
    """Write the first odd step. ``rows``: what every record reports of it, or where none does, all that is reported."""
    lost = (rows["odd"] & LOSS) > 0
    odd = rows[lost & np.isin(rows["rank"], broken)] if broken and lost.any() else rows[rows["odd"] > 0]
    lines = [event for event in window.records_of(LogEvent) if event.event == "nan" and event.step == onset]
    line = next((event for event in lines if event.rank in broken), None)
    first = odd[0] if len(odd) else rows[-1]
    what = "loss" if line is not None or (odd["odd"] & LOSS).any() else "gradient norm"
    value = float(first["loss" if what == "loss" else "gradient_norm"])
    where = f"at step {onset}" if first["numbered"] else f"in report {onset} of the log"
    none = "null (JSON's form of NaN)" if first["odd"] & NULL else "NaN"
    text = f"the {what} becomes {'infinite' if np.isinf(value) else none} {where}"
    if first["odd"] & SOME:
        text = f"the loss of some steps is NaN in each report since {place(first)}"
    elif what != "loss" and (odd["odd"] & ZERO).any():
        text += ", beside a loss of exactly 0"
    if broken and sound:
        alone = " alone" if len(broken) == 1 else ""
        report = "report" if len(sound) > 1 else "reports"
        text += f" on {_named(broken)}{alone}, while {_named(sound)} still {report} a number"
    elif len(broken) > 1:
        text += f" on all {len(broken)} ranks that report it"
    if line is not None and (not len(odd) or int(first["step"]) != onset):
        return Evidence(text=text, source=line.source, at=line.at, rank=line.rank)
    return evidence_of(records, first, text)


def _named(ranks: Sequence[int]) -> str:
    """Return ``rank 2``, ``ranks 0, 1 and 3``, and for more than four ``ranks 0-1 and 3-7``."""
    spans = [str(rank) for rank in ranks] if len(ranks) <= MOST_LISTED else ranges(ranks).split(",")
    said = f"{', '.join(spans[:-1])} and {spans[-1]}" if len(spans) > 1 else spans[0]
    return f"rank{'s' if len(ranks) > 1 else ''} {said}"


def _lines(window: Window, ranks: Sequence[int] = ()) -> Iterator[Evidence]:
    """Yield the first line, of these ranks if given, that prints a loss that is not a number."""
    lines = [event for event in window.records_of(LogEvent) if event.event == "nan"]
    if ranks:
        lines = [event for event in lines if event.rank in ranks]
    if lines:
        first = min(lines, key=lambda event: (event.at is None, event.at or 0.0, *_place(event.source)))
        text = f"the loss is not a number: {first.text}"
        yield Evidence(text=text, source=first.source, at=first.at, rank=first.rank)


def _place(source: str) -> tuple[str, int]:
    """Split "train.log:812", so that line 30 comes before line 120."""
    name, _, line = source.rpartition(":")
    return (name, int(line)) if line.isdigit() else (source, 0)
