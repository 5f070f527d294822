"""``faulthound learn``: how often claims come true, from labelled incidents, as a table that judging reads."""

from __future__ import annotations

import json as json_reader
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import exit_codes, options
from service.cli.export import check_place
from service.cli.labelled import judge_cases, load_knowledge, read_cases
from service.cli.output import print_json, print_lines, print_table
from service.cli.speech import Speech
from service.cli.verbs import ending
from service.client import UserError

if TYPE_CHECKING:
    from service.evaluation.calibration import Calibration
    from service.evaluation.forecasts import Forecast
    from service.evaluation.labels import Label
    from service.evaluation.learning import Learned

FILE_NAME = "calibration.toml"
INCIDENTS = "inc-*.json"
MOST_BYTES = 16 << 20  # of one incident
HELD_OUT_COLUMNS = ("held out", "stated", "claims", "Brier", "log loss", "ECE (95 %)", "0.9 and more: right")
CURVE_COLUMNS = ("evidence", "fault class", "named", "claims", "right", "strength → probability")


def learn(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", readable=False, help="Labelled cases, or closed incidents with feedback."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Write the table here; its name must be {FILE_NAME}.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the scores and the curves (docs/learn.md).")] = False,
    knowledge: options.KnowledgePath = None,
    workers: options.Workers = None,
    quiet: options.Quiet = False,
) -> None:
    """Learn from labelled incidents how often a claim comes true, by its kind and its evidence.

    A folder holds cases with labels.toml, as `evaluate` reads them, or inc-*.json, each what
    `incidents show ID --json` printed of an incident with feedback. Printed is how far probabilities
    could be trusted before and after, on cases left out. A table that makes these worse is not
    written (exit code 1). Give the table to `diagnose` or the service with --knowledge; it changes
    probabilities, and no action.

    \b
    Examples:
      faulthound simulate --out cases --cases 400 && faulthound learn cases
      faulthound learn incidents/ --out site/calibration.toml && faulthound diagnose dump/ --knowledge site/
      faulthound incidents show inc-0123456789ab --json > closed/inc-0123456789ab.json
    """
    speech = Speech(quiet=quiet)
    with ending():
        if out is not None:
            _check(out, force)
        forecasts = list(_forecasts(folders, knowledge, workers, speech))
        _enough(forecasts)
        learned = _learned(forecasts)
        if out is not None and not learned.worse:
            _write(out, learned, forecasts)
    if json:
        print_json(_document(learned, forecasts))
    else:
        _print(learned, forecasts)
    if learned.worse:
        written = f"{out} was not written" if out is not None else "no table would be written"
        speech.error(f"{learned.worse} on held-out cases: {written}; more labelled cases may change that")
        raise typer.Exit(exit_codes.UNEXPECTED)


def _check(out: Path, force: bool) -> None:
    if out.name != FILE_NAME:
        raise UserError(f"--out {out}: --knowledge takes tables by their names: call the file {FILE_NAME}")
    check_place(out, force)


def _forecasts(
    folders: Sequence[Path], knowledge: Path | None, workers: int | None, speech: Speech
) -> Iterator[Forecast]:
    from service.evaluation.forecasts import forecasts_of
    from service.evaluation.outcomes import guilt

    cases = [label for folder in folders for label in read_cases(folder, None)]
    incidents = [path for folder in folders for path in sorted(folder.rglob(INCIDENTS))]
    if not cases and not incidents:
        named = ", ".join(map(str, folders))
        raise UserError(f"there is neither labels.toml nor {INCIDENTS} at or below {named}: docs/learn.md has examples")
    of_incidents = [found for path in incidents for found in _of_incident(path, speech)]
    _enough_labelled(cases, of_incidents)
    yield from of_incidents
    for one in judge_cases(cases, load_knowledge(knowledge), workers, speech):
        if one.verdict is not None and one.topology is not None:
            is_guilty = guilt(one.label, one.verdict, one.topology.ranks_on)
            yield from forecasts_of(str(one.label.paths[0]), one.label.origin, one.verdict, is_guilty)


def _enough_labelled(cases: Sequence[Label], of_incidents: Sequence[Forecast]) -> None:
    """Refuse labelled cases of which too few are there whatever their verdicts are, before any is diagnosed."""
    from service.evaluation.learning import FEWEST_CASES

    most = len({one.paths[0] for one in cases}) + len({one.case for one in of_incidents})
    if cases and most < FEWEST_CASES:
        raise UserError(
            f"labelled cases: {most}, and it takes {FEWEST_CASES} that name a culprit; none was diagnosed: label more "
            "incidents, or give feedback on closed ones (docs/learn.md)"
        )
    _one_origin({*(one.origin for one in cases), *(one.origin for one in of_incidents)})


