"""The ladder in the engine: what is proposed for a job that fails again and again, through the real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from analyzers.verdict import Action, Culprit, Root, Verdict
from service.engine import laddering
from service.remediation.events import Approve, Begin, Cancel, Complete, Fail, Reject, Take
from service.remediation.words import Remediation
from service.store import happenings, incidents
from service.store.database import Database
from service.store.models import Attempt, Downtime, Happening, Incident
from service.store.remediations import Remedies
from tests.caretaking import Care
from tests.incident_rows import AT, JOB, seed
from tests.postgres import database, postgres, url
from tests.remediation_fleet import declare, let, place, refusal

__all__ = ["database", "postgres", "url"]  # fixtures

NODES = tuple(f"gpu-{number:04d}" for number in range(1, 5))
WELL_SECONDS = 7_200.0
NOBODY = Verdict(symptom="hang", cause="unknown", abstained=True, action=Action(kind="none", why="nothing is named"))


class Job:
    """A job of four nodes that fails in attempt after attempt; attempt 1 ran well with code a, and b runs since."""

    def __init__(self, database: Database) -> None:
        self.care = Care(database)
        self.care.turn(0.0)
        self.database, self.attempt, self.incident = database, 1, ""
        self._runs(AT - 2 * WELL_SECONDS, seen_at=AT - WELL_SECONDS, code="a")
        declare(database, parallel={"tp": 2, "dp": 4})

    def _runs(self, at: float, seen_at: float, code: str | None) -> None:
        place(self.database, NODES, self.attempt, at=at)
        with self.database.transaction() as session:
            run = session.get_one(Attempt, (JOB, self.attempt))
            run.last_seen_at, run.code_version = seen_at, code

    def fails(
        self, said: Verdict = NOBODY, kind: str = "hang", code: str | None = "b", ran_seconds: float = 60.0
    ) -> None:
        """Let the next attempt start, and fail with a verdict that is published when its agents were asked once."""
        self.attempt += 1
        care = self.care
        self._runs(care.now, care.now + ran_seconds, code)
        care.now += ran_seconds
        self.incident = f"inc-{self.attempt:012d}"
        seed(self.database, self.incident, at=care.now, nodes=NODES, verdicts=(), kind=kind)
        with self.database.transaction() as session:
            session.get_one(Incident, self.incident).attempt = self.attempt
            session.get_one(Downtime, self.incident).attempt = self.attempt
        self.says(said)

    def says(self, said: Verdict) -> None:
        """Let the engine publish the next version of the verdict."""
        self.care.publish(replace(said, job=JOB, attempt=self.attempt), self.incident)

    def ends(self, because: str, *, recovered: bool = False) -> None:
        """Let the engine close the incident."""
        at = self.care.now
        with self.database.transaction() as session:
            session.get_one(Attempt, (JOB, self.attempt)).last_seen_at = at
            assert incidents.close(session, self.incident, at, because, recovered=recovered)
            told = {"because": because, "recovered": recovered}
            happenings.add(session, at, "closed", self.incident, JOB, told)

    def stands(self, seconds: float = 700.0) -> None:
        """Let it stand still for so long."""
        self.care.turn()
        self.care.turn(seconds)

    def proposal(self) -> Remediation | None:
        """Return what waits for an answer."""
        return next((one for one in self.care.all() if one.status == "proposed"), None)

    def one(self) -> Remediation:
        """Return the only thing that waits for an answer."""
        (one,) = [one for one in self.care.all() if one.status == "proposed"]
        return one

    def done(self, did: dict[str, Any] | None = None) -> Remediation:
        """Let what is proposed be approved and carried out."""
        one = self.one()
        claim: dict[str, Any] = {"id": one.id, "by": "slurm"}
        token = one.claims + 1
        return let(
            self.care.remedies, Approve(id=one.id, by="ann"), Take(**claim), Begin(**claim, token=token),
            Complete(**claim, token=token, did=did or {}), now=self.care.now,
        )  # fmt: skip

    def told(self) -> list[str]:
        """Return why persons were wanted, in order."""
        with self.database.session() as session:
            asked = select(Happening).where(Happening.kind == "person_wanted").order_by(Happening.sequence)
            return [str(one.details["why"]) for one in session.scalars(asked)]


@pytest.fixture
def either(database: Database) -> Job:
    """Return a job that has run well, and has not failed yet, in SQLite and in PostgreSQL in turn."""
    return Job(database)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Yield the same in SQLite alone."""
    database = Database(f"sqlite:///{tmp_path / 'faulthound.db'}")
    database.migrate()
    yield Job(database)
    database.close()


