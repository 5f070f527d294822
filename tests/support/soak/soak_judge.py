"""What was right of what the service said, given what was done to the jobs.

Judged by what was said, not by tight seconds: an incident belongs to what was done to its job when it began or was opened. It is
*right* where that had to be reported and what is named is guilty; *harmless* where nothing had to be reported, no one was named,
nothing was proposed and it was closed; otherwise *wrong*, with the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from tests.support.soak import constant_rule
from tests.support.soak.answers import WAITING
from tests.support.soak.kinds import KINDS, NAMES_NODES, NOBODY

Row = dict[str, Any]
EARLY_SECONDS = 10.0  # an onset is the end of the last step before it
LATE_SECONDS = 60.0  # from the end of something until what is read of it has all come
TELLING_SECONDS = 30.0  # what lasted shorter where it could be seen need not be reported
CLOSES_SECONDS = 120.0  # from the end of a job until its incidents and proposals have to be closed
DIED_SECONDS = 900.0  # longer for proposals of one that died by itself: it may be started again (docs/remediation.md)
OF_MACHINES = frozenset({"rank", "node", "device", "link", "switch", "group", "role", "stage"})


def judge(truth: Sequence[Row], answers: Row) -> Row:
    """Return every incident, proposal and fault with what was right about it, and the sums."""
    events = _unexplained([row for row in truth if row["row"] == "event"])
    runs = [row for row in truth if row["row"] == "job"]
    loads = [row["load"] for row in truth if row["row"] == "load"]
    proposals = [
        _proposal(one, _of_incident(answers, one["incident"]), events, runs, answers["at"])
        for one in answers["remediations"]
    ]
    incidents = [_incident(one, proposals, events, runs, answers["at"]) for one in answers["incidents"]]
    incidents.sort(key=lambda row: row["opened_at"])
    faults = [_fault(event, incidents, answers, events) for event in events if KINDS[event["kind"]].reported == "must"]
    quiet = [event for event in events if KINDS[event["kind"]].reported != "must" and event["job"]]
    reported = [fault["told_seconds"] for fault in faults if fault["told_seconds"] is not None]
    due = [fault for fault in faults if fault["due"]]
    versions = [row["versions"] for row in incidents]
    return {
        "jobs": len(runs),
        "jobs_that_did_not_start": sum(run["first_step_at"] is None for run in runs),
        "jobs_that_did_not_end_by_themselves": sum(run["did_not_end"] for run in runs),
        "minutes": round((max(run["ended_at"] for run in runs) - min(run["started_at"] for run in runs)) / 60.0, 1)
        if runs
        else 0,
        "median_load": median(loads) if loads else None,
        "worst_load": max(loads, default=None),
        "orders_not_reached": sum(row["row"] == "unreached" for row in truth),
        "jobs_that_did_not_go_on": sum(event.get("went_on") is False for event in events),
        "agent_restarts": sum(event["kind"] == "agent_down" for event in events),
        "service_restarts": sum(event["kind"] == "service_down" for event in events),
        "faults": len(faults),
        "faults_that_had_to_be_told": len(due),
        "faults_told": sum(fault["told_seconds"] is not None for fault in due),
        "faults_named_right": sum(fault["named"] for fault in due if KINDS[fault["kind"]].names == "rank"),
        "faults_with_a_guilty_rank": sum(KINDS[fault["kind"]].names == "rank" for fault in due),
        "median_told_seconds": median(reported) if reported else None,
        "worst_told_seconds": max(reported, default=None),
        "pauses_and_planned_ends": len(quiet),
        "incidents": len(incidents),
        "incidents_right": sum(row["grade"] == "right" for row in incidents),
        "incidents_harmless": sum(row["grade"] == "harmless" for row in incidents),
        "incidents_wrong": sum(row["grade"] == "wrong" for row in incidents),
        "open_incidents_of_ended_jobs": sum(row["left_open"] for row in incidents),
        "proposals": len(proposals),
        "proposals_wrong": sum(bool(row["wrong"]) for row in proposals),
        "open_proposals_of_ended_jobs": sum(row["left_open"] for row in proposals),
        "most_open_proposals_of_a_job": _most_open(proposals, answers["at"]),
        "most_versions": max(versions, default=0),
        "median_versions": median(versions) if versions else 0,
        "flips": sum(row["flips"] for row in incidents),
        "by_kind": _by_kind(events, faults, incidents, proposals),
        "naive": constant_rule.compare(events, answers["shown"], runs),
        "every_fault": faults,
        "every_incident": incidents,
        "every_proposal": sorted(proposals, key=lambda row: row["at"]),
    }


def holds(result: Row) -> bool:
    """Return whether the aims are met, and the constant rule is worse."""
    ours = result["proposals_wrong"] + result["faults_that_had_to_be_told"] - result["faults_told"]
    naive_wrong = result["naive"]["wrong_alarms"] + result["naive"]["faults_missed"]
    return (
        result["jobs"] > 0
        and not (result["jobs_that_did_not_start"] or result["proposals_wrong"] or result["incidents_wrong"])
        and not (result["open_incidents_of_ended_jobs"] or result["open_proposals_of_ended_jobs"])
        and result["faults_told"] == result["faults_that_had_to_be_told"]
        and ours < naive_wrong
    )


def _unexplained(events: Sequence[Row]) -> list[Row]:
    """Leave out the standstills that something else explains."""
    done = [event for event in events if event["kind"] != "busy"]
    return [
        event for event in events
        if event["kind"] != "busy"
        or not any(
            other["job"] == event["job"] and other["at"] < event["until"] + EARLY_SECONDS
            and event["at"] < other["until"] + EARLY_SECONDS
            for other in done
        )
    ]  # fmt: skip


def event_of(incident: Row, events: Sequence[Row]) -> Row | None:
    """Return what was done to a job that an incident of this kind can be about: the last that had begun."""
    job, onset_at, opened_at = incident["job"], incident["onset_at"], incident["opened_at"]
    fits = [
        event for event in events
        if event["job"] == job and incident["kind"] in KINDS[event["kind"]].incidents
        and (
            event["at"] - EARLY_SECONDS <= onset_at <= event["until"] + LATE_SECONDS
            or event["at"] - 2.0 <= opened_at <= event["until"] + LATE_SECONDS
        )
        and event["at"] <= opened_at + 2.0
    ]  # fmt: skip
    # What holds the job at that moment goes before what had ended by then.
    return max(fits, key=lambda event: (event["until"] >= onset_at, event["at"]), default=None)


def _incident(one: Row, proposals: Sequence[Row], events: Sequence[Row], runs: Sequence[Row], now: float) -> Row:
    event = event_of(one, events)
    own = [row for row in proposals if row["incident"] == one["id"]]
    wrong = list(_wrong_of(one, event))
    wrong += [f"proposes {row['kind']}: {reason}" for row in own for reason in row["wrong"]]
    left_open = _left_open(one["job"], one["opened_at"], one["closed_at"], runs, now, CLOSES_SECONDS)
    if left_open:
        wrong.append(f"still open {now - left_open:.0f} s after its job has ended")
    reported = KINDS[event["kind"]].reported if event else "never"
    return {
        "id": one["id"], "job": one["job"], "kind": one["kind"],
        "detector": one["symptoms"][0]["detector"] if one["symptoms"] else "",
        "is_about": event["kind"] if event else None, "opened_at": one["opened_at"], "onset_at": one["onset_at"],
        "closed_at": one["closed_at"], "closed_because": one["closed_because"],
        "open_seconds": round((one["closed_at"] or now) - one["opened_at"], 1),
        "begun_seconds_before": round(one["opened_at"] - event["at"], 1) if event else None,
        "versions": len(one["versions"]), "flips": _flips(one["versions"]), "said": _said(one["versions"]),
        "proposals": [row["kind"] for row in own], "left_open": bool(left_open), "wrong": wrong,
        "grade": "wrong" if wrong else "right" if reported == "must" else "harmless",
    }  # fmt: skip


def _wrong_of(one: Row, event: Row | None) -> list[str]:
    """Return what is wrong with an incident and with each version of its verdict."""
    if event is None:
        if one["job"] is None and not any(_named(version) for version in one["versions"]):
            return []  # of the fleet: an outage is nobody's
        return [f"nothing was done to the job then that is a {one['kind']}"]
    kind, wrong = KINDS[event["kind"]], list[str]()
    for version in one["versions"]:
        named = _named(version)
        if named - set(event["ranks"]):
            wrong.append(f"version {version['version']} names ranks {sorted(named)}, guilty are {event['ranks']}")
        elif kind.names == "nobody" and _machines(version):
            wrong.append(f"version {version['version']} names {_machines(version)}")
        if version["cause"] not in kind.causes | NOBODY and not version["abstained"]:
            wrong.append(f"version {version['version']} has cause {version['cause']}, which no {event['kind']} has")
    return wrong


def _proposal(one: Row, incident: Row, events: Sequence[Row], runs: Sequence[Row], now: float) -> Row:
    event, wrong = event_of(incident, events), []
    if event is None:
        wrong.append("nothing was done to the job then")
    else:
        kind = KINDS[event["kind"]]
        if one["kind"] not in kind.proposals:
            wrong.append(f"a {event['kind']} asks for no {one['kind']}")
        elif one["kind"] in NAMES_NODES and set(one["nodes"]) - set(event["nodes"]):
            wrong.append(f"takes {one['nodes']}, guilty are {event['nodes']}")
        elif not kind.ends and one["proposed_at"] > event["until"] + LATE_SECONDS:
            wrong.append(f"{one['proposed_at'] - event['until']:.0f} s after it was over")
        ended = next(
            (other for other in events if other["job"] == one["job"] and _planned(other, one["proposed_at"])), None
        )
        if ended is not None:
            wrong.append(f"{one['proposed_at'] - ended['at']:.0f} s after the job was ended by {ended['kind']}")
    ends_at = None if one["status"] in WAITING else one["changed_at"]
    died = event is not None and KINDS[event["kind"]].ends and KINDS[event["kind"]].reported == "must"
    allowed = CLOSES_SECONDS + DIED_SECONDS * died
    left_open = _left_open(one["job"], one["proposed_at"], ends_at, runs, now, allowed)
    return {
        "id": one["id"], "incident": one["incident"], "job": one["job"], "kind": one["kind"], "nodes": one["nodes"],
        "is_about": event["kind"] if event else None, "at": one["proposed_at"], "probability": one["probability"],
        "status": one["status"], "because": one["because"], "ended_at": ends_at, "left_open": bool(left_open), "wrong": wrong,
    }  # fmt: skip


def _planned(event: Row, at: float) -> bool:
    kind = KINDS[event["kind"]]
    return kind.ends and kind.reported == "never" and event["at"] + 5.0 < at < event["until"] + 3600.0


def _left_open(
    job: str | None, begun_at: float, ended_at: float | None, runs: Sequence[Row], now: float, allowed: float
) -> float:
    """Return when the job ended of what was open long after that, 0 where it was closed."""
    ends = [run["ended_at"] for run in runs if run["job"] == job and run["started_at"] - EARLY_SECONDS <= begun_at]
    last = max(ends, default=0.0)
    return last if last and ended_at is None and now > last + allowed else 0.0


def _fault(event: Row, incidents: Sequence[Row], answers: Row, events: Sequence[Row]) -> Row:
    """Return when a fault was reported: by an incident of its own, or by a version or a symptom of one that was still open."""
    own = [
        row
        for row in incidents
        if row["job"] == event["job"] and row["is_about"] == event["kind"] and _is_of(row, event)
    ]
    told_at = min((row["opened_at"] for row in own), default=None)
    joined = None
    if told_at is None:
        covering = [
            row for row in incidents
            if row["job"] == event["job"] and row["opened_at"] < event["at"]
            and (row["closed_at"] or answers["at"]) > event["at"] + 2.0
        ]  # fmt: skip
        answered = [_of_incident(answers, row["id"]) for row in covering]
        at = [version["at"] for one in answered for version in one["versions"]]
        at += [entry["at"] for one in answered for entry in one.get("timeline", ()) if entry["kind"] == "symptom"]
        heard = [each for each in at if event["at"] <= each <= event["until"] + LATE_SECONDS]
        told_at, joined = min(heard, default=None), covering[0]["id"] if heard else None
    versions = [version for row in own for version in _of_incident(answers, row["id"])["versions"]]
    named = any(len(ranks := _looked_at(version)) > 0 and ranks <= set(event["ranks"]) for version in versions)
    seen = _seen_seconds(event, events)
    return {
        "job": event["job"], "kind": event["kind"], "at": event["at"], "lasted_seconds": round(event["until"] - event["at"], 1),
        "ranks": event["ranks"], "nodes": event["nodes"],
        "told_seconds": None if told_at is None else round(told_at - event["at"], 1),
        "told_after_return_seconds": _after_return(told_at, event, events),
        "named": named, "joined": joined, "incidents": [row["id"] for row in own],
        "due": KINDS[event["kind"]].ends or seen >= TELLING_SECONDS - 1.0,
    }  # fmt: skip


def _is_of(row: Row, event: Row) -> bool:
    after = row["opened_at"] - event["at"]
    return row["begun_seconds_before"] is not None and abs(after - row["begun_seconds_before"]) < 1.0


def _seen_seconds(event: Row, events: Sequence[Row]) -> float:
    """Return for how long something could be seen: agent and service worked, and the machine had processors for them."""
    blind = _blind(event, events)
    hidden = sum(max(0.0, min(event["until"], one["until"]) - max(event["at"], one["at"])) for one in blind)
    lasted = event["until"] - event["at"]
    late = event.get("late_seconds", 0.0) * (1.0 - hidden / lasted) if lasted > 0.0 else 0.0  # not counted twice
    return float(lasted - hidden - late)


def _after_return(told_at: float | None, event: Row, events: Sequence[Row]) -> float | None:
    """Return how long after the return of what watches it something was reported that had begun before; None: it was not."""
    back_at = max(
        (one["until"] for one in _blind(event, events) if event["at"] < one["until"] <= event["until"]), default=None
    )
    return round(told_at - back_at, 1) if told_at is not None and back_at is not None and told_at > back_at else None


def _blind(event: Row, events: Sequence[Row]) -> list[Row]:
    """Return when something could not be seen."""
    return [
        other for other in events
        if other["kind"] == "service_down" or (other["kind"] == "agent_down" and set(other["nodes"]) & set(event["nodes"]))
    ]  # fmt: skip


def _of_incident(answers: Row, incident: str) -> Row:
    return next(one for one in answers["incidents"] if one["id"] == incident)


def _named(version: Row) -> set[int]:
    return {rank for culprit in version["culprits"] for rank in culprit["ranks"] if culprit["kind"] in OF_MACHINES}


def _looked_at(version: Row) -> set[int]:
    """Return the ranks of whatever it names: of code they are those to look at."""
    return {rank for culprit in version["culprits"] for rank in culprit["ranks"]}


def _machines(version: Row) -> list[str]:
    return [f"{culprit['kind']} {culprit['id']}" for culprit in version["culprits"] if culprit["kind"] in OF_MACHINES]


def _answer(version: Row) -> tuple[Any, ...]:
    return version["cause"], version["abstained"], version["action"], tuple(sorted(_machines(version)))


def _flips(versions: Sequence[Row]) -> int:
    """Return how often a version took back what an earlier one had said: the first change from an abstention is none."""
    said = [_answer(version) for version in versions]
    changes = sum(one != other for one, other in pairwise(said))
    return max(0, changes - (bool(versions) and versions[0]["abstained"] and changes > 0))


def _said(versions: Sequence[Row]) -> list[str]:
    """Return each answer once where it changed: cause, whom it names, action."""
    found: list[str] = []
    for version in versions:
        words = "abstains" if version["abstained"] else f"{version['cause']} {' '.join(_machines(version))}".strip()
        text = f"{version['symptom']}: {words}, {version['action']}"
        if not found or found[-1] != text:
            found.append(text)
    return found


def _most_open(proposals: Sequence[Row], now: float) -> int:
    most = 0
    for one in proposals:
        at = one["at"]
        most = max(most, sum(
            other["job"] == one["job"] and other["at"] <= at < (other["ended_at"] or now) for other in proposals
        ))  # fmt: skip
    return most


def _by_kind(
    events: Sequence[Row], faults: Sequence[Row], incidents: Sequence[Row], proposals: Sequence[Row]
) -> dict[str, Row]:
    found = {}
    for kind in KINDS:
        of = [event for event in events if event["kind"] == kind]
        reported = [
            fault["told_seconds"] for fault in faults if fault["kind"] == kind and fault["told_seconds"] is not None
        ]
        about = [row for row in incidents if row["is_about"] == kind]
        if of or about:
            found[kind] = {
                "happened": len(of), "must_be_told": KINDS[kind].reported, "told": len(reported),
                "named": sum(fault["named"] for fault in faults if fault["kind"] == kind),
                "median_seconds": round(median(reported), 1) if reported else None, "worst_seconds": max(reported, default=None),
                "incidents": len(about), "wrong_incidents": sum(row["grade"] == "wrong" for row in about),
                "proposals": sum(row["is_about"] == kind for row in proposals),
                "wrong_proposals": sum(bool(row["wrong"]) for row in proposals if row["is_about"] == kind),
            }  # fmt: skip
    return found
