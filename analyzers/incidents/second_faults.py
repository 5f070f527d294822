"""What an open incident does not know yet: the fault of another instance that works by itself is another fault.

The ranks of a trainer fail together, and one of them more is no news. A rollout's end is none of another's, and is judged as soon
as it is a symptom; so is that of an instance which was replaced since.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from msgspec.structs import replace

from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.role_stalls import rules_of
from analyzers.model.incident import Incident, Symptom

OF_INSTANCES = frozenset({"role_stalled", "rank_dead", "rank_stopped"})  # detectors that name whom they are about
MOST_NAMED = 64
REPLACED_SECONDS = 15.0  # after a process began: agents have read it by then
_Unit = tuple[str, int | None]  # role and rank; of a role whose ranks fail together no rank


def is_known(view: JobView, incident: Incident, symptom: Symptom) -> bool:
    """Whether an incident has this symptom: of the same detector, and of no other instance that works by itself."""
    same = [one for one in incident.symptoms if one.subject == symptom.subject]
    if not same or symptom.detector not in OF_INSTANCES:
        return bool(same)
    known = {unit for one in same for unit in _units(view, one) if (_began_at(view, unit) or 0.0) <= one.at}
    return known >= _units(view, symptom)


def folded(symptoms: Iterable[Symptom]) -> list[Symptom]:
    """Return the symptoms of one look, one a detector: the first, with how many more there are."""
    found: dict[tuple[object, ...], list[Symptom]] = {}
    for one in symptoms:
        found.setdefault(one.subject, []).append(one)
    return [_fold(of_one) for of_one in found.values()]


def unknown(view: JobView, incident: Incident, shown: Iterable[Symptom]) -> list[Symptom]:
    """Return what an incident does not know of what is shown."""
    return folded(one for one in shown if not is_known(view, incident, one))


def is_replaced(view: JobView, incident: Incident, now: float) -> bool:
    """Whether an instance of the incident runs anew since its newest judgement, which may be of another one then."""
    began = (
        _began_at(view, (role, rank))
        for symptom in incident.symptoms
        if symptom.detector in OF_INSTANCES and view.numbering.several
        for rank, role in zip_longest(symptom.ranks, symptom.roles)
        if role
    )
    read = [at + REPLACED_SECONDS for at in began if at is not None and at > incident.onset_at]
    return bool(incident.published) and any(incident.judged_at < at <= now for at in read)


def _units(view: JobView, symptom: Symptom) -> frozenset[_Unit]:
    rules = rules_of(view)
    seats = zip_longest(symptom.ranks, symptom.roles)
    return frozenset((role, rank if rules.works_alone(role) else None) for rank, role in seats if role)


def _began_at(view: JobView, unit: _Unit) -> float | None:
    """Return when the process of a rank of a role began, by the service's clock; None: it is not known."""
    role, rank = unit
    number = None if rank is None else view.numbering.known(role, rank)
    process = None if number is None else view.processes.by_rank.get(number)
    node = None if process is None else view.nodes.get(process.node)
    if process is None or node is None or not process.started_at:
        return None
    return node.here(process.started_at, node.last_received_at)


def _fold(of_one: list[Symptom]) -> Symptom:
    first, *more = of_one
    if not more:
        return first
    return replace(
        first,
        text=f"{first.text}, and {len(more)} more",
        ranks=tuple(rank for one in of_one for rank in one.ranks)[:MOST_NAMED],
        roles=tuple(role for one in of_one for role in one.roles)[:MOST_NAMED],
        nodes=tuple(dict.fromkeys(node for one in of_one for node in one.nodes))[:MOST_NAMED],
    )