def names(*nodes: str, probability: float = 0.97) -> Verdict:
    """Return a verdict that evicts these nodes."""
    culprits = tuple(Culprit(root=f"r{node}", kind="node", id=node, probability=probability) for node in nodes)
    roots = tuple(Root(root=f"r{node}", cause="machine", fault_class="never_entered") for node in nodes)
    action = Action(kind="evict", nodes=nodes, why="it stopped")
    return replace(NOBODY, cause="machine", abstained=False, roots=roots, culprits=culprits, action=action)


def test_the_whole_ladder_of_a_hang_without_a_name(either: Job) -> None:
    """Restart, the commit that ran well, the groups of a replay, and then a person: each once, and each with its reason."""
    job = either
    job.fails()
    job.stands()
    first = job.done()
    job.fails()
    job.stands()
    second = job.done()
    job.fails(code="a")
    job.stands()
    third = job.done({"bad": []})
    job.care.turn()
    job.care.turn()

    assert [first.kind, second.kind, third.kind] == ["reattempt", "rollback", "replay"]
    assert "a restart tells whether it passes" in first.why
    assert second.code_version == "a"
    assert (third.status, third.outcome) == ("done", None)
    assert third.replay is not None
    assert [group.nodes for group in third.replay.vertical] == [NODES[::2], NODES[1::2]]
    assert job.proposal() is None
    assert [why.endswith("a person has to look") for why in job.told()] == [True]
    assert "reattempt, rollback, replay" in job.told()[0]


def test_an_eviction_in_vain_is_followed_by_checks(either: Job) -> None:
    """The job fails again and the verdict names another: that one is checked first, and leaves because it fails its checks."""
    job = either
    job.fails(names("gpu-0002"))
    job.care.turn()
    evicted = job.done({"gpu-0002": "drained"})
    job.fails(names("gpu-0003"))
    job.care.turn()
    checks = job.done({"gpu-0003": "failed"})
    job.care.turn()
    again = job.one()

    assert (evicted.kind, evicted.nodes) == ("evict", ("gpu-0002",))
    assert (checks.kind, checks.nodes, checks.status) == ("probe", ("gpu-0003",), "done")
    assert "checks come before another machine leaves" in checks.why
    assert (again.kind, again.nodes) == ("evict", ("gpu-0003",))
    assert "gpu-0003 failed the checks" in again.why
    assert again.expected_loss_gpu_hours is not None
    assert again.probability > 0.97


def test_who_passes_its_checks_stays(job: Job) -> None:
    """The checks find nothing: no second machine leaves for this failure, and the job is started again."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003"))
    job.care.turn()
    job.done({"gpu-0003": "passed"})
    job.care.turn()

    assert job.one().kind == "reattempt"


def test_a_first_proof_is_planned_as_ever(job: Job) -> None:
    """Evidence that names a machine is the plan's: it compares with other options, and nothing of the ladder is in it."""
    job.fails(names("gpu-0002"))
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0002",))
    assert "restarting on the same nodes" in job.one().why


def test_a_hang_is_not_restarted_before_it_lasts(job: Job) -> None:
    """Nobody is named: for ten minutes from its onset nothing is proposed, and an attempt that goes on needs nothing."""
    job.fails()
    job.care.turn()
    job.care.turn(560.0)
    before = job.proposal()
    job.ends("the job moves again", recovered=True)
    job.care.turn(60.0)

    assert before is None
    assert job.care.all() == []
    assert job.told() == []


