"""``faulthound diagnose``: from files to the verdict, in one call of the engine."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from service.cli import exit_codes, options
from service.cli.output import print_document, print_verdict
from service.cli.speech import Speech
from service.cli.verbs import ending
from service.client import UserError

if TYPE_CHECKING:
    from analyzers.knowledge import Knowledge
    from analyzers.model.topology import Topology
    from analyzers.model.verdict import Verdict
    from analyzers.model.window import Window
    from collectors.records import Record, Unread
    from service.cli.expectation import Expectation
    from service.cli.hosts import Hosts

BUNDLE = b"FHBNDLE"  # how an export begins; to import collectors/records/bundle.py takes time in every other case
STANDARD_INPUT, PASTED = Path("-"), "standard input"  # a path that is pasted or piped, and what it is called
FAILED_ON_WORDS = "analyzer text_class failed"  # as with a table of a site that is not one; no verdict would state it
MOST_REASONS = 20  # why files were not read, listed where nothing at all could be


class NothingUsed(UserError):
    """No rule uses anything that the files hold. ``reasons``: why files were not read."""

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)


def diagnose(
    paths: options.Paths,
    hosts: options.HostList = None,
    ranks_per_node: options.RanksPerNode = None,
    job: options.Job = None,
    attempt: options.Attempt = None,
    json: options.Json = False,
    html: options.Html = None,
    expect: options.Expect = None,
    knowledge: options.KnowledgePath = None,
    workers: options.Workers = None,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Read the files that a hung or dead job left behind, or traces of a slow one, and name the culprit.

    Flight-recorder dumps, stacks, kernel logs, job logs, process tables, RAS reports and traces of
    operations are recognised by their content, in any mixture; `faulthound formats` lists them. An
    export of one incident is judged as its newest verdict was. The verdict goes to stdout, everything
    else to stderr.

    \b
    Examples:
      faulthound diagnose dumps/
      faulthound diagnose dumps/ kern.log train.log --ranks-per-node 8 --html report.html
      faulthound diagnose - < what-was-posted.txt
      faulthound diagnose dumps/ --expect culprit=rank:9 --expect culprit=rank:14 --expect cause=machine

    \b
    --expect takes culprit=rank:14 (or rank:12-15, node:gpu-0413, any KIND:ID, none), cause=, symptom=,
    class=, action= and abstained=true|false. All culprits expected together must be exactly the ones
    that the verdict names. An abstention exits with 3 unless abstained=true was expected.
    """
    speech = Speech(quiet=quiet)
    with ending():
        asked = _options(paths, hosts, ranks_per_node, expect or [], knowledge, html)
        with saved(paths, speech) as files:
            plain = hosts is None and ranks_per_node is None and attempt is None
            verdict = _as_published(files, asked.knowledge, job, speech) if plain else None
            if verdict is None or html is not None:
                own, window, topology = judged(
                    files, asked.knowledge, asked.hosts, speech, job=job, attempt=attempt, workers=workers
                )
                verdict = verdict or own
        _print(verdict, as_json=json, no_color=no_color)
        if html is not None:
            _write_page(html, speech, verdict, window, topology, asked.knowledge)
        raise typer.Exit(_code(asked.expectation, verdict, speech))


