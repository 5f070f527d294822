"""Roles and phases in the live view: what holds a job up by their rules, and from when on silence is that of training.

Ranks of one role are compared with one another, never with those of another. A trainer that waits for experience is silent for as
long as the longest tool call; so its silence counts from where its training phase begins. Where no process states its phase,
silence says of a job of several roles only that it is not within the longest tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.processes import End
from analyzers.knowledge.role_rules import RoleRules, role_rules
from analyzers.model.role_instances import Instance, Seat, serving
from analyzers.model.role_look import Stall
from analyzers.model.role_ranks import Process, Statement, match_ranks
from analyzers.model.role_silence import ASKED, STOPPED, Seen
from analyzers.model.role_stalls import stalled
from collectors.records import LogEvent, Record

LEAST_STRENGTH = 0.5  # a weaker one supports others, and opens nothing
EVERY_SECONDS = 5.0  # of thousands of instances one comes at any moment
SAID_SECONDS = (
    120.0  # between a platform's line and the end that it announces: a grace period, and the reading of its log
)
BY_PLATFORM = frozenset({"terminated", "cancelled", "preempted"})
TRAINS = frozenset({"trainer", "hybrid"})
_T = TypeVar("_T")


def rules_of(view: JobView) -> RoleRules:
    """Return the rules of roles that the engine's knowledge has."""
    if view.role_rules is None:
        view.role_rules = role_rules(view.knowledge) if "role_rules" in view.knowledge.tables else RoleRules()
    return view.role_rules


def stalls_of(view: JobView) -> list[Stall]:
    """Return what holds the job up now by the rules of its roles, the surest first."""
    if not view.processes.alive or not view.roles.heard_at:
        return []
    instances = view.roles.instances()
    seen = _seen(view, instances)
    known = view.roles.heard_at // EVERY_SECONDS, seen
    if view.stalls is None or view.stalls[0] != known:
        view.gpus.tell(instances)
        found = stalled(instances, view.roles.heard_at, rules_of(view), seen)
        view.stalls = known, [one for one in found if one.strength >= LEAST_STRENGTH]
    return view.stalls[1]


def silence_counts_from(view: JobView) -> float | None:
    """Return since when silence of the job's trainers is one in training; None: they have another phase, which may last.

    0.0 where none says its phase, as in a job of one role, where every step is training.
    """
    trainers = _trainers(view)
    if trainers:
        begun = [
            one.phase_since or 0.0
            for one in trainers
            if rules_of(view).phase_kind(one.phase) == "train" and not one.waits
        ]
        return min(begun, default=None)
    return 0.0


def states_no_phase(view: JobView) -> bool:
    """Whether the job has several roles, and no process of its trainers says in which phase it is."""
    return view.numbering.several and not _trainers(view)


def works_alone(view: JobView, number: int, known: Mapping[int, Instance]) -> bool:
    """Whether a process is of a role whose instances come and go by themselves, or has left its directory in order.

    ``known``: of ``instances_of``.
    """
    one = known.get(number)
    return rules_of(view).works_alone(view.numbering.of(number)[0]) or (one is not None and one.state == "left")


def is_given_up(view: JobView, end: End, known: Mapping[int, Instance]) -> bool:
    """Whether a process was given up before its end: it was fenced, or left a role whose instances work alone.

    Who restarts a role, or makes it smaller, says so in the directory; what is fenced after its end was lost. Else its platform's
    line says so, where SIGTERM has ended it, at about that time, and others of its role go on. ``known``: of ``instances_of``.
    """
    role = view.numbering.of(end.rank)[0]
    if view.roles.former.had_lost(role, end.pid, end.node, end.at):
        return True
    if not rules_of(view).works_alone(role):
        return False
    one = known.get(end.rank)
    if one is not None and one.state in {"left", "fenced"} and (one.state_at or end.at) < end.at:
        return True
    others = any(view.numbering.of(number)[0] == role and number not in view.ended for number in view.processes.by_rank)
    return end.killed_by in ASKED and others and any(_says(seen.event, end, seen.at) for seen in view.logged.entries)


def _says(event: Record, end: End, at: float) -> bool:
    """Whether a line of a scheduler, read at an instant, states that it ended what ran on this node about then."""
    if not isinstance(event, LogEvent) or event.event not in BY_PLATFORM or event.node not in (None, end.node):
        return False
    return abs((event.at or at) - end.at) <= SAID_SECONDS


def apart(view: JobView, every: Iterable[_T], numbers: Iterable[int]) -> list[list[_T]]:
    """Return in groups what is known of processes, in their order: each that works by itself alone, all others together.

    ``numbers``: of the processes. In a job of one role all are together.
    """
    found: dict[int | None, list[_T]] = {}
    for one, number in zip(every, numbers, strict=True):
        alone = view.numbering.several and rules_of(view).works_alone(view.numbering.of(number)[0])
        found.setdefault(number if alone else None, []).append(one)
    return list(found.values())


def numbers_of(view: JobView, seats: Iterable[Seat]) -> dict[Seat, int]:
    """Map instances to the numbers by which the view keeps their processes; without those that no agent has seen."""
    ranks = _ranks(view)
    numbers = {seat: view.numbering.known(seat[0], ranks[seat]) for seat in seats if seat in ranks}
    return {seat: number for seat, number in numbers.items() if number is not None}


def _ranks(view: JobView) -> dict[Seat, int]:
    said = {
        seat: Statement(
            one.rank, one.pid, one.node, heard_at=one.renewed_at if one.state in (None, "serving") else None
        )
        for seat, one in view.roles.instances().items()
    }
    if not said:
        return {}
    seen = (
        Process(*view.numbering.of(number), process.node, process.pid, _gone_at(view, number))
        for number, process in view.processes.by_rank.items()
    )
    return match_ranks(said, seen)


def _gone_at(view: JobView, number: int) -> float | None:
    end, held = view.ended.get(number), view.processes.held.get(number)
    stopped = held.since if held is not None and held.state in STOPPED else None
    return end.at if end is not None else stopped


def instances_of(view: JobView) -> dict[int, Instance]:
    """Map the numbers of processes to the instances that they are."""
    instances = view.roles.instances()
    return {number: instances[seat] for seat, number in numbers_of(view, instances).items()}


def _trainers(view: JobView) -> list[Instance]:
    fresh = view.roles.heard_at - rules_of(view).bounds.stale_seconds
    return [
        one
        for one in serving(view.roles.instances())
        if rules_of(view).kind(one.role) in TRAINS and one.phase and one.spoke_at > fresh
    ]


def _seen(view: JobView, instances: Iterable[Seat]) -> dict[Seat, Seen]:
    """Return what agents saw of the instances' processes."""
    found: dict[Seat, Seen] = {}
    for seat, number in numbers_of(view, instances).items():
        if (end := view.ended.get(number)) is not None:
            killed = view.processes.killed_for_memory(end)
            asked = end.killed_by in ASKED
            found[seat] = Seen("X", end.at, killed_for_memory=killed, ended_well=end.well, asked_to_end=asked)
        elif (held := view.processes.held.get(number)) is not None:
            found[seat] = Seen(held.state, held.until)
    return found
