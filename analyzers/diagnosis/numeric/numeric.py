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
from numpy.typing import NDArray

from analyzers.diagnosis.numeric import replicas
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.usual_values import usual_value
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, LogEvent, Steps

MOST_RECORDS = 32_768
TIMES, BEFORE, FEWEST = 5.0, 50, 20  # so many times the usual value of the 50 steps before, of which 20 must be known
FEW_STEPS, STEADY = (
    5,
    2.0,
)  # a jump in a short log: so many steps before and after it, and those before within so many times
# An odd gradient norm is noise unless a second one lies within so many steps: fp16 training skips such a step.
WITHIN = 3
WARMED_UP = 1000  # at this step no loss scale is still sought: each overflow halves it
MOST_SUSPECTS = 8
MOST_LISTED = 4  # ranks one by one, more as ranges
TAIL, LONG_TAIL, MOST_ROWS = 64, 512, 16_384  # of one record, the rows that are read: more of fewer records
SKIPPED = 4  # so many newest steps skipped, all with a NaN loss: a smaller loss scale does not repair a loss
MISSING = "each rank's loss and gradient norm before the reduction: the first to break is the one to check"
REPLAY = "a replay of step {} on another node: the same NaN there is the data's or the program's, not the device's"

FIRST_ALONE, FIRST_FEW = 0.6, 0.45  # the strength of one rank that broke first, and of several together
AT_ONCE, WHOLE = 0.55, 0.5
RECENT, RECENT_SECONDS = 10, 120.0  # steps and time in which the incident of a live job that recovered is judged
# The first two as in the column ``nan``. ZERO: a norm that is NaN beside a loss of exactly 0; transformers leaves a loss that
# is NaN out of the mean that it prints, which is 0 where there was no other.
# APPLIED, also a bit of that column: the step was taken with such a norm, and no loss scale could be lowered for it.
# NULL, another: the loss is given as null, as JSON without NaN has it.
LOSS, NORM, ZERO, APPLIED, NULL = 1, 2, 4, 8, 16
OF_LOSS = LOSS | ZERO
LASTS = OF_LOSS | APPLIED
_ROW = np.dtype([
    ("step", "<i8"), ("numbered", "?"), ("at", "<f8"), ("loss", "<f8"), ("gradient_norm", "<f8"), ("odd", "<i1"),
    ("rank", "<i8"), ("record", "<i8"),
])  # fmt: skip
_COLUMNS = ("step", "at", "loss", "gradient_norm", "skipped", "nan")
Rows = NDArray[np.void]