def _as_published(paths: Sequence[Path], knowledge: Knowledge, job: str | None, speech: Speech) -> Verdict | None:
    """Return the verdict of the incident whose export the one file is, as it was published; None: it is no such file."""
    if len(paths) != 1 or not paths[0].is_file():
        return None
    with paths[0].open("rb") as file:
        if file.read(len(BUNDLE)) != BUNDLE:
            return None
    from service.cli.judged_before import judged_before

    return judged_before(paths[0], knowledge, job, speech)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that can be wrong by themselves, checked before anything is read."""

    expectation: Expectation
    knowledge: Knowledge
    hosts: Hosts


def _options(
    paths: Sequence[Path], hosts: str | None, ranks_per_node: int | None, expect: list[str], knowledge: Path | None,
    html: Path | None,
) -> _Options:  # fmt: skip
    from service import packaged_knowledge
    from service.cli import expectation
    from service.cli.hosts import Hosts

    for path in paths:
        if path != STANDARD_INPUT and not path.exists() and not path.is_symlink():
            raise UserError(f"{path} does not exist: name the files or the folder that the job left")
    if html is not None and not html.absolute().parent.is_dir():
        raise UserError(f"--html {html}: the folder {html.absolute().parent} does not exist: make it first")
    try:
        return _Options(
            expectation.parse(expect), packaged_knowledge.load(knowledge), Hosts.given(hosts, ranks_per_node)
        )
    except ValueError as problem:
        raise UserError(str(problem)) from None


def judged(
    paths: Sequence[Path], knowledge: Knowledge, hosts: Hosts, speech: Speech, *, job: str | None = None,
    attempt: int | None = None, workers: int | None = None,
) -> tuple[Verdict, Window, Topology]:  # fmt: skip
    """Read the files of one job and judge them; UserError: nothing of a fault can be read, or a choice is open."""
    records: list[Record] = []
    try:
        records = _joined(_read(paths, workers, speech))
        found = _judged(records, paths, knowledge, hosts, job, attempt)
    except NothingUsed as nothing:
        if (by_words := _judged_by_words(records, paths, knowledge, speech)) is not None:
            return by_words
        for reason in nothing.reasons:
            speech.note(reason)
        raise
    return (_judged_by_words(records, paths, knowledge, speech) if _may_have_words(found[0]) else None) or found


def _may_have_words(verdict: Verdict) -> bool:
    """Whether the rules leave a verdict open: nothing is named, turned down or advised, and no engine is known to have died."""
    if any(root.fault_class == "engine_died" for root in verdict.roots):
        return False
    is_open = verdict.abstained and not verdict.culprits and not verdict.rejected and verdict.action.kind == "none"
    return is_open and verdict.symptom in {"unknown", "crash"}


def _judged_by_words(
    records: Sequence[Record], paths: Sequence[Path], knowledge: Knowledge, speech: Speech
) -> tuple[Verdict, Window, Topology] | None:
    from collectors.records import UNIT_STARTED, LogEvent, Unread
    from service.cli.whole_text import whole_text

    source = PASTED if any(path.name == PASTED for path in paths) else str(paths[0])
    text = whole_text(paths, source)
    if text is None or not all(isinstance(record, LogEvent | Unread) for record in records):
        return None
    if any(isinstance(record, LogEvent) and record.event == UNIT_STARTED for record in records):
        return None  # what it says has passed
    found = _verdict([*(record for record in records if isinstance(record, LogEvent)), text], knowledge)
    verdict = found[0]
    for failed in (one.what for one in verdict.missing if one.what.startswith(FAILED_ON_WORDS)):
        speech.error(failed)
    return found if verdict.culprits else None


def _verdict(
    records: Sequence[Record], knowledge: Knowledge, attempt: int | None = None
) -> tuple[Verdict, Window, Topology]:
    from analyzers.model import topology
    from analyzers.model.window import Window
    from analyzers.verdict import judge

    window = Window.build(records, attempt)
    shape = topology.infer(window)
    verdict = judge.judge(window, shape, knowledge)
    if verdict.abstained and verdict.symptom == "unknown" and "stacks" in window.kinds:
        verdict = _of_processes(verdict, window, shape, knowledge) or verdict
    return verdict, window, shape


def _of_processes(verdict: Verdict, window: Window, shape: Topology, knowledge: Knowledge) -> Verdict | None:
    """Return the verdict on stacks of processes of unknown ranks, compared with each other; None where that names nothing."""
    from analyzers.model import topology
    from analyzers.model.window import Window
    from analyzers.verdict import judge, unranked

    if (found := unranked.numbered(window, shape, knowledge)) is None:
        return None
    stacks, names = found
    own = Window.build(stacks)
    return unranked.by_process(judge.judge(own, topology.infer(own), knowledge), names, verdict)


def _judged(
    records: Sequence[Record], paths: Sequence[Path], knowledge: Knowledge, hosts: Hosts, job: str | None,
    attempt: int | None,
) -> tuple[Verdict, Window, Topology]:  # fmt: skip
    from service.cli.hosts import without_short_files
    from service.cli.jobs_apart import of_one_job

    records = list(without_short_files(of_one_job(list(records), job)))
    attempts = sorted({record.attempt for record in records if record.attempt is not None})
    if attempt is not None and attempt not in attempts:
        known = f"only {', '.join(map(str, attempts[:20]))}" if attempts else "no record states its attempt"
        raise UserError(f"attempt {attempt} is not among what was read ({known}): choose another or leave it out")
    try:
        placement = hosts.placement(records)
    except ValueError as problem:
        raise UserError(str(problem)) from None
    verdict, window, shape = _verdict([*records, *placement], knowledge, attempt)
    from service.cli.sound_jobs import are_of_steps, of_teardown, shows_failure, sound_verdict, with_earlier

    several = attempt is None and len(attempts) > 1
    if verdict.symptom not in {"unknown", "hardware"} and not several:
        return of_teardown(verdict, paths), window, shape

    sound = sound_verdict(verdict, records, paths, lambda own: _verdict([*own, *placement], knowledge, attempt)[0])
    if several and (verdict.symptom == "unknown" or shows_failure(records, attempts[-2])):
        earlier = _verdict(records, knowledge, attempts[-2])[0]
        return with_earlier(sound or verdict, earlier), window, shape
    if sound is None and verdict.symptom == "unknown" and are_of_steps(records):
        from collectors.records import Steps, Unread

        unread = [record for record in records if isinstance(record, Unread)]
        sources = [record.source for record in records if isinstance(record, Steps)]
        raise NothingUsed(_nothing(paths, read=True, of_steps=sources), list(_folded(unread)))
    return sound or verdict, window, shape


def _read(paths: Sequence[Path], workers: int | None, speech: Speech) -> list[Record]:
    from collectors.files import reading
    from collectors.records import Unread

    records: list[Record] = []
    is_pasted = any(path.name == PASTED for path in paths)
    kinds: set[str] = set()
    with speech.progress("reading, MB") as progress:
        for record in reading.read_paths(paths, workers=workers, progress=progress):
            kind = str(record.__struct_config__.tag)
            if kind not in kinds:
                kinds.add(kind)
                _prepare_to_judge(kind)
            records.append(msgspec.structs.replace(record, source=shown(record.source)) if is_pasted else record)
    unread = [record for record in records if isinstance(record, Unread)]
    if len(unread) == len(records):
        raise NothingUsed(_nothing(paths, read=not unread), list(_folded(unread)))
    return records


def _joined(records: list[Record]) -> list[Record]:
    """Return the records with rotated logs as one, where there are several logs of steps."""
    if sum(record.__struct_config__.tag == "steps" for record in records) < 2:
        return records
    from service.cli import rotated_logs

    return rotated_logs.joined(records)


def _nothing(paths: Sequence[Path], *, read: bool, of_steps: Sequence[str] = ()) -> str:
    """Return why nothing can be judged. ``of_steps``: the sources of what reports steps."""
    from service.cli.stepless_logs import without_steps
    from service.cli.unused_lines import MOST_FILES, files, first_unused
    from service.cli.whole_text import why_nothing

    named = ", ".join(shown(str(path)) for path in paths[:3]) + (" …" if len(paths) > 3 else "")
    if read and not any(path.is_file() or any(file.is_file() for file in path.rglob("*")) for path in paths):
        return f"there is no file in {named}: name the folder that holds the job's dumps, stacks and logs"
    if (what := why_nothing(paths)) is not None:
        return f"nothing in {named} shows a fault: it is {what}"
    line = first_unused(paths)
    if line is not None:
        said = f"though it has words of a fault: {shown(line)}; add dumps, stacks or the whole log"
        return f"no rule uses anything in {named}, {said}"
    if read:
        said = without_steps(list(islice(files(paths), MOST_FILES)), of_steps) or "a log without errors for example"
        return f"nothing in {named} shows a fault or a wait; {said}; add dumps or stacks"
    return f"nothing readable in {named}: `faulthound formats` lists what can be read and how to make it"


def _prepare_to_judge(kind: str) -> None:
    """Import what judges records of this kind while the children read the rest."""
    from analyzers import diagnosis
    from analyzers.verdict import judge  # noqa: F401  it is used once all is read

    diagnosis.load({kind})


def _folded(unread: Sequence[Unread]) -> Iterator[str]:
    """Yield a line for each reason that nothing was read, with the first file it holds for and how many more."""
    by_reason: dict[str, list[str]] = {}
    for record in unread:
        by_reason.setdefault(record.reason, []).append(record.source)
    for reason, sources in list(by_reason.items())[:MOST_REASONS]:
        more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
        yield f"{sources[0]}{more}: {reason}"
    if len(by_reason) > MOST_REASONS:
        yield f"… and {len(by_reason) - MOST_REASONS:,} more reasons; `faulthound read PATH` prints all"


def _print(verdict: Verdict, *, as_json: bool, no_color: bool) -> None:
    if as_json:
        from analyzers.model.verdict import to_json

        print_document(to_json(verdict))
        return
    print_verdict(verdict, no_color=no_color)


def _write_page(
    path: Path, speech: Speech, verdict: Verdict, window: Window, topology: Topology, knowledge: Knowledge
) -> None:
    from service.reports import html

    page = html.page(verdict, window, topology, knowledge)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as problem:
        raise UserError(f"--html {path} cannot be written ({problem.strerror}): choose another place") from None
    speech.note(f"report: {path}")


def _code(expectation: Expectation, verdict: Verdict, speech: Speech) -> int:
    from service.cli.expectation import failures

    failed = list(failures(expectation, verdict))
    for sentence in failed:
        speech.error(sentence)
    if failed:
        return exit_codes.UNEXPECTED
    return exit_codes.ABSTAINED if verdict.abstained and not expectation.of_abstention else exit_codes.VERDICT


@contextmanager
def saved(paths: Sequence[Path], speech: Speech) -> Iterator[list[Path]]:
    """Give the paths with standard input as a file; the file lives as long as the context."""
    if STANDARD_INPUT not in paths:
        yield list(paths)
        return
    if sys.stdin is None:
        raise UserError("standard input is closed: pipe the lines into it, or name a file")
    if sys.stdin.isatty():
        speech.note("reading standard input: paste the lines, then press Ctrl-D")
    with tempfile.TemporaryDirectory(prefix="faulthound-") as folder:
        file = Path(folder) / PASTED
        with file.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield [file if path == STANDARD_INPUT else path for path in paths]


def shown(source: str) -> str:
    """Return a source, or a message that holds one, without the folder in which standard input was saved."""
    before, found, after = source.partition(f"/{PASTED}")
    return before.rpartition(" ")[0] + (" " if " " in before else "") + PASTED + after if found else source
