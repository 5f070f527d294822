"""A loss or a gradient norm that is many times its usual value: on which ranks, since which step, and whether it came back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.numeric.step_rows import LASTS, MOST_SUSPECTS, Rows, evidence_of, finding, place, where
from analyzers.model.finding import Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.model.usual_values import usual_value
from collectors.records import Steps

TIMES, BEFORE, FEWEST = 5.0, 50, 20  # so many times the usual value of the 50 steps before, of which 20 must be known
# A jump in a short log: so many steps before it and after, and those before within so many times.
FEW_STEPS, STEADY = 5, 2.0
AGAIN = 2  # spikes that passed before: a hard batch, or another task, comes every so often
LASTING = 0.45  # the strength of the one rank whose values stay large
RECENT, RECENT_SECONDS = 10, 120.0  # steps and time in which the incident of a live job that recovered is judged


class Spike(NamedTuple):
    """What one rank's newest value is: how many times its usual one, and the first and the newest row of those that are."""

    times: float
    first: np.void
    newest: np.void

    @property
    def lasts(self) -> bool:
        """Whether it is of more than one step: a batch of bad data is of one."""
        return bool(self.first["step"] != self.newest["step"])


def spikes_in(records: Sequence[Steps], rows: Rows, topology: Topology) -> Iterator[Finding]:
    """Yield what is many times its usual value at the newest step: of the rank whose is so by most, against its own steps.

    Stages and experts have norms of their own: one rank's is nothing unusual for being larger than another's.
    """
    for field in ("loss", "gradient_norm"):
        ranks = _by_rank(rows, field)
        spikes = [_spike(mine, field) for mine in ranks]
        found = [spike for spike in spikes if spike is not None]
        if not found:
            continue
        most = max(found, key=lambda spike: spike.times)
        sound = sum(
            spike is None and _is_as_before(mine, most, field) for spike, mine in zip(spikes, ranks, strict=True)
        )
        size = f"{most.times:.1f} times the usual value of the steps before"
        text = f"the {field.replace('_', ' ')} is {float(most.first[field]):.4g} {where(most.first)}, {size}"
        if most.lasts:
            text += f", and stays so until {place(most.newest)}"
        few = most.first["rank"] >= 0 and len(found) <= sound
        if few and len(found) == 1:
            text += f", on rank {most.first['rank']} alone"
        said = evidence_of(records, most.first, text)
        suspects = _suspects(records, found, field, topology) if few and all(one.lasts for one in found) else ()
        yield replace(finding("spike", said), suspects=suspects)


def _suspects(records: Sequence[Steps], found: Sequence[Spike], field: str, topology: Topology) -> tuple[Suspect, ...]:
    """Return the few ranks whose values stay large while the others' do not, to be tested."""
    suspects = []
    for spike in found[:MOST_SUSPECTS]:
        rank = int(spike.first["rank"])
        text = f"its {field.replace('_', ' ')} is {spike.times:.1f} times its usual value since {place(spike.first)}"
        said = evidence_of(records, spike.first, f"rank {rank}: {text}")
        why = f"{said.text}, and the others' are as before: its data or its device"
        suspects.append(
            Suspect(
                kind="rank", strength=LASTING / len(found), why=why, ranks=(rank,), node=topology.nodes.get(rank),
                evidence=(said,),
            )
        )  # fmt: skip
    return tuple(suspects) if len(found) <= MOST_SUSPECTS else ()


def _by_rank(rows: Rows, field: str) -> list[Rows]:
    """Return each rank's rows that have the value, one a step, of the ranks that have it at the newest step.

    None where no rank's is worth a comparison.
    """
    kept = rows[np.isfinite(rows[field])]
    if not len(kept):
        return []
    kept = kept[np.lexsort((kept["record"], kept["at"], kept["step"], kept["rank"]))]
    kept = kept[np.append((kept["step"][1:] != kept["step"][:-1]) | (kept["rank"][1:] != kept["rank"][:-1]), True)]
    begins = np.flatnonzero(np.append(True, kept["rank"][1:] != kept["rank"][:-1]))
    ends = np.append(begins[1:], len(kept))
    sizes = np.abs(kept[field])
    here = kept["step"][ends - 1] == rows["step"][-1]
    if not (here & (sizes[ends - 1] / TIMES > np.minimum.reduceat(sizes, begins))).any():
        return []
    return [kept[begin:end] for begin, end in zip(begins[here].tolist(), ends[here].tolist(), strict=True)]