@pytest.mark.parametrize(
    ("ways", "acts"),
    [("4 by signal 6", True), ("3 by signal 15, 1 with exit code 1", True), ("4 with exit code 0", False),
     ("4 by signal 15", False), ("4 by signal 9", False), ("4 in a way that nobody saw", False)],
)  # fmt: skip
def test_only_what_died_is_started_again(job: Job, ways: str, acts: bool) -> None:
    """A hang that ends by its own timeout is started again; one that has done its work, or was stopped, is not."""
    job.fails()
    job.care.turn()
    job.ends(f"all 4 processes that were seen of the job have ended: {ways}")
    job.care.turn()

    assert [one.kind for one in job.care.all()] == (["reattempt"] if acts else [])


def test_a_job_that_makes_progress_is_left_alone(job: Job) -> None:
    """It is slow, or its losses are odd, and nobody is named: however long that lasts it is not restarted."""
    for kind in ("slow", "numeric"):
        job.fails(replace(NOBODY, symptom=kind), kind=kind)
        job.stands(3_000.0)

    assert job.care.all() == []


def test_the_network_acts_from_its_second_alert(job: Job) -> None:
    """A link that fails once is everyday life; twice in five minutes, and its node is checked, while the job goes on."""
    link = Culprit(root="r1", kind="node", id="gpu-0002", probability=0.5)
    network = replace(
        NOBODY, symptom="hardware", cause="network", abstained=False, culprits=(link,), action=Action(kind="probe")
    )
    job.fails(network, kind="hardware")
    job.stands(60.0)
    once = job.proposal()
    job.fails(network, kind="hardware")
    job.stands(30.0)

    assert once is None
    assert (job.one().kind, job.one().nodes) == ("probe", ("gpu-0002",))
    assert "2 alerts of one node within 300 s" in job.one().why


def test_an_exception_everywhere_is_rolled_back_at_once(job: Job) -> None:
    """Every rank raised the same: the code that ran well is named without a restart before."""
    raised = replace(
        NOBODY, symptom="crash", cause="code", abstained=False, action=Action(kind="rollback"),
        roots=(Root(root="r1", cause="code", fault_class="exception_all_ranks"),),
        culprits=(Culprit(root="r1", kind="code", id="code", probability=0.9),),
    )  # fmt: skip
    job.fails(raised, kind="crash")
    job.care.turn()

    assert (job.one().kind, job.one().code_version) == ("rollback", "a")
    assert "every rank raised the same exception" in job.one().why


def test_code_that_never_ran_elsewhere_is_its_authors(job: Job) -> None:
    """Every rank raised the same, and no other code is known to have run well: a person is told, once."""
    with job.database.transaction() as session:
        session.get_one(Attempt, (JOB, 1)).code_version = None
    raised = replace(
        NOBODY, symptom="crash", cause="code", abstained=False, action=Action(kind="rollback"),
        roots=(Root(root="r1", cause="code", fault_class="exception_all_ranks"),),
    )  # fmt: skip
    job.fails(raised, kind="crash")
    job.care.turn()
    job.says(raised)
    job.care.turn()

    assert job.care.all() == []
    assert [why.endswith("its authors have to look") for why in job.told()] == [True]


def test_what_was_rejected_is_not_proposed_again(job: Job) -> None:
    """Who rejects a restart decides about this attempt; in the next one the rung after it is asked for."""
    job.fails()
    job.stands()
    id = job.one().id
    let(job.care.remedies, Reject(id=id, by="ann", reason="I am in its debugger"), now=job.care.now)
    job.says(replace(NOBODY, missing=()))
    job.care.turn()
    same = job.proposal()
    job.fails()
    job.stands()

    assert same is None
    assert job.one().kind == "rollback"


def test_what_was_cancelled_does_not_come_back_by_time(job: Job) -> None:
    """A person takes back what waits: without a newer verdict nothing is proposed in its place."""
    job.fails()
    job.stands()
    let(job.care.remedies, Cancel(id=job.one().id, by="ann", reason="not now"), now=job.care.now)
    job.care.begin()
    job.stands(3_000.0)

    assert job.proposal() is None


