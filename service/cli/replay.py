"""``faulthound replay``: the verdicts of a bundle judged again, to the byte; or the engine itself over a stretch of the log."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import exit_codes, options
from service.cli.speech import Speech
from service.cli.times import SPAN, instant, span_seconds
from service.cli.verbs import ending
from service.client import UserError

if TYPE_CHECKING:
    from analyzers.knowledge import Knowledge
    from analyzers.model.verdict import Verdict
    from service.cli.expectation import Expectation
    from service.cli.recording import Recording

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d")


def replay(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", readable=False, help="Of `incidents export` or `export`.")
    ],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Use what was known then: RFC 3339, or 90s after the opening or the first batch."
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this version; with --json its document, to the byte.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print versions and the last verdict as JSON.")] = False,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Exit with 1 unless the last verdict has this, as in `diagnose`."),
    ] = None,
    knowledge: options.KnowledgePath = None,
    quiet: options.Quiet = False,
) -> None:
    """Judge the verdicts of an incident again, and show whether they are the same bytes.

    `faulthound incidents export ID bundle.fhz` makes the bundle. Each published version is judged again
    from the records that it was judged from. The same program with the same knowledge gives the same
    bytes, or exits with 1; another version, or --knowledge, shows what it judges differently. Any other
    bundle (`faulthound export JOB`) is run through the engine: which incidents it would have opened.

    \b
    Examples:
      faulthound replay bundle.fhz
      faulthound replay bundle.fhz --until 30s --expect culprit=node:gpu-0413
      faulthound replay bundle.fhz --knowledge site/ --json | jq '.versions[] | select(.same | not)'
    """
    speech = Speech(quiet=quiet)
    with ending():
        expectation, known = _options(expect or [], knowledge)
        from service.cli.recording import Recording

        recording = Recording.opened(bundle)
        last = _until(until, recording)
        if (recording.manifest is None or recording.manifest.incident is None) and not recording.published:
            raise typer.Exit(_rerun(recording, known, last, expectation, speech, version=version, json=json))
        raise typer.Exit(_judged_again(recording, known, last, expectation, speech, version=version, json=json))


def _options(expect: list[str], path: Path | None) -> tuple[Expectation, Knowledge]:
    from service import packaged_knowledge
    from service.cli import expectation

    try:
        return expectation.parse(expect), packaged_knowledge.load(path)
    except ValueError as problem:
        raise UserError(str(problem)) from None


def _until(text: str | None, recording: Recording) -> float:
    """Return the instant of receipt at which to stop."""
    if text is None:
        return float("inf")
    incident = recording.manifest.incident if recording.manifest is not None else None
    begin = incident.opened_at if incident is not None and incident.opened_at is not None else recording.first_at
    if SPAN.fullmatch(text) and begin is not None:
        return begin + span_seconds("--until", text, "90s")
    if RFC_3339.match(text):
        return instant("--until", text, 0.0) or 0.0
    raise UserError(f"--until {text!a} is no instant: write 90s (after the opening) or 2026-11-21T03:14:07Z")


def _judged_again(
    recording: Recording, knowledge: Knowledge, until: float, expectation: Expectation, speech: Speech, *,
    version: int | None, json: bool,
) -> int:  # fmt: skip
    from service.cli.comparison import Comparison

    with speech.progress("replaying") as progress:
        comparison = Comparison.of(recording, knowledge, until, version, progress)
    for damage in recording.damage:
        speech.note(f"damaged: {damage}")
    chosen = comparison.newest
    if chosen is None:
        raise UserError(_nothing(recording, version, until))
    if json and version is not None:
        sys.stdout.buffer.write(chosen.document)
    elif json:
        comparison.print_json(recording)
    else:
        comparison.print_text(recording)
    broken = list(comparison.broken())
    for sentence in broken:
        speech.error(sentence)
    unmet = _unmet(expectation, chosen.verdict, speech)
    return exit_codes.UNEXPECTED if broken or unmet else exit_codes.VERDICT


def _nothing(recording: Recording, version: int | None, until: float) -> str:
    known = sorted(recording.cuts())
    if not known:
        judge = f"`faulthound diagnose {recording.path}`"
        return f"{recording.path}: nothing was published of this incident; {judge} judges its records"
    what = f"version {version}" if version is not None else "version of the verdict"
    by_then = " by then" if until < float("inf") else ""
    return (
        f"{recording.path} has no {what}{by_then} (it has {known[0]} to {known[-1]}): leave out --until and --version"
    )


def _rerun(
    recording: Recording, knowledge: Knowledge, until: float, expectation: Expectation, speech: Speech, *,
    version: int | None, json: bool,
) -> int:  # fmt: skip
    if version is not None:
        raise UserError(f"{recording.path} is of no incident and has no version {version}: leave out --version")
    from service.cli.reruns import Reruns

    with speech.progress("replaying") as progress:
        reruns = Reruns.of(recording, knowledge, until, progress)
    for damage in recording.damage:
        speech.note(f"damaged: {damage}")
    if json:
        reruns.print_json(recording)
    else:
        reruns.print_text(recording)
    return exit_codes.UNEXPECTED if _unmet(expectation, reruns.verdict, speech) else exit_codes.VERDICT


def _unmet(expectation: Expectation, verdict: Verdict, speech: Speech) -> bool:
    from service.cli.expectation import failures

    failed = list(failures(expectation, verdict))
    for sentence in failed:
        speech.error(sentence)
    return bool(failed)