def analyze(window: Window, topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Report since which step the job's numbers are wrong, unless they came back: what passed is history."""
    if window.onset is None or not window.live:  # wrong parameters hold no job up
        yield from replicas.compare(window, topology)
    records = window.records_of(Steps)[:MOST_RECORDS]
    every = [rows for number, record in enumerate(records) if len(rows := _rows(record, number))]
    if not every:
        yield from (_of_whole(_finding("not_a_number", line)) for line in _lines(window))
        return
    tail = max(TAIL, min(LONG_TAIL, MOST_ROWS // len(every)))
    rows = np.concatenate([_tail(each, tail) for each in every])
    rows = rows[np.lexsort((rows["record"], rows["rank"], rows["at"], rows["step"]))]
    onset = _onset(rows, every)
    if onset is not None:
        first_lines = _first_lines(window, every)
        onset = min(onset, *first_lines.values()) if first_lines else onset
        at_onset = np.concatenate([each[each["step"] == onset] for each in every])
        broken, sound = _ranks(at_onset, onset, first_lines)
        began = _not_a_number(window, records, at_onset if len(at_onset) else rows, broken, sound, onset)
        missing = REPLAY.format(onset) if broken and sound else MISSING
        made = _finding("not_a_number", began, *_lines(window, broken if sound else ()), missing=missing)
        yield (
            _of_whole(made)
            if (rows["rank"] < 0).all()
            else _blamed(made, broken, sound, topology, of_loss=_of_loss(at_onset, first_lines))
        )
    else:
        spikes = list(_spikes(records, rows))
        yield from spikes or (_passed(records, rows) if window.live else _jump(records, rows))


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


def _rows(record: Steps, number: int) -> Rows:
    """Return the steps that report a loss or a norm, in the log's order, but those that the optimizer skipped.

    Skipped steps count where all of the newest were skipped with a loss that is not a number.
    Steps without a number are numbered as they come. A number that comes again later means a restart from a checkpoint:
    what was reported between is history. A record with damaged columns has no rows.
    """
    if not record.columns:
        return np.zeros(0, _ROW)
    columns = {name: record.columns.get(name, b"") for name in _COLUMNS}
    if any(len(data) != record.count * np.dtype(STEP_COLUMNS[name]).itemsize for name, data in columns.items()):
        return np.zeros(0, _ROW)
    rows = np.zeros(record.count, _ROW)
    values = {name: np.frombuffer(data, STEP_COLUMNS[name]) for name, data in columns.items()}
    for name in ("step", "at", "loss", "gradient_norm"):
        rows[name] = values[name]
    rows["odd"] = (
        (values["nan"] & (LOSS | NORM | APPLIED | NULL))
        | np.isinf(rows["loss"]) * LOSS
        | np.isinf(rows["gradient_norm"]) * NORM
        | ((values["nan"] & NORM) > 0) * (rows["loss"] == 0.0) * ZERO
    )
    rows["rank"] = -1 if record.rank is None else record.rank
    rows["record"] = number
    unnumbered = rows["step"] < 0
    rows["numbered"] = ~unnumbered
    rows["step"][unnumbered] = np.flatnonzero(unnumbered) + 1
    reports = (rows["odd"] > 0) | np.isfinite(rows["loss"]) | np.isfinite(rows["gradient_norm"])
    skipped = values["skipped"] != 0
    if skipped[-SKIPPED:].all():
        skipped = skipped & ~_to_the_end(skipped & ((rows["odd"] & LASTS) > 0))
    rows = rows[reports & ~skipped]
    newest_after = np.minimum.accumulate(rows["step"][::-1])[::-1]
    kept: Rows = rows[rows["step"] - 1 <= newest_after]
    return kept


def _to_the_end(odd: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the newest rows that are odd without a break, if they are at least SKIPPED."""
    sound = np.flatnonzero(~odd)
    first = int(sound[-1]) + 1 if len(sound) else 0
    return (np.arange(len(odd)) >= first) & (len(odd) - first >= SKIPPED)


def _tail(rows: Rows, count: int) -> Rows:
    """Return the newest rows, and the first of the odd ones that last until now."""
    if len(rows) <= count:
        return rows
    sound = np.flatnonzero(rows["odd"] == 0)
    first = min(int(sound[-1]) + 1 if len(sound) else 0, len(rows) - count)
    return np.concatenate([rows[first : first + 1], rows[-count:]])


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
    if what != "loss" and (odd["odd"] & ZERO).any():
        text += ", beside a loss of exactly 0"
    if broken and sound:
        alone = " alone" if len(broken) == 1 else ""
        report = "report" if len(sound) > 1 else "reports"
        text += f" on {_named(broken)}{alone}, while {_named(sound)} still {report} a number"
    elif len(broken) > 1:
        text += f" on all {len(broken)} ranks that report it"
    if line is not None and (not len(odd) or int(first["step"]) != onset):
        return Evidence(text=text, source=line.source, at=line.at, rank=line.rank)
    return _evidence(records, first, text)


def _named(ranks: Sequence[int]) -> str:
    """Return ``rank 2``, ``ranks 0, 1 and 3``, and for more than four ``ranks 0-1 and 3-7``."""
    spans = [str(rank) for rank in ranks] if len(ranks) <= MOST_LISTED else ranges(ranks).split(",")
    said = f"{', '.join(spans[:-1])} and {spans[-1]}" if len(spans) > 1 else spans[0]
    return f"rank{'s' if len(ranks) > 1 else ''} {said}"


def _where(row: np.void) -> str:
    return f"at step {row['step']}" if row["numbered"] else f"in report {row['step']} of the log"


def _spikes(records: Sequence[Steps], rows: Rows) -> Iterator[Finding]:
    """Yield what is many times its usual value at the newest step."""
    last = np.append(rows["step"][1:] != rows["step"][:-1], True)
    newest = rows[rows["step"] == rows["step"][-1]][0]
    for field in ("loss", "gradient_norm"):
        before = rows[last][:-1][field]
        value = float(newest[field])
        usual = _usual(np.abs(before[np.isfinite(before)]), abs(value))
        if np.isfinite(value) and abs(value) > TIMES * usual > 0:
            size = f"{abs(value) / usual:.1f} times the usual value of the steps before"
            text = f"the {field.replace('_', ' ')} is {value:.4g} {_where(newest)}, {size}"
            yield _finding("spike", _evidence(records, newest, text))


@np.errstate(over="ignore")  # a loss may be any number
def _usual(before: NDArray[np.float64], value: float) -> float:
    """Return the usual value of those before, without those that were many times it themselves: a spike may last."""
    if len(before) < FEWEST or not value > TIMES * before.min():
        return np.nan
    kept: list[float] = []
    for one in before.tolist():
        if len(kept) < FEWEST or one <= TIMES * usual_value(kept[-BEFORE:]):
            kept.append(one)
    return usual_value(kept[-BEFORE:])


def _jump(records: Sequence[Steps], rows: Rows) -> Iterator[Finding]:
    """Yield the step since which the loss is many times what it was, and stays so: of a short log, steady until then."""
    last = np.append(rows["step"][1:] != rows["step"][:-1], True)
    known = rows[last][np.isfinite(rows[last]["loss"])]
    losses = known["loss"]
    if len(known) < 2 * FEW_STEPS or losses.min() <= 0:
        return  # a loss about 0, as of a policy, has no scale of its own
    high = losses > TIMES * float(np.median(losses[:FEW_STEPS]))
    first = int(np.argmax(high))
    usual = float(np.median(losses[:first])) if first else 0.0
    steady = first >= FEW_STEPS and float(losses[:first].max()) <= STEADY * usual
    if steady and len(known) - first >= FEW_STEPS and float(losses[first:].min()) > TIMES * usual:
        size = f"{float(np.median(losses[first:])) / usual:.1f} times the median of the steps before, and stays so"
        text = f"the loss is {float(losses[first]):.4g} {_where(known[first])}, {size}"
        yield _finding("spike", _evidence(records, known[first], text))


def _passed(records: Sequence[Steps], rows: Rows) -> Iterator[Finding]:
    """Yield what was odd recently and no longer is: the incident that it opened is judged some time after."""
    last = np.append(rows["step"][1:] != rows["step"][:-1], True)
    steps = rows[last]
    late = np.isfinite(steps["at"]) & (steps["at"] >= np.nanmax(steps["at"], initial=-np.inf) - RECENT_SECONDS)
    late[-RECENT:] = True
    for row in steps[late & ((steps["odd"] & LASTS) > 0)]:
        text = f"the loss was not a number {_where(row)}, and is one again"
        yield _finding("not_a_number", _evidence(records, row, text))
        return
    for row in steps[late & _large(steps)]:
        for found in _spikes(records, rows[rows["step"] <= row["step"]]):
            said = replace(found.evidence[0], text=f"{found.evidence[0].text}; it has come back since")
            yield replace(found, first_symptom=said, evidence=(said,))
            return


@np.errstate(over="ignore")
def _large(steps: Rows) -> NDArray[np.bool_]:
    """Mark the rows that are worth a comparison: many times the median of all in the loss or the norm."""
    found = np.zeros(len(steps), bool)
    for field in ("loss", "gradient_norm"):
        values = np.abs(steps[field])
        known = values[np.isfinite(values)]
        if len(known):
            found |= values > TIMES / 2 * float(np.median(known))
    return found


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


def _evidence(records: Sequence[Steps], row: np.void, text: str) -> Evidence:
    record = records[int(row["record"])]
    at = float(row["at"])
    return Evidence(text=text, source=record.source, at=at if np.isfinite(at) else None, rank=record.rank)


def _finding(fault_class: str, said: Evidence, *more: Evidence, missing: str = MISSING) -> Finding:
    return Finding(
        analyzer="numeric", family="log", symptom="numeric", cause="unknown", fault_class=fault_class, onset=said.at,
        first_symptom=said, evidence=(said, *more), missing=(missing,),
    )  # fmt: skip
