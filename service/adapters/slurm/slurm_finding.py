"""Which of Slurm's nodes and jobs a remediation is about. Where that cannot be decided, nothing is done."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from service.adapters.scheduler import NotHere, Placed, Remediation, Work
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_output import FAILED, RUNS, SlurmJob, folded, is_plain, mark, marked, reason

RESTARTS = frozenset({"evict", "reset_gpu", "reboot_node", "restart_job", "reattempt"})
MOST_NAMED = 8
CLOCK_SECONDS = 1.0  # Slurm's instants are whole seconds
APART_SECONDS = 10.0  # that clocks may be apart: no job is put back into the queue and runs again in less
RECENT_SECONDS = 420.0
"""Where ranks run is stored every five minutes. Older than that, only a name identifies a job: Slurm forgets an ended job
in about the same time, and only another job that shared its nodes would be left."""
BY_HAND = {"reset_gpu": "reset the GPU; ", "reboot_node": "reboot the node; "}  # what a drained node waits for
TAKEN_TOO = "left as it is: another remediation has taken it out as well"
_NUMBERED = re.compile(r"-(\d{1,10})$")
_THERE = (*RUNS, "COMPLETING")
_ALIVE = (*_THERE, *FAILED, "PENDING")


def work_of(slurm: Slurm, found: Remediation, placed: Callable[[], Placed]) -> Work:
    """Return the work in Slurm's names; ``problem`` where it cannot be done. Raise ``NotHere``."""
    nodes = {name: _named(slurm, name) for name in found["nodes"]}
    known = {name: known_as for name, known_as in nodes.items() if known_as is not None}
    if nodes and not known:
        raise NotHere(f"this Slurm has no node {_some(nodes)}")
    work = Work(
        kind=found["kind"], nodes=known, mark=mark(found["incident"], found["id"]), reason=_reason_of(found),
    )  # fmt: skip
    if len(known) < len(nodes):
        return _not(work, f"this Slurm has no node {_some(set(nodes) - set(known))}, and has the others")
    if len(set(known.values())) < len(known):
        return _not(work, f"which of Slurm's nodes are {_some(nodes)} cannot be decided: two would be the same")
    if found["kind"] not in RESTARTS:
        return work
    number, problem = _job(slurm, found, lambda: _in_slurm(slurm, placed()))
    if number is None:
        if not nodes:
            raise NotHere(problem)
        return _not(work, problem)
    return _checked(slurm, work, number)


def undo_work(
    slurm: Slurm, found: Remediation, give_back: Collection[str] | None, is_undone: Callable[[str, str], bool]
) -> Work:
    """Return what is to be taken back: the nodes, and the job if they were excluded for it.

    ``give_back``: nodes that no other remediation has taken out as well; None: not known yet.
    ``is_undone``: whether that remediation of an incident was undone: this one may have found a node that it had drained.
    """
    nodes = {name: _named(slurm, name) for name in found["nodes"]}
    known = {name: known_as for name, known_as in nodes.items() if known_as is not None}
    if not known:
        raise NotHere(f"this Slurm has no node {_some(nodes)}")
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
            work, f"Slurm's job {number} is {job.state.lower() if job else 'unknown'}: there is nothing to restart"
        )
    if job.state == "PENDING" and not slurm.has_run(number):
        return _not(work, f"Slurm's job {number} waits and has never run: none of its ranks can have been seen")
    if (why := slurm.unrequeueable(number)) is not None:
        return _not(work, f"Slurm's job {number} cannot be requeued: {why}")
    if asked := sorted(set(job.required) & set(work.nodes.values())):
        return _not(work, f"Slurm's job {number} asks for {folded(asked)} by name: it could not run without")
    return replace(work, job=number)


def numbered(name: str) -> str | None:
    """Return the number that a job's name ends with, as agents name jobs of Slurm."""
    found = _NUMBERED.search(name)
    return found[1] if found else None


