"""Whom a remediation is about in Slurm: which nodes, and which of its jobs. Where that cannot be told, nothing is done."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from service.adapters.slurm.slurm_actions import RESTARTS, Work, reason_of
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_output import FAILED, RUNS, Job, folded, is_plain, mark, marked

Found = dict[str, Any]


class Placed(NamedTuple):
    """Where the attempt's ranks were seen, and how long ago last: instants are of the service's clock, and not of Slurm's."""

    nodes: Sequence[str] = ()
    seconds_ago: float = -math.inf


MOST_NAMED = 8
CLOCK_SECONDS = 1.0  # Slurm tells whole seconds
APART_SECONDS = 10.0  # that clocks may be apart: no job is put back into the queue and runs again in less
RECENT_SECONDS = 420.0
"""Sightings of ranks that go on are stored every five minutes. After that, only a name tells whose a job is: Slurm forgets one
that has ended in about the same time, and who shared its nodes would be all that is left."""
TAKEN_TOO = "left as it is: another remediation has taken it out as well"
_NUMBERED = re.compile(r"-(\d{1,10})$")
_THERE = (*RUNS, "COMPLETING")
_ALIVE = (*_THERE, *FAILED, "PENDING")


class Elsewhere(Exception):
    """This Slurm knows nothing of it: another scheduler may."""


def work_of(slurm: Slurm, found: Found, placed: Callable[[], Placed]) -> Work:
    """Return what is to be done in Slurm's names; ``problem`` where it cannot be. Raise ``Elsewhere``."""
    nodes = {name: _named(slurm, name) for name in found["nodes"]}
    known = {name: known_as for name, known_as in nodes.items() if known_as is not None}
    if nodes and not known:
        raise Elsewhere(f"this Slurm has no node {_some(nodes)}")
    work = Work(
        kind=found["kind"], nodes=known, mark=mark(found["incident"], found["id"]), reason=reason_of(found),
    )  # fmt: skip
    if len(known) < len(nodes):
        return _not(work, f"this Slurm has no node {_some(set(nodes) - set(known))}, and has the others")
    if len(set(known.values())) < len(known):
        return _not(work, f"which of Slurm's nodes are {_some(nodes)} cannot be told: two would be the same")
    if found["kind"] not in RESTARTS:
        return work
    number, problem = _job(slurm, found, lambda: _in_slurm(slurm, placed()))
    if number is None:
        if not nodes:
            raise Elsewhere(problem)
        return _not(work, problem)
    return _checked(slurm, work, number)


def undoing(
    slurm: Slurm,
    found: Found,
    give_back: Collection[str] | None = None,
    is_undone: Callable[[str, str], bool] = lambda _incident, _remediation: False,
) -> Work:
    """Return what is to be taken back: the nodes, and the job if it was told to keep away from them.

    ``give_back``: those that no other remediation has taken out as well; None: the service has not said so yet.
    ``is_undone``: of a remediation of an incident: it may have found a node drained by another, which was undone first.
    """
    nodes = {name: _named(slurm, name) for name in found["nodes"]}
    known = {name: known_as for name, known_as in nodes.items() if known_as is not None}
    if not known:
        raise Elsewhere(f"this Slurm has no node {_some(nodes)}")
    jobs = [key.removeprefix("job ") for key in found["did"] if re.fullmatch(r"job \d{1,10}", key)]
    mine = mark(found["incident"], found["id"])
    back = known if give_back is None else {name: known[name] for name in known if name in give_back}
    reasons = [node.reason for name in back.values() if (node := slurm.node(name)) is not None]
    others = {of for text in reasons if (of := marked(text)) is not None and mark(*of) != mine}
    return Work(
        kind=found["kind"], nodes=back, kept={name: TAKEN_TOO for name in known if name not in back}, mark=mine,
        reason=mine, also=tuple(mark(*of) for of in sorted(others) if is_undone(*of)), job=jobs[0] if jobs else None,
    )  # fmt: skip


def _checked(slurm: Slurm, work: Work, number: str) -> Work:
    """Look at what would keep the job from running again, before a node is drained for it."""
    parts = slurm.parts(number)
    if len(parts) > 1:
        return _not(
            work, f"Slurm's job {number} has {len(parts)} parts, an array's or a heterogeneous job's: do it by hand"
        )
    job = parts[0] if parts else None
    if job is None or job.state not in _ALIVE:
        return _not(
            work, f"Slurm's job {number} is {job.state.lower() if job else 'gone'}: there is nothing to restart"
        )
    if job.state == "PENDING" and not slurm.has_run(number):
        return _not(work, f"Slurm's job {number} waits and has never run: none of its ranks can have been seen")
    if (why := slurm.unrequeueable(number)) is not None:
        return _not(work, f"Slurm's job {number} cannot be requeued: {why}")
    if asked := sorted(set(job.required) & set(work.nodes.values())):
        return _not(work, f"Slurm's job {number} asks for {folded(asked)} by name: it could not run without")
    return replace(work, job=number)