def _is_as_before(mine: Rows, most: Spike, field: str) -> bool:
    """Whether a rank without a spike has steps from before another's, and not its value: a norm that is reduced is all ranks'.

    Of a live job the window has the past of few ranks.
    """
    before = int(np.count_nonzero(mine["step"] < most.first["step"]))
    return before >= FEWEST and float(mine[-1][field]) != float(most.newest[field])


def _spike(mine: Rows, field: str) -> Spike | None:
    """Return the spike of one rank at its newest step, None where its value is a usual one."""
    sizes = np.abs(mine[field])
    usual = _usual(sizes[:-1], float(sizes[-1]))
    if not sizes[-1] > TIMES * usual > 0:
        return None
    usually = np.flatnonzero(sizes <= TIMES * usual)
    begun = np.diff((sizes[: int(usually[-1]) + 1] > TIMES * usual).astype(np.int8), prepend=0) > 0
    if np.count_nonzero(begun) >= AGAIN:
        return None
    return Spike(float(sizes[-1]) / usual, mine[int(usually[-1]) + 1], mine[-1])


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


def jump(records: Sequence[Steps], rows: Rows) -> Iterator[Finding]:
    """Yield the step since which the loss or the norm is many times what it was, and stays so: of a log, steady until then."""
    last = np.append(rows["step"][1:] != rows["step"][:-1], True)
    for field in ("loss", "gradient_norm"):
        known = rows[last][np.isfinite(rows[last][field])]
        values = known[field]
        if len(known) < 2 * FEW_STEPS or values.min() <= 0:
            continue  # a loss about 0, as of a policy, has no scale of its own
        high = values > TIMES * float(np.median(values[:FEW_STEPS]))
        first = int(np.argmax(high))
        usual = float(np.median(values[:first])) if first else 0.0
        steady = first >= FEW_STEPS and float(values[:first].max()) <= STEADY * usual
        if steady and len(known) - first >= FEW_STEPS and float(values[first:].min()) > TIMES * usual:
            size = f"{float(np.median(values[first:])) / usual:.1f} times the median of the steps before, and stays so"
            text = f"the {field.replace('_', ' ')} is {float(values[first]):.4g} {where(known[first])}, {size}"
            yield finding("spike", evidence_of(records, known[first], text))


def passed(records: Sequence[Steps], rows: Rows, topology: Topology) -> Iterator[Finding]:
    """Yield what was odd recently and no longer is: the incident that it opened is judged some time after."""
    last = np.append(rows["step"][1:] != rows["step"][:-1], True)
    steps = rows[last]
    late = np.isfinite(steps["at"]) & (steps["at"] >= np.nanmax(steps["at"], initial=-np.inf) - RECENT_SECONDS)
    late[-RECENT:] = True
    for row in steps[late & ((steps["odd"] & LASTS) > 0)]:
        text = f"the loss was not a number {where(row)}, and is one again"
        yield finding("not_a_number", evidence_of(records, row, text))
        return
    large = {int(step) for mine in _apart(rows) for step in mine["step"][_large(mine)]}
    for step in (one for one in steps["step"][late].tolist() if one in large):
        for found in spikes_in(records, rows[rows["step"] <= step], topology):
            said = replace(found.evidence[0], text=f"{found.evidence[0].text}; it has come back since")
            yield replace(found, first_symptom=said, evidence=(said,), suspects=())
            return


def _apart(rows: Rows) -> list[Rows]:
    """Return the rows of each rank."""
    ordered = rows[np.argsort(rows["rank"], kind="stable")]
    return np.split(ordered, np.flatnonzero(np.diff(ordered["rank"])) + 1)


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
