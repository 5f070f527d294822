"""The soak's judge on made-up truths and answers: it finds each way of being wrong, and silence does not win."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.soak import report, schedule
from tests.support.soak.kinds import KINDS
from tests.support.soak.soak_judge import holds, judge

NODE, OTHER = "gpu-0001", "gpu-0002"
OF_OURS = {"agent_down", "service_down", "busy"}
Row = dict[str, Any]


def run(ended_at: float = 500.0) -> Row:
    """A job on two nodes."""
    return {
        "row": "job",
        "job": "a",
        "started_at": 0.0,
        "first_step_at": 10.0,
        "ended_at": ended_at,
        "did_not_end": False,
    }


def event(
    kind: str, at: float, until: float, *ranks: int, nodes: tuple[str, ...] = (NODE,), job: str | None = "a"
) -> Row:
    """Something that was done to it."""
    return {
        "row": "event",
        "job": job,
        "kind": kind,
        "at": at,
        "until": until,
        "ranks": list(ranks),
        "nodes": list(nodes),
    }


def version(
    number: int, at: float, cause: str = "machine", ranks: tuple[int, ...] = (1,), action: str = "probe"
) -> Row:
    """A version of a verdict; without ranks it abstains."""
    culprits = [{"kind": "node", "id": NODE, "ranks": list(ranks), "probability": 0.9}] if ranks else []
    return {
        "version": number, "at": at, "symptom": "hang", "cause": cause, "abstained": not ranks, "action": action,
        "culprits": culprits,
    }  # fmt: skip


def incident(
    opened_at: float, closed_at: float | None, *versions: Row, onset_at: float | None = None, kind: str = "hang"
) -> Row:
    """An incident of the job."""
    return {
        "id": f"inc-{opened_at:.0f}", "job": "a", "kind": kind, "opened_at": opened_at, "closed_at": closed_at,
        "onset_at": opened_at - 10.0 if onset_at is None else onset_at, "closed_because": "it goes on" if closed_at else "",
        "symptoms": [{"detector": "no_progress"}], "versions": list(versions),
    }  # fmt: skip


def proposal(
    of: Row, at: float, kind: str = "evict", nodes: tuple[str, ...] = (NODE,), status: str = "cancelled"
) -> Row:
    """A remediation."""
    return {
        "id": f"rem-{at:.0f}", "incident": of["id"], "job": "a", "kind": kind, "nodes": list(nodes), "proposed_at": at,
        "changed_at": at + 30.0, "status": status, "because": "", "probability": 0.9,
    }  # fmt: skip


def judged(truth: list[Row], incidents: list[Row], *proposals: Row) -> Row:
    """Judge, with a step each second but for the stops."""
    still = [(row["at"], row["until"]) for row in truth if row["row"] == "event"]
    steps = [float(at) for at in range(10, 500) if not any(begun < at < over for begun, over in still)]
    answers = {"at": 1000.0, "incidents": incidents, "remediations": list(proposals)}
    return judge(truth, answers | {"shown": {"a": {"steps": steps, "failed": [], "seen": [10.0, 500.0]}}})


STOP = event("stop", 100.0, 150.0, 1)
REPORTED = incident(115.0, 155.0, version(1, 120.0, ranks=()), version(2, 130.0))


def test_what_was_told_and_named_in_time_is_right() -> None:
    """A stopped rank that is reported, named and, while it stands, to be replaced: nothing is wrong."""
    result = judged([run(), STOP], [REPORTED], proposal(REPORTED, 130.0))

    assert holds(result), report.table(result)
    (fault,) = result["every_fault"]
    assert (fault["told_seconds"], fault["named"]) == (15.0, True)
    assert result["every_incident"][0]["grade"] == "right"
    assert result["every_incident"][0]["flips"] == 0
    assert result["naive"] == result["naive"] | {"wrong_alarms": 0, "faults_missed": 1}


def test_silence_does_not_win() -> None:
    """A product that says nothing has reported no fault, and holds nothing."""
    result = judged([run(), STOP], [])

    assert result["faults_told"] == 0
    assert not holds(result)


WRONG = {
    "another rank": ([STOP], [incident(115.0, 155.0, version(1, 120.0, ranks=(2,)))], ()),
    "an innocent node": ([STOP], [REPORTED], (proposal(REPORTED, 130.0, nodes=(OTHER,)),)),
    "the code of a stopped rank": ([STOP], [incident(115.0, 155.0, version(1, 120.0, cause="code"))], ()),
    "a rollback of a stopped rank": ([STOP], [REPORTED], (proposal(REPORTED, 130.0, kind="rollback", nodes=()),)),
    "when it was long over": ([STOP], [incident(115.0, 400.0, version(1, 120.0))], (proposal(REPORTED, 300.0),)),
    "nothing happened": ([STOP], [REPORTED, incident(300.0, 310.0, version(1, 305.0))], ()),
    "a crash in a save": ([event("save", 200.0, 250.0)], [incident(215.0, 255.0, kind="crash")], ()),
    "never closed": ([STOP], [incident(115.0, None, version(1, 120.0))], ()),
    "a proposal is left": ([STOP], [REPORTED], (proposal(REPORTED, 130.0, status="proposed"),)),
    "a pause names a machine": ([event("save", 200.0, 250.0)], [incident(215.0, 255.0, version(1, 220.0))], ()),
    "a debugger": ([event("debugger", 200.0, 250.0)], [incident(215.0, 255.0)], (proposal(incident(215.0, 255.0), 220.0),)),
    "an end that was wanted": (
        [event("kill", 490.0, 500.0)], [incident(495.0, 510.0, version(1, 498.0, "unknown", ()), kind="crash")],
        (proposal(incident(495.0, 510.0), 498.0, kind="restart_job", nodes=()),),
    ),
    "proposed after the end": (
        [STOP, event("ctrl_c", 200.0, 210.0)], [incident(115.0, 330.0, version(1, 120.0))],
        (proposal(REPORTED, 208.0),),
    ),
    "a wait for another process": ([event("network", 200.0, 300.0, nodes=())], [incident(215.0, 305.0, version(1, 220.0))], ()),
}  # fmt: skip


@pytest.mark.parametrize(("truth", "incidents", "proposals"), WRONG.values(), ids=WRONG)
def test_each_way_of_being_wrong_is_found(truth: list[Row], incidents: list[Row], proposals: tuple[Row, ...]) -> None:
    """Each is reported with a reason, and the aims are missed."""
    result = judged([run(), *truth], incidents, *proposals)

    reasons = [reason for row in (*result["every_incident"], *result["every_proposal"]) for reason in row["wrong"]]
    assert reasons or result["open_proposals_of_ended_jobs"]
    assert not holds(result)


def test_a_proposal_may_wait_a_quarter_of_an_hour_for_a_job_that_died() -> None:
    """After a crash the job may be started again; after an end that was wanted, or later, nothing waits."""
    crash = event("kill_rank", 495.0, 500.0, 1)
    reported = incident(497.0, 505.0, version(1, 498.0), kind="crash")
    waits = proposal(reported, 498.0, status="proposed")

    assert judged([run(), crash], [reported], waits)["open_proposals_of_ended_jobs"] == 0
    long_ago = [run(), crash], {"at": 3000.0, "incidents": [reported], "remediations": [waits], "shown": {}}
    assert judge(*long_ago)["open_proposals_of_ended_jobs"] == 1


def test_a_pause_may_open_an_incident_that_names_nobody() -> None:
    """It is harmless where it abstains, proposes nothing and closes."""
    result = judged([run(), event("save", 200.0, 250.0)], [incident(215.0, 255.0, version(1, 220.0, "none", ()))])

    assert [row["grade"] for row in result["every_incident"]] == ["harmless"]


def test_a_standstill_of_the_machine_excuses_only_what_nothing_else_explains() -> None:
    """An incident about it is harmless; a standstill that is a stop's own takes nothing from the stop."""
    busy = event("busy", 300.0, 320.0)
    alone = judged([run(), busy], [incident(312.0, 330.0, version(1, 315.0, "unknown", ()))])
    with_stop = judged([run(), STOP, event("busy", 101.0, 152.0)], [REPORTED])

    assert [row["grade"] for row in alone["every_incident"]] == ["harmless"]
    assert [row["is_about"] for row in with_stop["every_incident"]] == ["stop"]


