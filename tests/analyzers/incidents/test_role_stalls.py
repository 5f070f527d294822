"""A job of trainers, rollouts and a tool, live: what is normal for a role opens nothing, and what holds the job up is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.incidents import replay
from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView, RoleReadings, moved_again_at, recovered_because, stops_again
from analyzers.incidents.job_views.role_stalls import stalls_of
from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.memory import observe_batch
from analyzers.incidents.messages import Judge, Judged, Merge, Open, Publish, Received
from analyzers.incidents.replay import rerun_engine
from analyzers.incidents.state import EngineState
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident, Symptom
from analyzers.model.verdict import to_json
from collectors.records import DIRECTORY, Device, Members, Placement, ProcessState, Record, RoleState, directory_sender
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, step_record

SEATS = [("trainer", 0), ("trainer", 1), *(("rollout", rank) for rank in range(4)), ("tool", 0), ("controller", 0)]
TRAINED_SECONDS = 300.0  # then it stands, or does something long
Says = Callable[[str, int, float], dict[str, Any] | None]
"""Role, instance and seconds since the start → what it reports; None: nothing."""


def node_of(role: str, rank: int) -> str:
    """Return where an instance runs."""
    return f"n{rank % 2}"


def batch(node: str, at: float, stepping_until: float, ended: dict[tuple[str, int], int]) -> Received:
    """Return what an agent sends each ten seconds; trainer 0's log has a step every two."""
    here = [(index, seat) for index, seat in enumerate(SEATS) if node_of(*seat) == node]
    living = [(index, seat) for index, seat in here if seat not in ended]
    records: list[Record] = [
        ProcessState(
            job="rl", attempt=0, role=role, rank=rank, pid=100 + index, at=START + at - 1, started_at=START,
            state="X" if (role, rank) in ended else "S", exit_code=ended.get((role, rank)),
        )
        for index, (role, rank) in here
    ]  # fmt: skip
    records.append(
        Placement(
            job="rl", attempt=0, at=START + at - 1, ranks=Members.of(rank for _, (_, rank) in living),
            roles=tuple(role for _, (role, _) in living), nodes=(node,) * len(living),
            pids=tuple(100 + index for index, _ in living),
        )
    )  # fmt: skip
    steps = range(max(1, int((at - 12.0) // 2) + 1), int(min(at - 2.0, stepping_until) // 2) + 1)
    if node == "n0" and (new := [(step, START + 2.0 * step) for step in steps]):
        records.append(step_record(new, 0, at=START + at - 2.0, job="rl", role="trainer"))
    return Received(sequence=0, received_at=START + at, sent_at=START + at, node=node, records=tuple(records))


def said(says: Says, at: float) -> Iterator[RoleState]:
    """Yield what the directory reports at an instant."""
    for role, rank in SEATS:
        reported = says(role, rank, at)
        if reported is not None:
            instants = {
                name: START + reported.pop(name) for name in ("phase_since", "waiting_since") if name in reported
            }
            yield RoleState(
                source=DIRECTORY, job="rl", role=role, instance=str(rank), at=START + at,
                **{"state": "serving", "epoch": 1, "node": "elsewhere", "renewed_at": START + at, **instants, **reported},
            )  # fmt: skip


def watched(
    seconds: float, says: Says | None = None, stepping_until: float = TRAINED_SECONDS, **ended: int
) -> tuple[JobView, list[tuple[float, Symptom]]]:
    """Return the job's view after so many seconds, and each symptom with when it was first seen."""
    knowledge = load()
    view = JobView("rl", 0, knowledge, RoleReadings())
    gone = {(name[:-1], int(name[-1])): code for name, code in ended.items()}
    found: dict[str, tuple[float, Symptom]] = {}
    for tick in range(1, int(seconds // 10.0) + 1):
        at = 10.0 * tick
        for node in ("n0", "n1"):
            received = batch(node, at, stepping_until, gone if at > TRAINED_SECONDS else {})
            view.take(received, received.records)
        for reading in said(says, at) if says is not None else ():
            view.roles.take(reading, START + at)
        for symptom in find_symptoms(view, START + at):
            found.setdefault(symptom.detector, (at, symptom))
    assert not view.broken
    return view, list(found.values())


def tool_call(role: str, rank: int, at: float) -> dict[str, Any]:
    """Everything waits for rollout 2, which waits for one call of the tool, since the last step."""
    late = at > TRAINED_SECONDS
    if role == "trainer":
        return {"phase": "wait", "phase_since": min(at, TRAINED_SECONDS), "waiting_for": "queue:experience",
                "steps_total": int(min(at, TRAINED_SECONDS) // 2), "requests_running": 0}  # fmt: skip
    if role == "rollout" and (not late or rank == 2):
        waits = {"waiting_for": "tool", "waiting_since": TRAINED_SECONDS} if late else {}
        return {"phase": "tool" if late else "generate", "phase_since": min(at, TRAINED_SECONDS), "requests_running": 1,
                "tokens_total": int(100 * min(at, TRAINED_SECONDS)), **waits}  # fmt: skip
    if role == "tool":
        return {"phase": "serve", "requests_running": 1, "steps_total": int(min(at, TRAINED_SECONDS))}
    return {"phase": "wait", "phase_since": min(at, TRAINED_SECONDS), "waiting_for": "queue:questions"}


def dead_engine(role: str, rank: int, at: float) -> dict[str, Any]:
    """Rollout 2 is heard and has work, and generates nothing; the others go on."""
    reported = tool_call(role, rank, min(at, TRAINED_SECONDS))
    if role == "rollout":
        moved = min(at, TRAINED_SECONDS) if rank == 2 else at
        return {"phase": "generate", "phase_since": moved, "requests_running": 1, "tokens_total": int(100 * moved)}
    return {**reported, "phase_since": at, "steps_total": int(at // 2)}


def test_a_tool_call_of_minutes_is_no_hang() -> None:
    """Whether the processes say what they do or only which role they have."""
    assert watched(TRAINED_SECONDS + 600.0)[1] == []
    assert watched(TRAINED_SECONDS + 600.0, tool_call)[1] == []


def test_a_job_without_phases_is_silent_for_no_longer_than_the_longest_tail() -> None:
    """Then it is a hang, of which nothing says whose."""
    ((at, symptom),) = watched(TRAINED_SECONDS + 1_400.0)[1]
    assert (symptom.detector, symptom.ranks) == ("no_progress", ())
    assert 1_200.0 <= at - TRAINED_SECONDS <= 1_300.0


def test_trainers_that_stand_in_their_training_phase_are_a_hang() -> None:
    """Its silence counts from where the phase began, by the job's own rhythm."""

    def train(role: str, rank: int, at: float) -> dict[str, Any]:
        reported = tool_call(role, rank, at)
        if role == "trainer" and at > TRAINED_SECONDS + 100.0:
            return {"phase": "train", "phase_since": TRAINED_SECONDS + 95.0, "steps_total": 150}
        return reported

    found = {symptom.detector: at for at, symptom in watched(TRAINED_SECONDS + 200.0, train)[1]}
    assert set(found) == {"no_progress"}
    assert TRAINED_SECONDS + 100.0 < found["no_progress"] <= TRAINED_SECONDS + 140.0


def test_a_dead_engine_is_named_while_the_others_go_on() -> None:
    """By its role's rule; steps do not close it, and its next token does."""
    until = TRAINED_SECONDS + 240.0
    view, found = watched(until, dead_engine, stepping_until=until)
    ((at, symptom),) = found
    assert (symptom.detector, symptom.ranks, symptom.roles, symptom.nodes) == (
        "role_stalled",
        (2,),
        ("rollout",),
        ("n0",),
    )
    assert at - TRAINED_SECONDS <= 150.0

    incident = Incident(
        id="i", kind="hang", job="rl", attempt=0, opened_at=START + at, onset_at=symptom.at, symptoms=(symptom,), after=0,
        last_step=100,
    )  # fmt: skip
    assert recovered_because(view, incident, START + until) is None
    assert moved_again_at(view, incident, START + until) is None
    for tick in range(1, 4):
        for reading in said(
            lambda role, rank, at: dead_engine(role, rank, at) | {"tokens_total": int(100 * at)}, until + 10.0 * tick
        ):
            view.roles.take(reading, START + until + 10.0 * tick)
    assert recovered_because(view, incident, START + until + 30.0) == "no role holds the job up any more"


@pytest.mark.parametrize(
    ("detector", "kind", "words"), [("rank_dead", "crash", "goes on"), ("no_progress", "hang", "moves again")]
)
def test_a_job_that_never_stopped_does_not_move_again(detector: str, kind: Any, words: str) -> None:
    """A rollout died, and the trainers did step after step."""
    until = TRAINED_SECONDS + 200.0
    view, _ = watched(until, tool_call, stepping_until=until)
    died = Symptom(kind=kind, detector=detector, at=START + TRAINED_SECONDS, text="it ended")
    incident = Incident(
        id="i", kind=kind, job="rl", attempt=0, opened_at=died.at + 10.0, onset_at=died.at, symptoms=(died,), after=0,
        last_step=100,
    )  # fmt: skip
    assert str(recovered_because(view, incident, START + until)).startswith(f"the job {words}: it has done step ")


def test_a_rollout_that_is_heard_of_later_has_not_stopped_again() -> None:
    """Its lease was renewed after the incident had opened, and the trainers do step after step."""
    until = TRAINED_SECONDS + 200.0
    view, _ = watched(until, dead_engine, stepping_until=until)
    first, later = (
        Symptom(kind="hang", detector="role_stalled", at=START + TRAINED_SECONDS + after, text="rollout 2: it rests")
        for after in (0.0, 60.0)
    )
    incident = Incident(
        id="i", kind="hang", job="rl", attempt=0, opened_at=first.at + 10.0, onset_at=first.at, symptoms=(first,), after=0,
        last_step=100,
    )  # fmt: skip
    assert not stops_again(view, incident, later)
    assert stops_again(view, incident, replace(later, detector="no_progress"))


def test_a_rollout_that_leaves_in_order_is_no_uneven_end() -> None:
    """Rollouts come and go; a trainer that does leaves the other waiting."""
    until = TRAINED_SECONDS + 200.0
    assert watched(until, stepping_until=until, rollout3=0)[1] == []
    assert [one.detector for _, one in watched(until, stepping_until=TRAINED_SECONDS, trainer1=0)[1]] == ["uneven_end"]


@pytest.mark.parametrize(
    ("state", "since", "found"),
    [("fenced", -5.0, []), ("left", -5.0, []), ("serving", 0.0, ["rank_dead"]), ("fenced", 30.0, ["rank_dead"])],
)
def test_a_rollout_that_was_given_up_before_it_was_killed_is_no_crash(
    state: str, since: float, found: list[str]
) -> None:
    """Who makes a role smaller fences the instance first; one that is fenced after its end was lost."""
    until = TRAINED_SECONDS + 40.0

    def given_up(role: str, rank: int, at: float) -> dict[str, Any] | None:
        reported = dead_engine(role, 0, at)
        is_it = (role, rank) == ("rollout", 3) and at >= TRAINED_SECONDS + since
        return {**reported, "state": state} if is_it else reported

    seen = [one.detector for _, one in watched(until, given_up, rollout3=137)[1]]
    assert [one for one in seen if one == "rank_dead"] == found


@pytest.mark.parametrize(("fenced_at", "found"), [(-5.0, []), (5.0, ["rank_dead"])])
@pytest.mark.parametrize("role", ["rollout", "trainer"])
def test_who_restarts_an_instance_fences_it_and_then_ends_its_process(
    role: str, fenced_at: float, found: list[str]
) -> None:
    """Soon another process has its place: the end of the former one is no crash, of a trainer neither."""
    index = SEATS.index((role, 1))

    def restarted(of: str, rank: int, at: float) -> dict[str, Any] | None:
        reported = dead_engine(of, 0, at)
        if (of, rank) != (role, 1):
            return reported
        node = {**reported, "node": node_of(role, 1)}
        if at > TRAINED_SECONDS + 5.0:
            return {**node, "epoch": 2, "pid": 999}
        return {**node, "pid": 100 + index, "state": "fenced" if at > TRAINED_SECONDS + fenced_at else "serving"}

    seen = watched(TRAINED_SECONDS + 40.0, restarted, **{f"{role}1": 137})[1]
    assert [one.detector for _, one in seen if one.detector == "rank_dead"] == found


def log(says: Says, seconds: float, stepping_until: float) -> Iterator[Received]:
    """Yield the log of a job: its agents' batches, and its directory's."""
    for sequence in range(1, int(seconds // 10.0) + 1):
        at = 10.0 * sequence
        for number, node in enumerate(("n0", "n1")):
            yield replace(batch(node, at, stepping_until, {}), sequence=3 * sequence + number)
        readings = tuple(said(says, at))
        yield Received(sequence=3 * sequence + 2, received_at=START + at, node=directory_sender("rl"), records=readings)


def test_the_verdict_is_of_the_log_alone() -> None:
    """It names the instance and the node where its agent saw it, not where its process claims to be, and takes no node away.

    Any holder of the job's token can say what a directory reports.
    """
    decided = [one for _, one in rerun_engine(log(dead_engine, TRAINED_SECONDS + 240.0, 1e9), load())]
    published = [one for one in decided if isinstance(one, Publish)]
    assert published
    for verdict in (one.verdict for one in published):
        assert [(one.role, one.ranks) for one in verdict.culprits] == [("rollout", (2,))]
        assert "elsewhere" not in to_json(verdict).decode()
        assert verdict.action.kind == "restart_role"
        assert not set(verdict.action.nodes) - {"n0"}

    assert not list(rerun_engine(log(tool_call, TRAINED_SECONDS + 600.0, TRAINED_SECONDS), load()))


def test_a_tool_that_hangs_is_named_by_its_own_past() -> None:
    """It rested for as long as the incident's records reach back: what it did before is in the incident's context."""

    def hung(role: str, rank: int, at: float) -> dict[str, Any]:
        reported = tool_call(role, rank, at)
        if role == "tool":
            return {"phase": "serve", "requests_running": 4, "steps_total": int(min(at, TRAINED_SECONDS))}
        if role == "rollout" and at > TRAINED_SECONDS:
            return reported | {
                "phase": "tool",
                "waiting_for": "tool",
                "waiting_since": TRAINED_SECONDS,
                "requests_running": 1,
            }
        return reported

    decided = [one for _, one in rerun_engine(log(hung, TRAINED_SECONDS + 300.0, TRAINED_SECONDS), load())]
    (opened,) = [one for one in decided if isinstance(one, Open)]
    assert any(isinstance(one, RoleState) for one in opened.context)
    named = [one.verdict.culprits for one in decided if isinstance(one, Publish)]
    assert named
    assert [(one.role, one.ranks) for one in named[-1]] == [("tool", (0,))]


def test_a_rank_of_an_engine_is_no_instance_of_its_number() -> None:
    """Two engines of two ranks each say their process ids: the second rank of the first is not engine 1."""

    def engines(role: str, rank: int, at: float) -> dict[str, Any] | None:
        reported = dead_engine(role, 0, at)
        return None if role != "rollout" or rank > 1 else {**reported, "pid": 102 + 2 * rank}

    assert "role_stalled" not in {one.detector for _, one in watched(TRAINED_SECONDS + 60.0, engines, rollout1=1)[1]}
    (lost,) = [
        one for _, one in watched(TRAINED_SECONDS + 60.0, engines, rollout2=1)[1] if one.detector == "role_stalled"
    ]
    assert lost.text.startswith("rollout 1: its process has ended")


def test_a_stall_that_began_during_another_is_not_lost() -> None:
    """Rollout 2 rests until rollout 3 has rested for a while: when its incident closes, another opens for rollout 3."""

    def two(role: str, rank: int, at: float) -> dict[str, Any]:
        reported = dead_engine(role, rank, at)
        still = {2: (300.0, 520.0), 3: (480.0, 1e9)}.get(rank) if role == "rollout" else None
        if still is not None:
            moved = min(at, still[0]) if at < still[1] else at
            reported |= {"tokens_total": int(100 * moved), "phase_since": moved}
        return reported

    decided = [one for _, one in rerun_engine(log(two, 740.0, 1e9), load())]
    opened = [one.incident.symptoms[0] for one in decided if isinstance(one, Open)]
    assert [(one.detector, one.roles, one.ranks) for one in opened] == [
        ("role_stalled", ("rollout",), (2,)),
        ("role_stalled", ("rollout",), (3,)),
    ]


def test_an_open_incident_is_judged_again_when_another_rule_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step comes, then a rollout rests, and when that goes on the trainers have stood for five minutes: once for each."""
    judged = list[float]()

    def judge(asked: Judge, knowledge: Knowledge) -> Judged:
        judged.append(asked.cut.at - START)
        return judge_cut(asked, knowledge)

    def scene(role: str, rank: int, at: float) -> dict[str, Any]:
        reported = dead_engine(role, rank, at if role == "rollout" else min(at, TRAINED_SECONDS))
        if role == "trainer":
            reported.pop("requests_running")
            return reported | ({"phase": "train", "waiting_for": None} if at > TRAINED_SECONDS else {})
        return reported | (
            {"tokens_total": int(100 * at), "phase_since": at} if role == "rollout" and at > 610.0 else {}
        )

    monkeypatch.setattr(replay, "judge_cut", judge)
    decided = list(rerun_engine(log(scene, 760.0, TRAINED_SECONDS), load()))
    merged = [(at - START, one.symptom) for at, one in decided if isinstance(one, Merge)]
    assert sum(isinstance(one, Open) for _, one in decided) == 1
    assert [(one.detector, set(one.roles), one.ranks) for _, one in merged] == [
        ("role_stalled", {"rollout"}, (2,)),
        ("role_stalled", {"trainer"}, (0, 1)),
    ]
    assert all(any(at <= then < at + 5.0 for then in judged) for at, _ in merged)


@pytest.mark.parametrize(("sender", "reported"), [("rl", 1), ("other", 0), ("n0", 0)])
def test_only_the_directory_of_a_job_speaks_in_its_name(sender: str, reported: int) -> None:
    """Another job's directory, and an agent that takes its name, are not heard; and a directory is no node."""
    state = EngineState(load())
    name = sender if sender == "n0" else directory_sender(sender)
    readings = tuple(said(tool_call, 10.0))
    observe_batch(state, Received(sequence=1, received_at=START + 10.0, node=name, records=readings))
    heard = state.roles["rl"].instances() if "rl" in state.roles else {}
    assert len(heard) == reported * len(SEATS)
    assert set(state.nodes) == ({"n0"} if sender == "n0" else set())


def test_what_an_earlier_attempt_has_left_is_no_instance_now() -> None:
    """A later attempt with fewer rollouts has no dead ones; a process that states no attempt is of the one that runs."""
    known = RoleReadings()
    for at, attempt, role, instance in (
        (10.0, 1, "rollout", "0"),
        (10.0, 1, "rollout", "3"),
        (50.0, 2, "rollout", "0"),
        (51.0, None, "trainer", "0"),
        (52.0, 1, "rollout", "3"),
    ):
        known.take(RoleState(job="rl", attempt=attempt, role=role, instance=instance, at=START + at), START + at)
    assert set(known.instances()) == {("rollout", "0"), ("trainer", "0")}


def test_an_instance_is_compared_with_those_on_the_same_gpus() -> None:
    """As the agents of their nodes see them, where the job's owner has declared nothing of them."""
    view, _ = watched(20.0)
    gpus = tuple(Device(node="n1", type="gpu", id=f"GPU-{number}", name="NVIDIA L40") for number in range(2))
    view.take(replace(batch("n1", 30.0, 30.0, {}), records=gpus), gpus)
    for rank in range(2):
        reading = RoleState(job="rl", role="rollout", instance=str(rank), node=f"n{rank}", at=START + 30.0)
        view.roles.take(reading, START + 30.0)
    stalls_of(view)
    assert [one.hardware for _, one in sorted(view.roles.instances().items())] == [None, "2 × NVIDIA L40"]
