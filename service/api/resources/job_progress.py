"""``GET /v1/jobs/{job}/progress``: how a job goes on as the engine sees it: its rhythm, the bound of a silence, its witnesses."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import msgspec
from fastapi import Request
from sqlalchemy.orm import Session

from analyzers.incidents.job_views.standstills import OWN
from analyzers.model.doc import doc
from service.api import auth, fields
from service.api.job_rows import current_attempts, newest_steps
from service.api.problems import documented, not_found
from service.api.resources.jobs import found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.store.models import Progress
from service.store.window.steps import JobSteps

router = Router("jobs")


class HabitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A pause that recurs every so many steps: at every place of its period that was observed, and not by chance."""

    period: Annotated[int, doc("Steps from one to the next.")]
    within: Annotated[int, doc("The period is known but for so many steps: a log may report every tenth.")] = 0
    place: Annotated[int, doc("The step before it, modulo the period.")]
    seconds: Annotated[float, doc("How long it takes.")]


class PauseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A long interval between two steps."""

    at: Annotated[float, doc("When it ended, UTC seconds.")]
    step: Annotated[int, doc("The step before it.")]
    seconds: Annotated[float, doc("How long it was.")]
    learned: Annotated[bool, doc("False: a standstill that teaches nothing covers it.")]


class StandstillDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A span in which the job is known to have stood still, or was not observed."""

    key: Annotated[str, doc("The incident, the rank whose process was stopped, or the node whose agent was away.")]
    since: Annotated[float, doc("UTC seconds.")]
    until: Annotated[float | None, doc("UTC seconds; null: it lasts.")] = None
    why: Annotated[str, doc("fault, process, agent, unknown, or pause: of the job's own.")] = "unknown"
    nodes: Annotated[tuple[str, ...], doc("Nodes that showed up in it.")] = ()


class SlowdownDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that take longer than before."""

    since: Annotated[float, doc("UTC seconds.")]
    step: Annotated[int, doc("The step after which it began.")]
    before_seconds: Annotated[float, doc("What a step took before.")]
    seconds: Annotated[float, doc("What a step took when that was found.")]


class LatentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that takes longer for its own work than before, and that the job does not wait for."""

    rank: Annotated[int, doc("The rank.")]
    since: Annotated[float, doc("UTC seconds, to the minute.")]
    before_seconds: Annotated[float, doc("What it took of each step for its own work before.")]
    seconds: Annotated[float, doc("What it took when that was found.")]


class ReportedRanksDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that a detector inside the job names as slow; several wait for one another."""

    ranks: Annotated[tuple[int, ...], doc("The ranks.")]
    why: Annotated[str, doc("In how many reports, and by how much.")]
    node: Annotated[str | None, doc("Where they run; null: on several nodes, or not known.")] = None
    own: Annotated[bool, doc("They run on the node of rank 0, which reports it.")] = False


class StragglersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest reports of stragglers in rank 0's log come to."""

    fault_class: Annotated[str, doc("slow_reported, slow_together or slow_undecided.")]
    shown: Annotated[tuple[str, ...], doc("What the reports say.")]
    named: Annotated[tuple[ReportedRanksDocument, ...], doc("Whom they name; empty: they do not decide.")] = ()
    missing: Annotated[tuple[str, ...], doc("What would decide.")] = ()


class WitnessDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What one witness of the job's progress says."""

    witness: Annotated[str, doc("steps, operations, traffic, switches, cpu, gpu or stacks.")]
    state: Annotated[str, doc("alive, silent or unmeasured: not read.")]
    at: Annotated[float | None, doc("Alive at that instant, or silent since; null: never read.")] = None


class ProgressDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job's newest attempt, as of the engine's last word on it."""

    attempt: Annotated[int | None, doc("The number of the attempt; null: its processes name none.")]
    as_of: Annotated[float, doc("When the engine wrote it, UTC seconds.")]
    ended_at: Annotated[float | None, doc("When all processes that were seen of it had ended; null: they have not.")]
    ended_how: Annotated[
        str, doc("How it ended, where it did not die by itself; empty: it did, or it has not ended.")
    ] = ""
    has_loss: Annotated[bool, doc("Its steps come with a loss; false: no reader finds one in its logs.")] = True
    step: Annotated[int | None, doc("The newest step; null: none is reported.")]
    step_at: Annotated[float | None, doc("When it ended, UTC seconds.")]
    silent_seconds: Annotated[float, doc("For how long no step was reported, as far as the reporters were read.")]
    is_outdated: Annotated[bool, doc("A newer step was reported since; all but silent_now_seconds is from before it.")]
    silent_now_seconds: Annotated[
        float, doc("The same as silent_seconds; where it is outdated, since that newer step.")
    ]
    allowed_seconds: Annotated[
        float | None, doc("For how long no step may be reported now; null: there is no bound, or it has ended.")
    ]
    median_seconds: Annotated[float | None, doc("The median interval between two reports; null: too few.")]
    p99_seconds: Annotated[float | None, doc("Its p99, pauses left out; null: too few.")]
    intervals: Annotated[int, doc("How many intervals these two rest on.")]
    by_chance_seconds: Annotated[float, doc("The pause that is allowed anywhere, as it has come twice.")]
    habits: Annotated[tuple[HabitDocument, ...], doc("Pauses that recur, as far as they determine their period.")]
    pauses: Annotated[tuple[PauseDocument, ...], doc("The long intervals of the last day, the oldest first.")]
    slowdown: Annotated[SlowdownDocument | None, doc("A slowdown that lasts; null: there is none.")] = None
    has_past: Annotated[
        bool, doc("Its steps are known for long enough, about five minutes, for a slowdown to be seen.")
    ] = True
    latent: Annotated[
        tuple[LatentDocument, ...], doc("Ranks that are slower than before without slowing the job.")
    ] = ()
    stragglers: Annotated[
        tuple[StragglersDocument, ...],
        doc("What a detector inside the job reports of slow ranks, in rank 0's log."),
    ] = ()
    standstills: Annotated[tuple[StandstillDocument, ...], doc("What is left out of the rhythm, the oldest first.")]
    witnesses: Annotated[tuple[WitnessDocument, ...], doc("Who says that the job goes on.")]
    recent_seconds: Annotated[tuple[float, ...], doc("The newest intervals between two reports, the oldest first.")]
    unconfirmed: Annotated[
        tuple[str, ...],
        doc("Nodes that joined after the start and that nothing confirms: what they report of the job is left out."),
    ] = ()


@router.get(
    "/v1/jobs/{job:path}/progress", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def get_progress(request: Request, job: fields.JobPath) -> ProgressDocument:
    """Show how the newest attempt of a job goes on: its rhythm and from what it was learned, the bound, the witnesses."""
    service = service_of(request)
    with service.database.session() as session:
        found(session, job)
        document = newest_progress(session, job, newest_steps(service, session, job))
    if document is None:
        raise not_found("progress", job, "the engine writes it within a minute of the job's first report")
    return document


def newest_progress(session: Session, job: str, steps: JobSteps | None) -> ProgressDocument | None:
    """Return how the newest attempt of a job goes on, None where the engine has not written it yet. ``steps``: the newest."""
    current = current_attempts(session, (job,)).get(job)
    return None if current is None or current.progress is None else _document(current.progress, steps)


def _document(row: Progress, newest: JobSteps | None) -> ProgressDocument:
    known, newer_at = row.document, newest.at if newest is not None and newest.at > row.at else None
    steps: dict[str, Any] = known["progress"]
    standstills = msgspec.convert(steps["standstills"], tuple[StandstillDocument, ...])
    covering = [one for one in standstills if one.why not in OWN]

    def learned(end: float, seconds: float) -> bool:
        return not any(one.since < end and (one.until is None or one.until > end - seconds) for one in covering)

    rows, ended_at = steps["rows"], known.get("ended_at")
    return ProgressDocument(
        attempt=None if row.attempt < 0 else row.attempt, as_of=row.at, ended_at=ended_at, step=steps["step"],
        step_at=steps["at"], silent_seconds=steps["silent_seconds"], is_outdated=newer_at is not None,
        silent_now_seconds=max(0.0, steps["silent_seconds"] if newer_at is None else now() - newer_at),
        allowed_seconds=None if ended_at else steps["allowed_seconds"],
        median_seconds=steps["median_seconds"], p99_seconds=steps["p99_seconds"], intervals=steps["intervals"],
        by_chance_seconds=steps["by_chance_seconds"],
        habits=msgspec.convert(steps["habits"], tuple[HabitDocument, ...]),
        pauses=tuple(
            PauseDocument(at=end, step=step, seconds=seconds, learned=learned(end, seconds))
            for end, step, seconds, *_ in steps["pauses"]
        ),
        slowdown=msgspec.convert((steps.get("pace") or {}).get("slowdown"), SlowdownDocument | None),
        has_past=(steps.get("pace") or {}).get("has_past", True),
        latent=msgspec.convert(known.get("latent", []), tuple[LatentDocument, ...]),
        stragglers=msgspec.convert(known.get("stragglers", []), tuple[StragglersDocument, ...]),
        standstills=standstills, witnesses=msgspec.convert(known["witnesses"], tuple[WitnessDocument, ...]),
        recent_seconds=tuple(round(later[0] - row[0], 3) for row, later in pairwise(rows)),
        unconfirmed=tuple(known.get("unconfirmed", ())), ended_how=known.get("ended_how", ""),
        has_loss=steps.get("has_loss", True),
    )  # fmt: skip