def _of_incident(path: Path, speech: Speech) -> list[Forecast]:
    from service.evaluation.forecasts import UnusableIncident, forecasts_of_incident

    try:
        if path.stat().st_size > MOST_BYTES:
            raise UnusableIncident(f"it is larger than {MOST_BYTES:,} bytes")
        return forecasts_of_incident(path.stem, json_reader.loads(path.read_bytes()))
    except (UnusableIncident, OSError, ValueError, RecursionError) as problem:
        speech.note(f"{path} is left out: {problem}")
        return []


def _enough(forecasts: Sequence[Forecast]) -> None:
    from service.evaluation.learning import FEWEST_CASES

    named = len({one.case for one in forecasts if one.first})
    if named < FEWEST_CASES:
        raise UserError(
            f"cases that name a culprit and can be held against the truth: {named}, and it takes {FEWEST_CASES}: add cases"
        )


def _one_origin(origins: set[str]) -> None:
    if len(origins) > 1:
        named = " and ".join(sorted(origins))
        raise UserError(f"the cases are {named} ones: learn from each apart, for the table states which they were")


def _learned(forecasts: Sequence[Forecast]) -> Learned:
    from service.evaluation import learning

    if not learning.is_possible():
        raise UserError("learning needs scikit-learn, which is not installed: `pip install 'faulthound[tables]'`")
    learned = learning.learn(forecasts)
    if not learned.curves:
        raise UserError(
            f"no kind of claim has the {learning.FEWEST_CLAIMS} cases that it takes: add cases of one fault class"
        )
    return learned


def _write(out: Path, learned: Learned, forecasts: Sequence[Forecast]) -> None:
    from datetime import UTC, datetime

    from service.clock import now
    from service.evaluation.table_writing import to_toml

    text = to_toml(learned.curves, _source(learned, forecasts), datetime.fromtimestamp(now(), UTC).date())
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror or error}): choose another place") from None


def _source(learned: Learned, forecasts: Sequence[Forecast]) -> str:
    from analyzers.verdict.build import VERSION

    cases, what = len({one.case for one in forecasts}), _whose(forecasts)
    method = f"{learned.method.name}, a prior of {learned.method.prior:g} claims of each strength"
    return f"faulthound learn {VERSION}: {cases:,} {what} cases that name a culprit; {method}"


def _whose(forecasts: Sequence[Forecast]) -> str:
    return "simulated" if forecasts[0].origin == "simulator" else "real"


def _document(learned: Learned, forecasts: Sequence[Forecast]) -> dict[str, object]:
    return {
        "schema": "faulthound.learning/1",
        "source": _source(learned, forecasts),
        "cases": len({one.case for one in forecasts}),
        "method": learned.method.name,
        "prior": learned.method.prior,
        "held_out": {which: {"before": old, "after": learned.after[which]} for which, old in learned.before.items()},
        "curves": [
            {"family": family, "class": name, "claim": claim, "n": curve.n, "right": curve.right, "points": curve.points}
            for (family, name, claim), curve in learned.curves.items()
        ],
        "worse": learned.worse,
    }  # fmt: skip


def _print(learned: Learned, forecasts: Sequence[Forecast]) -> None:
    print_lines([f"{_source(learned, forecasts)}.", ""])
    print_table(HELD_OUT_COLUMNS, list(_score_rows(learned)))
    print_lines([""])
    print_table(CURVE_COLUMNS, list(_curve_rows(learned)))


def _score_rows(learned: Learned) -> Iterator[tuple[str, ...]]:
    for which, old in learned.before.items():
        yield which, "base rate", f"{old.right.n:,}", f"{old.brier_base:.4f}", f"{old.log_loss_base:.4f}", "", ""
        for when, found in (("before", old), ("after", learned.after[which])):
            yield which, when, f"{found.right.n:,}", *_scores(found)


def _scores(found: Calibration) -> tuple[str, ...]:
    low, high = found.ece_95
    sure = f"{found.sure.count:,} of {found.sure.n:,}, at least {found.sure.low_95:.3f}" if found.sure.n else "none"
    return f"{found.brier:.4f}", f"{found.log_loss:.4f}", f"{found.ece:.4f} ({low:.4f} to {high:.4f})", sure


def _curve_rows(learned: Learned) -> Iterator[tuple[str, ...]]:
    for (family, name, claim), curve in learned.curves.items():
        points = ", ".join(f"{strength:.2f} → {probability:.2f}" for strength, probability in curve.points)
        yield family, name, claim, f"{curve.n:,}", f"{curve.right:,}", points