def _job(slurm: Slurm, found: Remediation, placed: Callable[[], Placed]) -> tuple[str | None, str]:
    """Return the number of a job, or None and why it cannot be decided.

    Agents name a job after its name and number in Slurm, unless its user gave it another name, which may look like another
    job's number. So either counts only for a job that runs where its ranks were seen, and did so then.
    """
    name = found["job"]
    number = numbered(name)
    job = slurm.job(number) if number is not None else None
    if job is None or name not in job.known_as:
        return _unnumbered(slurm, name, placed)
    if found["began_at"] is not None:  # it was compared before that, and may run elsewhere by now
        return job.number, ""
    at = slurm.clock()  # first: what is asked for after it seems to be longer ago, and never later than it was
    seen = placed()
    if _is_where(job, seen.nodes, at - seen.seconds_ago):
        return job.number, ""
    why = f"its ranks were seen elsewhere than Slurm's job {job.number} runs, before that began, or after it ended"
    return None, f"which job {name} is cannot be decided: {why}"


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
        numbers = ", ".join(job.number for job in might[:5])
        return (
            None,
            f"which of Slurm's jobs {numbers} is {name} cannot be decided: set FAULTHOUND_JOB to its name there",
        )
    same = [job for job in slurm.jobs_named(name) if job.name == name and job.state in _ALIVE]
    ended = [job for job in same if _may_be(job, seen.nodes, seen_at) and not _had_ended(job, seen_at - APART_SECONDS)]
    if len(ended) == 1:
        return ended[0].number, ""
    return None, (
        f"Slurm has {len(ended) or 'no'} jobs that may be {name}: set FAULTHOUND_JOB to its name there, or leave it unset"
    )


def _is_where(job: SlurmJob, nodes: Sequence[str], seen_at: float) -> bool:
    """Whether these may be the ranks of a job that has their job's number, and had neither begun later nor ended before.

    Where a waiting job ran is unknown: the number decides. It runs nowhere, so that none of its processes are ended.
    """
    if job.state == "PENDING":
        return True
    if _had_ended(job, seen_at - APART_SECONDS):
        return False
    began = (job.started_at or 0.0) - APART_SECONDS <= seen_at
    if job.state == "COMPLETING":  # Slurm names those nodes only on which it has not ended yet
        return began and bool(set(nodes) & set(job.nodes))
    return began and bool(nodes) and set(nodes) <= set(job.nodes)


def _may_be(job: SlurmJob, nodes: Sequence[str], seen_at: float) -> bool:
    """Whether these may be the job's ranks. A job that began later, or elsewhere, is another tenant's, whatever its name.

    ``nodes``: where ranks were seen; none: nowhere in this Slurm. ``seen_at``: when they last were, by Slurm's clock.
    """
    if job.state == "PENDING":
        return True
    return bool(nodes) and set(nodes) <= set(job.nodes) and (job.started_at or 0.0) + CLOCK_SECONDS <= seen_at


def _had_ended(job: SlurmJob, seen_at: float) -> bool:
    """Whether a job had ended when ranks were seen. For a running job Slurm states when it is to end."""
    return job.state not in _THERE and job.ended_at is not None and job.ended_at + CLOCK_SECONDS < seen_at


def _named(slurm: Slurm, name: str) -> str | None:
    """Return what Slurm calls a node: the same, or the first part of a name with its domain."""
    for known_as in dict.fromkeys((name, name.split(".", maxsplit=1)[0])):
        if slurm.node(known_as) is not None:
            return known_as
    return None


def _in_slurm(slurm: Slurm, seen: Placed) -> Placed:
    """Return nodes as Slurm calls them, none where it does not know them. The first name decides how all are written."""
    if not all(map(is_plain, seen.nodes)) or not seen.nodes or (first := _named(slurm, seen.nodes[0])) is None:
        return seen._replace(nodes=())
    nodes = list(seen.nodes) if first == seen.nodes[0] else [node.split(".")[0] for node in seen.nodes]
    return seen._replace(nodes=nodes if len(set(nodes)) == len(nodes) else ())


def _reason_of(found: Remediation) -> str:
    """Return the reason of the drains: what is wrong comes before why this was chosen."""
    known = (found["symptom"], found["fault_class"].replace("_", " "), f"{found['probability']:.0%} sure")
    wrong = ", ".join(filter(None, known))
    return reason(found["incident"], found["id"], f"{BY_HAND.get(found['kind'], '')}{wrong}; {found['why']}")


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(sorted(names)[:MOST_NAMED]) + more


def _not(work: Work, problem: str) -> Work:
    return replace(work, problem=problem)
