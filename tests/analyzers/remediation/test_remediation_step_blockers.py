"""What keeps a remediation from acting: facts of job and fleet, the budget of an hour, the breaker, another remediation."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.remediation.messages import (
    Approve,
    CloseBreaker,
    Proposed,
    RemediationRefused,
    RemediationTick,
    Take,
)
from analyzers.remediation.types import (
    JobFacts,
    Limits,
)
from tests.analyzers.remediation.test_remediation_step import JOB, NODES, Desk, facts, plan


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"merged": {"inc-1": "inc-9"}}, "of the fleet"),
        ({"newest_verdicts": {"inc-1": 3}}, "3 is the newest"),
        ({"jobs": {}}, "nothing is known of job"),
        ({"jobs": {JOB: JobFacts(nodes=NODES, attempt=2)}}, "attempt 2"),
        ({"jobs": {JOB: JobFacts(nodes=("gpu-7",), attempt=1)}}, "does not run on gpu-3"),
        ({"jobs": {JOB: JobFacts(nodes=NODES, attempt=1, minimum_nodes=8)}}, "whose minimum is 8"),
        ({"jobs": {JOB: JobFacts(nodes=NODES, attempt=1, saving_since=990.0)}}, "saving a checkpoint"),
        ({"jobs": {JOB: JobFacts(nodes=NODES, attempt=1, holders={"gpu-3": ()})}}, "last holder"),
        ({"tenants": {"gpu-3": (JOB, "bert")}}, "bert on gpu-3"),
    ],
)
def test_what_is_known_of_job_and_fleet_hinders(changed: dict[str, Any], code: str) -> None:
    """Each fact that makes the eviction wrong refuses the claim, with a sentence that says which."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk.book = replace(desk.book, facts=facts(**changed))

    refused = desk.refuses(Take(id="rem-1", by="slurm"))
    assert refused.code == "hindered"
    assert code in str(refused)


def test_a_spare_takes_the_place_of_an_evicted_node() -> None:
    """At its minimum a job may lose a node if one spare is there."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk.book = replace(desk.book, facts=facts(jobs={JOB: JobFacts(nodes=NODES, attempt=1, minimum_nodes=8, spares=1)}))

    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]


def fleet_desk(**limits: Any) -> Desk:
    """Return a desk whose jobs each run on nodes of their own."""
    desk = Desk(limits=Limits(**limits))
    jobs = {f"job-{number}": JobFacts(nodes=(f"gpu-{number}", f"gpu-{number}b")) for number in range(20)}
    desk.book = replace(desk.book, facts=facts(jobs=jobs))
    return desk


def evict(desk: Desk, number: int) -> None:
    """Evict a node of one of the jobs."""
    named = {"incident": f"inc-{number}", "job": f"job-{number}", "nodes": (f"gpu-{number}",), "attempt": None}
    desk.executing(f"rem-{number}", **named)


def test_the_budget_of_an_hour_is_not_passed() -> None:
    """Four nodes an hour: the fifth is refused until the first is an hour ago."""
    desk = fleet_desk(evictions_an_hour=4, breaker_share=1.0)
    for number in range(4):
        evict(desk, number)

    with pytest.raises(RemediationRefused, match="budget of 4"):
        evict(desk, 4)
    desk.now += 3_600.0
    evict(desk, 5)


def test_the_breaker_opens_at_its_share_and_only_a_person_closes_it() -> None:
    """Five of a hundred nodes within the hour open it; a day later it is open still; closed, it counts anew."""
    desk = fleet_desk(evictions_an_hour=100, breaker_share=0.05)
    for number in range(5):
        evict(desk, number)

    assert desk.book.trip is not None
    desk(RemediationTick(), later=86_400.0)
    with pytest.raises(RemediationRefused, match="the breaker is open"):
        evict(desk, 5)
    assert desk(CloseBreaker(by="ann", reason="it was the switch")) == ["breaker_closed"]
    evict(desk, 6)


def test_more_than_the_share_at_once_is_refused_without_opening_the_breaker() -> None:
    """Six of a hundred nodes in one remediation do not act at all, and the next of one node does."""
    desk = fleet_desk(evictions_an_hour=100, breaker_share=0.05)
    job = JobFacts(nodes=tuple(f"x-{number}" for number in range(10)))
    desk.book = replace(desk.book, facts=facts(jobs={**desk.book.facts.jobs, "wide": job}))

    with pytest.raises(RemediationRefused, match="would pass 5"):
        desk.executing("rem-w", incident="inc-w", job="wide", attempt=None, nodes=job.nodes[:6])
    assert desk.book.trip is None
    evict(desk, 1)


def test_one_remediation_at_a_time_acts_on_a_job() -> None:
    """While one is executed a second of the same job is not claimed."""
    desk = Desk()
    desk.executing()
    desk(Proposed(incident="inc-2", plan=plan("rem-2", incident="inc-2", nodes=("gpu-5",))))
    desk(Approve(id="rem-2", by="ann"))

    assert desk.blockers(Take(id="rem-2", by="slurm")) == ["acting"]


def test_a_tenant_that_nobody_counted_hinders() -> None:
    """The plan counts what bert loses; another job that came to the node since then is not passed over."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan(priced_tenants=("bert",))))
    desk(Approve(id="rem-1", by="ann"))
    desk.book = replace(desk.book, facts=facts(tenants={"gpu-3": (JOB, "bert", "qwen")}))

    refused = desk.refuses(Take(id="rem-1", by="slurm"))
    assert refused.code == "hindered"
    assert "qwen on gpu-3" in str(refused)
    desk.book = replace(desk.book, facts=facts(tenants={"gpu-3": (JOB, "bert")}))
    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]


def test_a_drain_that_waits_costs_no_tenant_anything() -> None:
    """A node that is taken out when its jobs have ended may have other jobs on it."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan(kind="drain_after_job")))
    desk(Approve(id="rem-1", by="ann"))
    desk.book = replace(desk.book, facts=facts(tenants={"gpu-3": (JOB, "bert")}))

    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]
