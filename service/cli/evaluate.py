"""``faulthound evaluate``: diagnose labelled incidents, and count what was right."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import options
from service.cli.labelled import Judged, judge_cases, load_knowledge, read_cases
from service.cli.output import print_json, print_lines, print_table
from service.cli.speech import Speech
from service.cli.verbs import ending
from service.client import UserError

if TYPE_CHECKING:
    from service.evaluation.calibration import Calibration
    from service.evaluation.labels import Label
    from service.evaluation.outcomes import Outcome
    from service.evaluation.proportions import Proportion
    from service.evaluation.summary import Evaluation, Row

COLUMNS = ("origin", "fault", "ranks", "cases", "decidable", "top-1", "exact", "class", "abstained", "wrong",
           "false evictions", "s/case")  # fmt: skip
MOST_LISTED = 20  # cases of a list below the tables


def evaluate(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", readable=False, help="Labelled cases: a labels.toml at or below it.")
    ],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels from this file alone; its paths begin at DIR.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the counts and every case (docs/evaluate.md).")] = False,
    knowledge: options.KnowledgePath = None,
    workers: options.Workers = None,
    quiet: options.Quiet = False,
) -> None:
    """Diagnose labelled incidents, and count right, wrong and abstained verdicts.

    Each case is a folder, a file or a bundle of one incident that `diagnose` reads. Counted by fault
    and by scale: first culprit right (top-1), all culprits and no other (exact), class, abstentions,
    wrong answers, innocent machines that would be taken out, and whether probabilities come true.
    Simulated cases are counted apart. docs/evaluate.md has the labels and what each column means.

    \b
    Examples:
      faulthound evaluate incidents/
      faulthound evaluate incidents/ --knowledge our-rules/
      faulthound evaluate /data/corpus --labels corpus-labels.toml --json > evaluation.json
    """
    speech = Speech(quiet=quiet)
    with ending():
        found = measured(_labels(folder, labels), knowledge, workers, speech)
    if json:
        print_json(found)
    else:
        _print(found)


def measured(cases: Sequence[Label], knowledge: Path | None, workers: int | None, speech: Speech) -> Evaluation:
    """Diagnose every case, and sum up."""
    from analyzers.verdict.build import VERSION
    from service.evaluation.summary import evaluation

    known = load_knowledge(knowledge)
    outcomes = [_outcome(one) for one in judge_cases(cases, known, workers, speech)]
    return evaluation(outcomes, VERSION, known.hash)


def _labels(folder: Path, labels: Path | None) -> list[Label]:
    from service.evaluation.labels import FILE_NAME

    cases = read_cases(folder, labels)
    if not cases:
        raise UserError(f"there is no {FILE_NAME} at or below {folder}: docs/evaluate.md has an example")
    return cases


def _outcome(one: Judged) -> Outcome:
    from service.evaluation.outcomes import outcome_of, without_verdict

    if one.verdict is None or one.topology is None:
        return without_verdict(one.label, one.why, one.seconds)
    return outcome_of(one.label, one.verdict, one.topology.ranks_on, one.seconds)


def _print(found: Evaluation) -> None:
    print_table(COLUMNS, [_cells(row) for row in (*found.by_fault, *found.total)])
    sys.stdout.write("\n")
    print_table(COLUMNS, [_cells(row) for row in found.by_scale])
    for origin, calibration in found.calibration.items():
        print_lines(["", *_calibration_lines(origin, calibration)])
    other = [one for one in found.cases if one.result not in {"exact", "abstained"} or one.innocent]
    of_class = [one for one in found.cases if one.case in found.class_wrong]
    silent = [one for one in found.cases if one.case in found.abstained]
    _print_cases("Not exactly as labelled:", [_line(one) for one in other])
    _print_cases("The culprit is right, the class is not:", [_class_line(one) for one in of_class])
    _print_cases("Abstained:", [_line(one) for one in silent])


def _print_cases(title: str, lines: Sequence[str]) -> None:
    if lines:
        print_lines(["", title, *(f"  {line}" for line in lines[:MOST_LISTED])])
        more = len(lines) - MOST_LISTED
        print_lines([f"  … and {more:,} more; --json has all"] if more > 0 else [])


def _cells(row: Row) -> tuple[str, ...]:
    evictions = f"{row.false_evictions.count} ({row.innocent_machines} machines)" if row.innocent_machines else "0"
    return (
        row.origin, row.fault or "all", row.scale or "all", f"{row.n:,}", f"{row.exact.n:,}", _share(row.first_right),
        _share(row.exact), _share(row.class_right), str(row.abstained.count), str(row.wrong.count), evictions,
        f"{row.seconds_median:.2f}",
    )  # fmt: skip


def _share(proportion: Proportion) -> str:
    return f"{proportion.count / proportion.n:.1%}" if proportion.n else "–"


def _calibration_lines(origin: str, found: Calibration | None) -> Iterator[str]:
    if found is None:
        yield f"calibration, {origin}: no case names a culprit"
        return
    right, sure = found.right, found.sure
    yield (
        f"calibration, {origin}: of {right.n:,} first culprits {right.count:,} are right "
        f"(95 %: {right.low_95:.3f} to {right.high_95:.3f})"
    )
    yield (
        f"  Brier {found.brier:.4f} (base rate {found.brier_base:.4f}), log loss {found.log_loss:.4f} "
        f"(base rate {found.log_loss_base:.4f}), ECE {found.ece:.4f} ({found.ece_95[0]:.4f} to {found.ece_95[1]:.4f})"
    )
    bins = ", ".join(f"{one.stated:.2f} → {one.right:.2f} ({one.n:,})" for one in found.bins)
    yield f"  stated → right (cases): {bins}; of {sure.n:,} at 0.9 and more at least {sure.low_95:.3f} are right (95 %)"


def _line(one: Outcome) -> str:
    named = ", ".join(one.named) or one.why or "none named"
    innocent = f"; takes out {', '.join(one.innocent)}" if one.innocent else ""
    open_case = "" if one.decidable else " (not decidable)"
    return f"{one.case}: {one.result}{open_case}: {named}, action {one.action}{innocent}"


def _class_line(one: Outcome) -> str:
    return f"{one.case}: {', '.join(one.stated)}; labelled {', '.join(one.labelled)}"