def test_a_verdict_that_comes_and_goes_is_counted() -> None:
    """From evict to probe and back are two flips; the first answer after an abstention is none."""
    versions = [
        version(1, 116.0, ranks=()),
        *(version(2 + n, 120.0 + n, action=a) for n, a in enumerate(("evict", "probe", "evict"))),
    ]

    result = judged([run(), STOP], [incident(115.0, 155.0, *versions)])

    assert result["flips"] == 2


def test_what_nobody_could_see_need_not_be_told() -> None:
    """While the service is down, or the agent of the guilty node, a fault may pass; the others of its time are due."""
    truth = [event("service_down", 90.0, 140.0, job=None), STOP]

    assert not judged([run(), *truth], [])["every_fault"][0]["due"]
    truth[0] = event("agent_down", 90.0, 140.0, nodes=(OTHER,), job=None)
    assert judged([run(), *truth], [])["every_fault"][0]["due"]


def test_a_second_fault_may_be_told_by_an_incident_that_is_still_open() -> None:
    """A new version or symptom of it counts, with the seconds until it; without one the second fault was not reported."""
    again = event("stop", 170.0, 220.0, 1)
    open_still = incident(115.0, 230.0, version(1, 120.0))

    assert judged([run(), STOP, again], [open_still])["faults_told"] == 1
    reported = judged([run(), STOP, again], [open_still | {"versions": [version(1, 120.0), version(2, 190.0)]}])
    assert [fault["told_seconds"] for fault in reported["every_fault"]] == [15.0, 20.0]
    reported = judged([run(), STOP, again], [open_still | {"timeline": [{"kind": "symptom", "at": 195.0}]}])
    assert [fault["told_seconds"] for fault in reported["every_fault"]] == [15.0, 25.0]


def test_a_day_has_every_kind_and_every_output_and_is_drawn_by_its_seed() -> None:
    """At least twelve jobs; one seed gives one table, another another."""
    day = schedule.day(1)
    plans = [plan for lane in day.lanes for plan in lane]
    kinds = {one.kind for plan in plans for one in plan.story.events}
    kinds |= {"save" for plan in plans if plan.story.save} | {"evaluate" for plan in plans if plan.story.evaluate}

    assert kinds == set(KINDS) - OF_OURS
    assert {plan.output for plan in plans} == set(schedule.OUTPUTS)
    assert len(plans) >= 3 * len(schedule.DAY) >= 12
    assert all(len(plan.nodes) == 1 for plan in plans if plan.story.restarts)
    assert day == schedule.day(1)
    assert day != schedule.day(2)
    assert all(min(one.rank, plan.ranks) >= 0 and one.rank < plan.ranks for plan in plans for one in plan.story.events)