def _job(slurm: Slurm, found: Found, placed: Callable[[], Placed]) -> tuple[str | None, str]:
    """Return the number of a job, or None and why it cannot be told.

    Agents call a job by its name and number in Slurm, unless its user gave it another name, which may look like another
    job's number. So either is believed only of a job that runs where its ranks were seen, and did so then.
    """
    name = found["job"]
    numbered = _NUMBERED.search(name)
    job = slurm.job(numbered[1]) if numbered else None
    if job is None or name not in job.known_as:
        return _unnumbered(slurm, name, placed)
    if found["began_at"] is not None:  # it was compared before that, and may run elsewhere by now
        return job.number, ""
    at = slurm.clock()  # first: what is asked for after it seems to be longer ago, and never later than it was
    seen = placed()
    if _is_where(job, seen.nodes, at - seen.seconds_ago):
        return job.number, ""
    why = f"its ranks were seen elsewhere than Slurm's job {job.number} runs, before that began, or after it ended"
    return None, f"which job {name} is cannot be told: {why}"


def _unnumbered(slurm: Slurm, name: str, placed: Callable[[], Placed]) -> tuple[str | None, str]:
    """Return the one job that runs where the ranks were seen, and did so then, or else the only one of the very same name."""
    at = slurm.clock()  # first, as above
    seen = placed()
    seen_at = at - seen.seconds_ago
    there = slurm.jobs_on(seen.nodes) if seen.nodes else []
    might = [job for job in there if _may_be(job, seen.nodes, seen_at) and not _had_ended(job, seen_at)]
    running = [job for job in might if job.state in _THERE]
    named = [job for job in might if job.name == name]
    if len(named) == 1 and named[0] in running:
        return named[0].number, ""
    if len(running) == len(might) == 1 and seen.seconds_ago <= RECENT_SECONDS:
        return running[0].number, ""
    if running:
        told = ", ".join(job.number for job in might[:5])
        return None, f"which of Slurm's jobs {told} is {name} cannot be told: let FAULTHOUND_JOB be its name there"
    same = [job for job in slurm.jobs_named(name) if job.name == name and job.state in _ALIVE]
    ended = [job for job in same if _may_be(job, seen.nodes, seen_at) and not _had_ended(job, seen_at - APART_SECONDS)]
    if len(ended) == 1:
        return ended[0].number, ""
    return None, (
        f"Slurm has {len(ended) or 'no'} jobs that may be {name}: let FAULTHOUND_JOB be its name there, or leave it unset"
    )


def _is_where(job: Job, nodes: Sequence[str], seen_at: float) -> bool:
    """Whether these may be the ranks of a job that has their job's number, and had neither begun later nor ended before.

    Of one that waits nobody can tell where it ran: the number is believed. It runs nowhere, so that nothing of it is ended.
    """
    if job.state == "PENDING":
        return True
    if _had_ended(job, seen_at - APART_SECONDS):
        return False
    began = (job.started_at or 0.0) - APART_SECONDS <= seen_at
    if job.state == "COMPLETING":  # Slurm names those nodes only on which it has not ended yet
        return began and bool(set(nodes) & set(job.nodes))
    return began and bool(nodes) and set(nodes) <= set(job.nodes)


def _may_be(job: Job, nodes: Sequence[str], seen_at: float) -> bool:
    """Whether these may be the job's ranks. Who began later, or elsewhere, is another tenant, whatever its name is.

    ``nodes``: where ranks were seen, none: nowhere in this Slurm. ``seen_at``: when they last were, by Slurm's clock.
    """
    if job.state == "PENDING":
        return True
    return bool(nodes) and set(nodes) <= set(job.nodes) and (job.started_at or 0.0) + CLOCK_SECONDS <= seen_at


def _had_ended(job: Job, seen_at: float) -> bool:
    """Whether a job had ended when ranks were seen. Of one that goes on Slurm tells when it is to end."""
    return job.state not in _THERE and job.ended_at is not None and job.ended_at + CLOCK_SECONDS < seen_at


def _named(slurm: Slurm, name: str) -> str | None:
    """Return what Slurm calls a node: the same, or the first part of a name with its domain."""
    for known_as in dict.fromkeys((name, name.split(".", maxsplit=1)[0])):
        if slurm.node(known_as) is not None:
            return known_as
    return None


def _in_slurm(slurm: Slurm, seen: Placed) -> Placed:
    """Return nodes as Slurm calls them, none where it does not know them. One name tells how all are written."""
    if not all(map(is_plain, seen.nodes)) or not seen.nodes or (first := _named(slurm, seen.nodes[0])) is None:
        return seen._replace(nodes=())
    nodes = list(seen.nodes) if first == seen.nodes[0] else [node.split(".")[0] for node in seen.nodes]
    return seen._replace(nodes=nodes if len(set(nodes)) == len(nodes) else ())


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(sorted(names)[:MOST_NAMED]) + more


def _not(work: Work, problem: str) -> Work:
    return replace(work, problem=problem)
