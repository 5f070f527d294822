"""Jobs in which nothing failed: their logs show sound steps or a good end, whatever the kernel logs of their nodes hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from analyzers.model.verdict import Missing, Rejected, Verdict
    from collectors.records import Record, Steps

HEAD_BYTES = 1 << 16
_OF_MACHINES = frozenset({"hosts", "kernel_log"})
MOST_SHOWN = 3  # faults that are to be looked at later


def sound_verdict(
    verdict: Verdict, records: Sequence[Record], paths: Sequence[Path], judged: Callable[[Sequence[Record]], Verdict]
) -> Verdict | None:
    """Return the verdict on a job whose own logs are sound: nothing is accused; None where they are not, or show no job.

    A list of hosts is no evidence. What kernel logs hold of machines is to be looked at later, where the job outlived it or has
    ended well: nothing is started anew for it. ``judged`` gives the verdict on a part of the records.
    """
    from collectors.records import KernelEvent, Placement

    of_job = [record for record in records if not isinstance(record, KernelEvent)]
    own = [record for record in of_job if not isinstance(record, Placement)]
    if not own or not (verdict.symptom == "hardware" or (verdict.symptom == "unknown" and not verdict.culprits)):
        return None
    alone = verdict if len(of_job) == len(records) else judged(of_job)
    logs = _logs_of_jobs(paths)
    if verdict.symptom == "unknown" and are_of_steps(own):
        found = _of_sound_steps(alone, own, logs)
    else:
        found = _of_good_end(alone, own, logs)
    return found and _with_later(_with_unjudged(found, own, logs), verdict)


def of_teardown(verdict: Verdict, paths: Sequence[Path]) -> Verdict:
    """Return the verdict on a process that crashed without words while a job ended that says it has finished: it lost nothing.

    All that shows the crash stands below the line that says so.
    """
    from service.cli.unused_lines import finished

    if verdict.symptom != "crash" or verdict.cause != "unknown" or not verdict.culprits:
        return verdict
    if (said := finished(_logs_of_jobs(paths), teardown=True)) is None:
        return verdict
    (file, _, line), shown = said.rpartition(":"), [item.source.rpartition(":") for item in verdict.evidence]
    if not all(name == file and number.isdecimal() and int(number) > int(line) for name, _, number in shown):
        return verdict
    why = f"no fault found: the job says that it has finished ({said}), and what a process died of came after it, as it ended"
    return msgspec.structs.replace(_without(verdict, why), culprits=(), roots=(), suspects=())


def with_earlier(verdict: Verdict, earlier: Verdict) -> Verdict:
    """Return a verdict with what failed before the job was started again: its ranks may have moved since.

    What the earlier failure accuses is rejected where the verdict names another.
    """
    from analyzers.model.verdict import Missing

    if earlier.first_symptom is None or earlier.first_symptom == verdict.first_symptom:
        return verdict
    said = earlier.first_symptom.text.rstrip(".")
    places = {item.text.lower(): item.source for item in earlier.evidence}
    where = places.get(earlier.first_symptom.text.lower(), "")
    of = f"an earlier attempt failed ({said}{f' [{where}]' if where else ''})"
    before = f"{of}, and the job went on after it: its ranks may run on other nodes since"
    if verdict.cause == "none":
        action = msgspec.structs.replace(verdict.action, why=f"{verdict.action.why}; {before}")
        return msgspec.structs.replace(verdict, action=action)
    if not verdict.abstained:
        return msgspec.structs.replace(
            verdict, rejected=(*verdict.rejected, *_of_before(verdict, earlier, said, where))
        )
    if verdict.symptom == "unknown":
        missing = Missing(what=f"how the job goes on now: {before}")
    else:
        missing = Missing(what=f"whether the attempt before failed of the same: {of}", matters=False)
    return msgspec.structs.replace(verdict, missing=(missing, *verdict.missing))


def shows_failure(records: Sequence[Record], attempt: int) -> bool:
    """Whether a log has an event of this attempt: to judge its dumps again takes long, and they show no end."""
    from collectors.records import LogEvent

    return any(isinstance(record, LogEvent) and record.attempt == attempt for record in records)


def _of_before(verdict: Verdict, earlier: Verdict, said: str, where: str) -> list[Rejected]:
    """Return what the attempt before accuses and this one does not; an end from outside accuses nothing."""
    from analyzers.model.verdict import Rejected

    named = {(one.kind, one.id) for one in verdict.culprits}
    why = f"the attempt before failed of it ({said}{f' [{where}]' if where else ''}); this one began after that"
    others = (one for one in earlier.culprits if (one.kind, one.id) not in named and one.kind != "platform")
    return [Rejected(kind=one.kind, id=one.id, why=why) for one in others]


def are_of_steps(records: Sequence[Record]) -> bool:
    """Whether nothing but the course of a job was read."""
    from collectors.records import RoleState, Steps, StragglerReports, Unread

    return all(isinstance(record, Steps | RoleState | StragglerReports | Unread) for record in records)


def _of_good_end(verdict: Verdict, records: Sequence[Record], paths: Sequence[Path]) -> Verdict | None:
    """Return the verdict where logs say that the job has finished, and rules name nothing by their lines."""
    from collectors.records import LogEvent, RoleState, Steps, Unread
    from service.cli.unused_lines import finished

    logs = all(isinstance(record, LogEvent | Steps | RoleState | Unread) for record in records)
    if not logs or verdict.symptom != "unknown" or verdict.culprits or verdict.rejected:
        return None
    if (said := finished(paths)) is None:
        return None
    return _without(verdict, f"no fault found: the job says that it has finished ({said})")


def _of_sound_steps(verdict: Verdict, records: Sequence[Record], paths: Sequence[Path]) -> Verdict | None:
    """Return the verdict on sound steps alone. They show no hang, so the job is not called healthy.

    It abstains where ranks stopped at different steps. None: no steps, a damaged file, or a line with words of a fault.
    """
    from analyzers.diagnosis.numeric.lasting import odd_once, unsure
    from analyzers.diagnosis.slow.step_logs import paused_once, slower_once, unjudged
    from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES
    from collectors.records import Steps, Unread
    from service.cli.last_steps import WANTED, ends_early
    from service.cli.unused_lines import finished, first_unused

    steps = [record for record in records if isinstance(record, Steps) and record.count]
    whole = not any(
        isinstance(record, Unread) and record.outcome not in {"unrecognised", "empty"} for record in records
    )
    if not steps or not whole or (first_unused(paths) is not None and finished(paths) is None):
        return None
    read, steps = len(steps), _of_newest_run(steps)
    for role in sorted({record.role or "" for record in steps}):
        if (apart := _apart([record for record in steps if (record.role or "") == role])) is not None:
            return msgspec.structs.replace(verdict, missing=(apart, *verdict.missing))
    ranks = len({(record.role, record.rank) for record in steps if record.rank is not None})
    many, of = (ranks, "rank") if ranks else (len(steps), "log")
    fewest, most = min(record.count for record in steps), max(record.count for record in steps)
    counted = f"{f'{fewest:,} to ' if fewest < most else ''}{most:,} step{'s' if most > 1 else ''}"
    why = f"no fault found: {many:,} {of}{'s' if many > 1 else ''}, {counted}{' each' if many > 1 else ''}"
    if earlier := read - len(steps):
        why += (
            f"; {earlier:,} log{'s' if earlier > 1 else ''} of an earlier run {'are' if earlier > 1 else 'is'} left out"
        )
    for once in filter(None, (slower_once(steps), paused_once(steps), odd_once(steps))):
        why += f"; {once}"
    for change in unsure(steps):
        why += f"; {change}"
        verdict = _with_missing(verdict, f"whether a setting or a new phase explains it: {change}")
    if finished(paths) is None and (early := ends_early(steps)):
        why += f"; {early}"
        verdict = _with_missing(verdict, f"whether the job goes on: {early}; {WANTED}")
    if (newest := max(record.count for record in steps)) >= MAX_STEPS_OF_SERIES:
        verdict = _with_missing(
            verdict, f"whether steps became longer before the newest {newest:,} of a log, which are read"
        )
    if reason := unjudged(steps):
        why += "; whether steps became longer is not judged"
        verdict = _with_missing(verdict, f"whether steps became longer: {reason}")
    return _without(verdict, why)


def _with_missing(verdict: Verdict, what: str) -> Verdict:
    from analyzers.model.verdict import Missing

    return msgspec.structs.replace(verdict, missing=(Missing(what=what), *verdict.missing))


def _of_newest_run(steps: Sequence[Steps]) -> list[Steps]:
    """Leave out the logs of earlier runs."""
    from analyzers.diagnosis.slow.logged_steps import Run
    from service.cli.record_columns import values

    runs = [
        Run.of(one, values(one.columns.get("at", b""), "<f8"), values(one.columns.get("step", b""), "<i8") or (0,))
        for one in steps
    ]
    return [one for one, run in zip(steps, runs, strict=True) if not run.is_earlier(runs)]


def _apart(steps: Sequence[Steps]) -> Missing | None:
    """Return that logs end at different steps, further apart than the widest gap between two steps that one reports."""
    from analyzers.model.verdict import Missing
    from service.cli.record_columns import values

    ends, widest = [], 1
    for record in steps:
        numbers = values(record.columns.get("step", b""), "<i8")
        counted = not numbers or min(numbers) < 0
        ends.append((record.count if counted else numbers[-1], record))
        widest = max(widest, 1 if counted or len(numbers) < 2 else (numbers[-1] - numbers[0]) // (len(numbers) - 1))
    (first, behind), (last, ahead) = (choose(ends, key=lambda end: end[0]) for choose in (min, max))
    if last - first < widest:
        return None
    one, other = (Path(record.source).name for record in (behind, ahead))
    what = f"whether a rank has stopped: {one} ends at step {first:,}, {other} at step {last:,}"
    return Missing(what=f"{what}; stacks or dumps of every rank would decide")


def _with_unjudged(sound: Verdict, records: Sequence[Record], logs: Sequence[Path]) -> Verdict:
    """State which logs show no steps: their pace was not judged."""
    from analyzers.model.verdict import Missing
    from collectors.files.path_owner import whose
    from collectors.records import Steps, Unread
    from service.cli.rotated_logs import name_of
    from service.cli.stepless_logs import without_steps

    sources = [record.source for record in records if isinstance(record, Steps | Unread)]
    parts = {name_of(source) for source in sources}  # of a log that was rotated; those of ranks are logs of their own
    logs = [log for log in logs if whose(str(log)).rank is not None or name_of(str(log)) not in parts]
    if not (said := without_steps(logs, sources)):
        return sound
    return msgspec.structs.replace(sound, missing=(Missing(what=f"the pace: {said}"), *sound.missing))


def _without(verdict: Verdict, why: str) -> Verdict:
    from analyzers.model.verdict import Action

    return msgspec.structs.replace(verdict, cause="none", abstained=False, action=Action(kind="none", why=why))


def _with_later(sound: Verdict, verdict: Verdict) -> Verdict:
    """Add what the verdict names, or turned down, of machines: to be looked at when their nodes are free."""
    from analyzers.model.verdict import Rejected

    named = [Rejected(kind=one.kind, id=one.id, why=f"{one.why}; the job has ended well") for one in verdict.culprits]
    rejected = (*named, *verdict.rejected)
    shown = list(dict.fromkeys(f"{one.kind} {one.id}" for one in rejected))[:MOST_SHOWN]
    later = f"; check {' and '.join(shown)} when no job runs there" if shown else ""
    action = msgspec.structs.replace(sound.action, why=sound.action.why + later)
    return msgspec.structs.replace(sound, rejected=rejected, action=action, coverage=verdict.coverage)


def _logs_of_jobs(paths: Sequence[Path]) -> list[Path]:
    """Return the files without lists of hosts and kernel logs, whose words are not the job's; a lone file stays."""
    from service.cli.unused_lines import MOST_FILES, files

    given = list(islice(files(paths), MOST_FILES + 1))
    return [file for file in given if not _is_machines(file)] if 1 < len(given) <= MOST_FILES else given


def _is_machines(file: Path) -> bool:
    from collectors.formats import recognise

    try:
        with file.open("rb") as stream:
            format = recognise(stream.read(HEAD_BYTES), str(file))
    except OSError:
        return False
    return format is not None and format.name in _OF_MACHINES