def test_a_kill_over_what_time_brings_loses_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine dies when ten minutes are over, before it has proposed: the next one proposes, and once."""

    def killed(*_arguments: Any) -> None:
        raise SystemExit(9)

    job.fails()
    job.stands(500.0)
    with monkeypatch.context() as patch:
        patch.setattr(Remedies, "all_within", killed)
        with pytest.raises(SystemExit):
            job.care.turn(100.0)
    before = job.proposal()
    job.care.begin()
    job.care.turn()
    job.care.turn()

    assert before is None
    assert (job.one().kind, job.one().version) == ("reattempt", 1)


def test_what_time_brings_breaks_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A past that breaks the ladder is counted and passed by; time goes on for everything else."""

    def broken(*_arguments: Any) -> None:
        raise RuntimeError("no past for this one")

    job.fails()
    job.care.turn()
    with monkeypatch.context() as patch:
        patch.setattr(laddering, "history", broken)
        for _ in range(8):
            job.care.turn(100.0)
    failures = job.care.numbers.remedy_failures
    job.care.turn(100.0)

    assert failures == 2
    assert job.care.numbers.remedy_failures == failures
    assert job.proposal() is None


def test_checks_that_nobody_can_make_are_passed_over(job: Job) -> None:
    """No scheduler claims the checks: when their approval has expired the job is started again without them."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003"))
    job.care.turn()
    probe = job.one()
    let(job.care.remedies, Approve(id=probe.id, by="ann"), now=job.care.now)
    job.care.turn(1_801.0)
    job.care.turn()

    assert job.care.ended(probe.id).status == "expired"
    assert job.one().kind == "reattempt"


@pytest.mark.parametrize(
    "did",
    [{}, {"gpu-0003": "well"}, {"gpu-0003": "passed", "gpu-0001": "failed"}, {"gpu-0003": ["failed"]}, {"bad": []}],
)
def test_findings_that_say_too_little_or_too_much_are_refused(job: Job, did: dict[str, Any]) -> None:
    """Who checks one node says of that node, and of no other, that it passed or failed; what else is said changes nothing."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003"))
    job.care.turn()
    one = job.one()
    claim: dict[str, Any] = {"id": one.id, "by": "slurm"}
    let(job.care.remedies, Approve(id=one.id, by="ann"), Take(**claim), Begin(**claim, token=1), now=job.care.now)

    assert refusal(job.care.remedies, Complete(**claim, token=1, did=did), job.care.now) == "conflict"
    assert refusal(job.care.remedies, Fail(**claim, token=1, reason="no such tool"), job.care.now) == ""


def test_a_replay_that_names_one_machine_evicts_it(job: Job) -> None:
    """The one node in both bad groups leaves; a list of nodes that is no group is refused."""
    job.fails()
    job.stands()
    job.done()
    job.fails()
    job.stands()
    job.done()
    job.fails(code="a")
    job.stands()
    job.done({"bad": [["gpu-0002", "gpu-0001"], ["gpu-0002", "gpu-0004"]]})
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0002",))
    assert "lies in both bad groups of the replay" in job.one().why


def test_an_eviction_that_would_leave_too_few_is_a_persons(job: Job) -> None:
    """A node failed its checks, and the job needs all it has: nothing is proposed, and a person reads why."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    declare(job.database, minimum_nodes=4, spares=0)
    job.fails(names("gpu-0003"))
    job.care.turn()
    job.done({"gpu-0003": "failed"})
    job.care.turn()

    assert job.proposal() is None
    assert ["the job needs 4" in why for why in job.told()] == [True]


def test_who_ran_well_in_between_begins_anew(job: Job) -> None:
    """An hour after the eviction the job fails in the same way: that is a new trouble, and proof evicts at once."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003"), ran_seconds=3_600.0)
    with job.database.transaction() as session:
        session.get_one(Downtime, job.incident).last_step = 500
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0003",))
