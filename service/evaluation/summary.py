"""Outcomes counted: by fault and scale, real cases and simulated ones apart, and how calibrated they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Annotated

import msgspec

from analyzers.model.doc import doc
from service.evaluation.calibration import Calibration, calibrate
from service.evaluation.outcomes import Outcome
from service.evaluation.proportions import Proportion

SCHEMA = "faulthound.evaluation/1"
SCALES = (8, 64, 512, 4096, 32768)  # the most ranks of each


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Some cases summed up: of one origin, and of one fault, one scale, or all."""

    origin: Annotated[str, doc("real or simulator: never both in one row.")]
    fault: Annotated[str, doc("The label's word; empty: every fault.")] = ""
    scale: Annotated[str, doc("Ranks of the jobs, from and to; empty: every scale.")] = ""
    n: Annotated[int, doc("Cases.")]
    first_right: Annotated[Proportion, doc("Of the decidable cases: the first culprit is right (top-1).")]
    exact: Annotated[Proportion, doc("Of the decidable cases: all culprits are named and no other.")]
    class_right: Annotated[Proportion, doc("Of the decidable cases: cause and class are right.")]
    superset: Annotated[int, doc("All culprits are named, among others.")]
    partial: Annotated[int, doc("Culprits alone are named, but not all.")]
    abstained: Annotated[Proportion, doc("Of all cases: none is named, and what would decide is.")]
    wrong: Annotated[Proportion, doc("Of all cases: an answer that misses a culprit, or names a machine without one.")]
    false_evictions: Annotated[Proportion, doc("Of all cases: the action would take out an innocent machine.")]
    innocent_machines: Annotated[int, doc("How many innocent machines these are.")]
    seconds_median: Annotated[float, doc("Reading and judging one case, on the clock.")]
    seconds_most: Annotated[float, doc("The slowest case.")]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """All that `faulthound evaluate --json` prints."""

    schema: Annotated[str, doc("`faulthound.evaluation/1`.")] = SCHEMA
    version: Annotated[str, doc("The version of the program that judged.")]
    knowledge: Annotated[str, doc("The hash of the knowledge tables.")]
    total: Annotated[tuple[Row, ...], doc("A row an origin.")]
    by_fault: Annotated[tuple[Row, ...], doc("A row an origin and fault.")]
    by_scale: Annotated[tuple[Row, ...], doc("A row an origin and scale.")]
    by_fault_and_scale: Annotated[tuple[Row, ...], doc("A row an origin, fault and scale.")]
    calibration: Annotated[dict[str, Calibration | None], doc("Origin → calibration; null: no culprit is named.")]
    class_wrong: Annotated[
        tuple[str, ...], doc("Decidable cases whose first culprit is right, and the cause or class is not.")
    ]
    abstained: Annotated[tuple[str, ...], doc("Cases in which nothing is named.")]
    cases: Annotated[tuple[Outcome, ...], doc("Every case.")]


def evaluation(outcomes: Sequence[Outcome], version: str, knowledge: str) -> Evaluation:
    """Sum up outcomes in every way."""
    return Evaluation(
        version=version,
        knowledge=knowledge,
        total=_rows(outcomes, lambda _: ("", "")),
        by_fault=_rows(outcomes, lambda one: (one.fault, "")),
        by_scale=_rows(outcomes, lambda one: ("", scale_of(one.ranks))),
        by_fault_and_scale=_rows(outcomes, lambda one: (one.fault, scale_of(one.ranks))),
        calibration={
            origin: _calibrated([one for one in outcomes if one.origin == origin])
            for origin in sorted({one.origin for one in outcomes})
        },
        class_wrong=tuple(one.case for one in outcomes if one.decidable and one.first_right and not one.class_right),
        abstained=tuple(one.case for one in outcomes if one.result == "abstained"),
        cases=tuple(outcomes),
    )


def scale_of(ranks: int) -> str:
    """Return the scale of a job as its fewest and most ranks; a job of none is of an unknown scale."""
    if not ranks:
        return "unknown"
    most = next((scale for scale in SCALES if ranks <= scale), None)
    if most is None:
        return f"over {SCALES[-1]:,}"
    least = max((scale for scale in SCALES if scale < most), default=0) + 1
    return f"{least:,} to {most:,}"


def _rows(outcomes: Iterable[Outcome], key: Callable[[Outcome], tuple[str, str]]) -> tuple[Row, ...]:
    parts: dict[tuple[str, tuple[str, str]], list[Outcome]] = {}
    for one in outcomes:
        parts.setdefault((one.origin, key(one)), []).append(one)
    ordered = sorted(parts.items(), key=lambda part: (part[0][0], part[0][1][0], min(one.ranks for one in part[1])))
    return tuple(_row(origin, fault, scale, found) for (origin, (fault, scale)), found in ordered)


def _row(origin: str, fault: str, scale: str, found: Sequence[Outcome]) -> Row:
    decidable = [one for one in found if one.decidable]
    results = [one.result for one in found]
    seconds = [one.seconds for one in found]

    def share(hits: int, of: Sequence[Outcome]) -> Proportion:
        return Proportion.counted(hits, len(of))

    return Row(
        origin=origin,
        fault=fault,
        scale=scale,
        n=len(found),
        first_right=share(sum(one.first_right for one in decidable), decidable),
        exact=share(sum(one.result == "exact" for one in decidable), decidable),
        class_right=share(sum(one.class_right for one in decidable), decidable),
        superset=results.count("superset"),
        partial=results.count("partial"),
        abstained=share(results.count("abstained"), found),
        wrong=share(results.count("wrong"), found),
        false_evictions=share(sum(bool(one.innocent) for one in found), found),
        innocent_machines=sum(len(one.innocent) for one in found),
        seconds_median=round(median(seconds), 4),
        seconds_most=max(seconds),
    )


def _calibrated(outcomes: Sequence[Outcome]) -> Calibration | None:
    named = [(one.probability, one.likely) for one in outcomes if one.probability is not None]
    return calibrate([probability for probability, _ in named], [likely for _, likely in named])
