"""The losses and gradient norms of a job's steps as rows, and what a finding about one of them is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.model.finding import Evidence, Finding
from collectors.records import STEP_COLUMNS, Steps

SKIPPED = 4  # so many newest steps odd, skipped or some of a row: a smaller loss scale does not repair them
MOST_SUSPECTS = 8  # more ranks are no suspects
MISSING = "each rank's loss and gradient norm before the reduction: the first to break is the one to check"

# The first two as in the column ``nan``. ZERO: a norm that is NaN beside a loss of exactly 0; transformers leaves a loss that
# is NaN out of the mean that it prints, which is 0 where there was no other.
# APPLIED, also a bit of that column: the step has such a norm, and no loss scale can be lowered for it.
# NULL, another: the loss is given as null, as JSON without NaN has it. SOME: the loss is a number, without some steps' NaN.
LOSS, NORM, ZERO, APPLIED, NULL, SOME = 1, 2, 4, 8, 16, 32
OF_LOSS = LOSS | ZERO
LASTS = OF_LOSS | APPLIED
NO_LOSS = -1.0  # in every step: TorchTitan prints it on the ranks of a pipeline's stages that have no loss
ROW = np.dtype([
    ("step", "<i8"), ("numbered", "?"), ("at", "<f8"), ("loss", "<f8"), ("gradient_norm", "<f8"), ("odd", "<i1"),
    ("rank", "<i8"), ("record", "<i8"),
])  # fmt: skip
_COLUMNS = ("step", "at", "loss", "gradient_norm", "skipped", "nan")
Rows = NDArray[np.void]


def read_rows(record: Steps, number: int) -> Rows:
    """Return the steps that report a loss or a norm, in the log's order, but those that the optimizer skipped.

    Skipped steps count where all of the newest are odd as no smaller loss scale repairs it; so do rows of which some steps are.
    Steps without a number are numbered as they come. A number that comes again later means a restart from a checkpoint:
    what was reported between is history. A record with damaged columns has no rows.
    """
    if not record.columns:
        return np.zeros(0, ROW)
    columns = {name: record.columns.get(name, b"") for name in _COLUMNS}
    if any(len(data) != record.count * np.dtype(STEP_COLUMNS[name]).itemsize for name, data in columns.items()):
        return np.zeros(0, ROW)
    rows = np.zeros(record.count, ROW)
    values = {name: np.frombuffer(data, STEP_COLUMNS[name]) for name, data in columns.items()}
    for name in ("step", "at", "loss", "gradient_norm"):
        rows[name] = values[name]
    rows["odd"] = (
        (values["nan"] & (LOSS | NORM | APPLIED | NULL | SOME))
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
    losses = rows["loss"][~np.isnan(rows["loss"])]
    if (losses == NO_LOSS).all():
        rows["loss"] = np.nan
    skipped = values["skipped"] != 0
    lasts = _to_the_end((rows["odd"] & (LASTS | SOME)) > 0)
    some = (rows["odd"] & SOME) > 0
    rows["odd"][some & lasts] |= LOSS
    rows["odd"][some & ~lasts] &= ~SOME
    skipped &= ~lasts
    rows = rows[reports & ~skipped]
    newest_after = np.minimum.accumulate(rows["step"][::-1])[::-1]
    kept: Rows = rows[rows["step"] - 1 <= newest_after]
    return kept


def _to_the_end(odd: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the newest rows that are odd without a break, if they are at least SKIPPED."""
    sound = np.flatnonzero(~odd)
    first = int(sound[-1]) + 1 if len(sound) else 0
    return (np.arange(len(odd)) >= first) & (len(odd) - first >= SKIPPED)


def tail_of(rows: Rows, count: int) -> Rows:
    """Return the newest rows, and the first of the odd ones that last until now."""
    if len(rows) <= count:
        return rows
    sound = np.flatnonzero(rows["odd"] == 0)
    first = min(int(sound[-1]) + 1 if len(sound) else 0, len(rows) - count)
    return np.concatenate([rows[first : first + 1], rows[-count:]])


def place(row: np.void) -> str:
    """Return ``step 812``, or where the log has no numbers ``report 40 of the log``."""
    return f"step {row['step']}" if row["numbered"] else f"report {row['step']} of the log"


def where(row: np.void) -> str:
    """Return ``at step 812`` or ``in report 40 of the log``."""
    return f"{'at' if row['numbered'] else 'in'} {place(row)}"


def evidence_of(records: Sequence[Steps], row: np.void, text: str) -> Evidence:
    """Return what is said of a row, with its source, its rank and its instant in UTC seconds."""
    record = records[int(row["record"])]
    at = float(row["at"])
    return Evidence(text=text, source=record.source, at=at if np.isfinite(at) else None, rank=record.rank)


def finding(fault_class: str, said: Evidence, *more: Evidence, missing: str = MISSING) -> Finding:
    """Return a finding of this analyzer, whose cause is not known."""
    return Finding(
        analyzer="numeric", family="log", symptom="numeric", cause="unknown", fault_class=fault_class, onset=said.at,
        first_symptom=said, evidence=(said, *more), missing=(missing,),
    )  # fmt: skip
