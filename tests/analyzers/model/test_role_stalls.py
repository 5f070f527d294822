"""Which role holds a job up: faults are named, and waits, tails, tools and weight syncs of a healthy job are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from analyzers.model.role_hardware import NodeGpus
from analyzers.model.role_instances import fold
from analyzers.model.role_silence import Seen
from collectors.records import DIRECTORY, Device, RoleState
from tests.support.role_readings import END, GENERATES, START, named, readings, scene, stalls

Changes = Mapping[tuple[str, str], Any]
ROLLOUTS = [("rollout", str(number)) for number in range(4)]
IDLE = {"phase": "wait", "running": 0, "waiting_for": "controller", "weights": 7}
SYNCS = {"phase": "weight_sync", "running": 0, "weights": 7}
TRAINED = {"phase": "wait", "waiting_for": "queue:experience", "weights": 8}
TRAINERS = {("trainer", "0"): TRAINED, ("trainer", "1"): {**TRAINED, "node": "t1"}}
FETCHES = {**SYNCS, "running": 1, "tokens": 200, "still_from": 300.0, "phase_since": 300.0}


def rollouts(how: Mapping[str, Any], *, but: Mapping[str, Any] | None = None) -> dict[tuple[str, str], Any]:
    """All rollouts alike, except for rollout 3."""
    return {seat: how if seat[1] != "3" or but is None else but for seat in ROLLOUTS}


HEALTHY_JOBS: dict[str, Changes] = {
    "all work": {},
    "a tail of 600 s in one rollout": rollouts(IDLE, but={**GENERATES, "running": 1, "tokens": 30}),
    "a tool wait of 590 s, its engine empty": rollouts(
        IDLE, but={**GENERATES, "running": 0, "still_from": 10.0, "phase": "tool", "waiting_for": "environment"}
    )
    | {("environment", "0"): {"phase": "tool", "running": 1, "steps": 1, "still_from": 10.0}},
    "the last calls of a step take 500 s": {
        ("environment", "0"): {"phase": "tool", "running": 3, "steps": 1, "still_from": 100.0}
    },
    "a sync of 100 s": rollouts({**SYNCS, "phase_since": 500.0, "tokens": 200, "still_from": 500.0})
    | {("trainer", "0"): {"phase": "weight_sync", "weights": 8, "phase_since": 500.0}},
    "rollouts in the sync before the last one has ended": rollouts(SYNCS, but={**GENERATES, "running": 1})
    | {("trainer", "0"): {"phase": "wait", "waiting_for": "queue:experience", "weights": 7}},
    **{
        f"{role} {instance} states an absurd version of the weights": rollouts(SYNCS, but={**GENERATES, "running": 1})
        | {("trainer", "0"): {"phase": "wait", "waiting_for": "queue:experience", "weights": 7}}
        | {(role, instance): {**how, "weights": 10**12}}
        for role, instance, how in (
            ("rollout", "2", {**GENERATES, "running": 1}),
            ("reward", "0", {"phase": "score", "running": 0}),
            ("trainer", "1", {"phase": "wait", "waiting_for": "queue:experience"}),
        )
    },
    "a version of the weights that one rollout alone states": rollouts({**SYNCS, "phase_since": 300.0})
    | {("rollout", "2"): {**GENERATES, "weights": 9}, ("trainer", "0"): {"phase": "wait", "weights": 7}},
    "a checkpoint of 400 s before the weights go out": rollouts({**FETCHES, "waiting_for": "trainer 0"})
    | {**TRAINERS, ("trainer", "0"): {"phase": "save_checkpoint", "weights": 8, "phase_since": 200.0}},
    "warm-up of 500 s": rollouts(GENERATES, but={"phase": "warm_up", "running": 0, "phase_since": 100.0}),
    "a training phase of 250 s without a step": {
        ("trainer", "0"): {"phase": "update", "phase_since": 340.0, "steps": 0.1, "still_from": 340.0},
        **rollouts({**IDLE, "waiting_for": "trainer"}),
    },
    "a context switch of 200 s": {("trainer", "0"): {"phase": "context_switch", "phase_since": 400.0}},
    "a long sequence where only finished ones are counted": rollouts(
        {"phase": "generate", "running": 8, "steps": 1, "weights": 7},
        but={"phase": "generate", "running": 1, "steps": 1, "weights": 7, "still_from": 300.0},
    ),
    "a rollout that ends what it has before it takes new weights": rollouts(
        {**GENERATES, "weights": 8},
        but={"phase": "weight_sync", "phase_since": 400.0, "running": 2, "weights": 7, "tokens": 200},
    )
    | {("trainer", "0"): {"phase": "wait", "waiting_for": "queue:experience", "weights": 8, "steps_total": 8}},
    "a controller that validates, and all others wait": {
        **rollouts({**IDLE, "waiting_for": "queue:prompts", "phase_since": 350.0, "tokens": 100, "still_from": 340.0}),
        ("reward", "0"): {"phase": "wait", "waiting_for": "rollout", "running": 0, "phase_since": 350.0},
        ("environment", "0"): {"phase": "wait", "waiting_for": "rollout", "running": 0, "phase_since": 350.0},
        ("trainer", "0"): {"phase": "wait", "waiting_for": "queue:experience", "weights": 8, "phase_since": 350.0},
        ("controller", "0"): {"phase": "validate", "phase_since": 350.0},
    },
    "a rollout that left": rollouts(
        GENERATES, but={**GENERATES, "state": "left", "still_from": 100.0, "silent_from": 100.0}
    ),
    "one that nobody hears, and whose tokens count on": rollouts(GENERATES, but={**GENERATES, "silent_from": 100.0}),
    "nobody hears anyone": {
        **rollouts({"phase": "generate", "silent_from": 400.0}),
        ("reward", "0"): {"phase": "score", "silent_from": 400.0},
    },
    "metrics that ended": rollouts(GENERATES, but={"phase": "generate", "running": 8}),
    "one that joins late and compiles for its first request, for 300 s": rollouts(
        GENERATES, but={"phase": "generate", "running": 8, "steps": 1e-9, "steps_from": 0, "since": 300.0}
    ),
    "all prefill at once for 100 s": rollouts({**GENERATES, "still_from": 500.0}),
}


@pytest.mark.parametrize("name", HEALTHY_JOBS)
def test_a_healthy_job_has_no_culprit(name: str) -> None:
    """Phases, tails, tool waits and syncs, however long, are no faults within their bounds."""
    assert named(scene(HEALTHY_JOBS[name])) == []


def test_one_that_says_that_it_pauses_keeps_its_requests_meanwhile() -> None:
    """Its peers go on, and it has finished nothing for 250 s."""
    pauses = {**GENERATES, "phase": "pause_generation", "still_from": 350.0, "phase_since": 350.0}
    assert named(scene(rollouts(GENERATES, but=pauses))) == []


FAULTS: dict[str, tuple[Changes, tuple[str, str, str]]] = {
    "a dead engine whose endpoint answers": (
        rollouts(GENERATES, but={**GENERATES, "still_from": 400.0, "answers": True}), ("engine_still", "rollout", "3"),
    ),
    "the only engine, dead": (
        {**rollouts(GENERATES), **dict.fromkeys(ROLLOUTS[1:]), ("rollout", "0"): {**GENERATES, "still_from": 400.0}},
        ("engine_still", "rollout", "0"),
    ),
    "an engine that neither answers nor is heard": (
        rollouts(GENERATES, but={**GENERATES, "answers": False, "silent_from": 500.0, "still_from": 500.0}),
        ("role_lost", "rollout", "3"),
    ),
    "a tool that hangs for all": (
        {("environment", "0"): {"phase": "tool", "running": 32, "steps": 1, "still_from": 380.0}},
        ("tool_still", "environment", "0"),
    ),
    "a reward model that finishes nothing": (
        {("reward", "0"): {"phase": "score", "running": 8, "steps": 2, "still_from": 380.0}}, ("worker_still", "reward", "0"),
    ),
    "a trainer that stands in its training phase": (
        {("trainer", "0"): {"phase": "update_actor", "steps": 0.1, "still_from": 200.0, "weights": 7},
         **rollouts({**IDLE, "waiting_for": "trainer"})},
        ("trainer_still", "trainer", "0"),
    ),
    "weights that reach all but one": (
        rollouts({**GENERATES, "weights": 8}, but={**SYNCS, "phase_since": 300.0}) | {
            ("trainer", "0"): {"phase": "wait", "weights": 8}
        },
        ("weight_sync_still", "rollout", "3"),
    ),
    "weights that reach nobody": (
        rollouts({**SYNCS, "phase_since": 300.0})
        | {("trainer", "0"): {"phase": "weight_sync", "weights": 8, "phase_since": 300.0}},
        ("weight_sync_still", "trainer", "0"),
    ),
    "weights that one of two trainers does not send": (
        rollouts({**FETCHES, "waiting_for": "trainer 0"}) | TRAINERS, ("weight_sync_still", "trainer", "0"),
    ),
    "weights that the second trainer does not send": (
        rollouts({**FETCHES, "waiting_for": "trainer 1"}) | TRAINERS, ("weight_sync_still", "trainer", "1"),
    ),
    "a collective of all trainers that does not end": (
        rollouts({**FETCHES, "waiting_for": "trainer"}) | TRAINERS, ("weight_sync_still", "trainer", ""),
    ),
    "a rollout that has the weights and does not pass them on": (
        rollouts({**FETCHES, "waiting_for": "rollout 0"})
        | {("rollout", "0"): {**GENERATES, "weights": 8}, **TRAINERS},
        ("weight_sync_still", "rollout", "0"),
    ),
    "weights that reach nobody along a chain": (
        rollouts({**FETCHES, "waiting_for": "rollout 1"}) | TRAINERS
        | {("rollout", number): {**FETCHES, "waiting_for": "trainer 1"} for number in "01"},
        ("weight_sync_still", "trainer", "1"),
    ),
    "one of two senders, and those of the other go on": (
        rollouts({**GENERATES, "weights": 8}) | TRAINERS
        | {("rollout", number): {**FETCHES, "waiting_for": "trainer 1"} for number in "23"},
        ("weight_sync_still", "trainer", "1"),
    ),
    "one that gets no weights, and its peers have them from the same sender": (
        rollouts({**GENERATES, "weights": 8}, but={**FETCHES, "waiting_for": "trainer 0"}) | TRAINERS,
        ("weight_sync_still", "rollout", "3"),
    ),
    "a controller that waits for what nobody has": (
        {**rollouts(IDLE), ("controller", "0"): {"phase": "wait", "waiting_for": "rollout 2", "phase_since": 100.0},
         ("reward", "0"): {"phase": "idle", "running": 0}, ("environment", "0"): {"phase": "idle", "running": 0}},
        ("lost_request", "controller", "0"),
    ),
    "a sync that never ends": (
        {("trainer", "0"): {"phase": "checkpoint", "phase_since": -2000.0}}, ("phase_overdue", "trainer", "0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_the_role_and_its_instance(name: str) -> None:
    """Each fault names the instance that holds the others up, and nobody beside it."""
    changes, expected = FAULTS[name]
    assert named(scene(changes)) == [expected]


def test_a_killed_rollout_is_lost() -> None:
    """Its process has ended, its lease runs still, and nothing else of it is known."""
    records = scene(rollouts(GENERATES, but={**GENERATES, "silent_from": 500.0, "still_from": 500.0}))
    (found,) = stalls(records, {("rollout", "3"): Seen(state="X", at=END - 90)})
    assert (found.fault_class, found.instance) == ("role_lost", "3")
    assert found.strength > 0.9


def test_an_engine_without_a_client_is_lost_with_its_process() -> None:
    """Its agent sees the process no more, and its endpoint does not answer; either alone restarts nothing."""
    whole = list(readings("rollout", "3", **{**GENERATES, "until": 500.0}))
    unanswered = [
        RoleState(
            source="engines", at=one.at, role="rollout", instance="3", answers=False, job=one.job, attempt=one.attempt
        )
        for one in readings("rollout", "3", since=510.0)
    ]
    gone = {("rollout", "3"): Seen(state="gone", at=START + 500.0)}
    for answers, seen, least in ((False, gone, 0.9), (False, {}, 0.0), (True, gone, 0.0)):
        last = whole if answers else [*whole, *unanswered]
        without = [
            RoleState(**{**{f: getattr(one, f) for f in one.__struct_fields__}, "renewed_at": None, "state": None})
            for one in [*scene({("rollout", "3"): None}), *last]
        ]
        found = max((one.strength for one in stalls(without, seen) if one.instance == "3"), default=0.0)
        assert (found >= 0.75) is (least > 0.5), (answers, seen)


def test_the_first_calls_of_an_environment_may_all_take_long() -> None:
    """Four calls for 300 s after three short ones: its usual is not known. After a hundred they are named, and at last anyhow."""
    first = {"phase": "tool", "running": 4, "still_from": 300.0}
    assert named(scene({("environment", "0"): {**first, "steps": 0.01}})) == []
    assert named(scene({("environment", "0"): {**first, "steps": 1}})) == [("tool_still", "environment", "0")]


def test_an_engine_on_other_hardware_is_slow_by_design() -> None:
    """It is compared with those of its own kind alone; of such it is slow as before."""
    slow = {**GENERATES, "tokens": 60, "hardware": "l40"}
    others = {**GENERATES, "hardware": "h100"}
    assert named(scene(rollouts(others, but=slow))) == []
    assert named(scene(rollouts(GENERATES, but=slow))) == []
    assert named(scene(rollouts(others, but={**slow, "hardware": "h100"}))) == [("role_slow", "rollout", "3")]
    (found,) = stalls(scene(rollouts(others, but={**slow, "hardware": "h100"})))
    assert found.why.endswith("than any peer with as many on h100")


def test_agents_see_on_which_gpus_an_instance_runs() -> None:
    """Other models, or fewer, are other hardware; what is declared is believed, and of an unknown node nothing is."""
    gpus = NodeGpus(
        Device(node=node, type="gpu", id=f"GPU-{node}-{number}", name=name)
        for node, name, count in (("a", "NVIDIA H20", 2), ("b", "NVIDIA H20", 1), ("c", "NVIDIA L40", 2))
        for number in range(count)
    )
    instances = fold(
        RoleState(role="rollout", instance=node, node=node, at=START, hardware="ours" if node == "e" else None)
        for node in "abcde"
    )
    gpus.tell(instances)
    known = [instances["rollout", node].hardware for node in "abcde"]
    assert known == ["2 × NVIDIA H20", "1 × NVIDIA H20", "2 × NVIDIA L40", None, "ours"]


def test_a_slow_engine_is_compared_with_peers_that_do_as_much() -> None:
    """A third of the tokens a request is slow; half a batch that is nearly done is not."""
    slow = rollouts(GENERATES, but={**GENERATES, "tokens": 60})
    assert named(scene(slow)) == [("role_slow", "rollout", "3")]
    assert named(scene(rollouts(GENERATES, but={**GENERATES, "tokens": 60, "running": 2}))) == []


def test_a_tool_that_hangs_late_in_a_step_is_known_by_the_calls_that_come() -> None:
    """Few calls are open, and those that came since the last one ended cannot all be long."""
    calls = {"phase": "tool", "running": 60, "steps": 1, "still_from": 300.0, "until": 300.0}
    late = {"phase": "tool", "since": 310.0, "steps": 1, "still_from": 300.0}
    for running, expected in ((20, []), (66, [("tool_still", "environment", "0")])):
        records = [
            one
            for one in scene({("environment", "0"): calls})
            if (one.role, one.instance) != ("environment", "0") or (one.at or 0.0) <= START + 300.0
        ]
        records += readings("environment", "0", **{**late, "running": running})
        assert named(records) == expected


def test_a_sequence_that_comes_back_from_a_long_call_finds_its_engine_at_rest() -> None:
    """The engine had nothing to do for eight minutes: that it generated nothing then is no fault of it."""
    away = readings("rollout", "3", **{**GENERATES, "running": 0, "still_from": 100.0, "until": 580.0})
    back = readings("rollout", "3", **{**GENERATES, "running": 1, "still_from": 100.0, "since": 590.0})
    assert named([*scene({("rollout", "3"): None}), *away, *back]) == []


def test_a_reward_with_a_backlog_that_does_less_than_before_is_slow() -> None:
    """While requests wait it does all that it can: a third of what it did with none is slow, a burst that it works off is not."""
    for rate, expected in ((0.3, [("role_slow", "reward", "0")]), (1.2, [])):
        before = readings("reward", "0", phase="score", running=1, steps=1, until=400.0, requests_waiting=0)
        after = readings("reward", "0", phase="score", running=16, steps=rate, since=410.0, requests_waiting=40)
        moved = [
            msgspec.structs.replace(one, steps_total=(one.steps_total or 0) + int(410 * (1 - rate))) for one in after
        ]
        assert named([*scene({("reward", "0"): None}), *before, *moved]) == expected


def test_a_wait_that_ends_in_a_dead_role_names_the_end_of_the_chain() -> None:
    """The trainer waits for the queue, the rollouts for the reward: the reward is named, and all wait for it."""
    waits = {**IDLE, "waiting_for": "reward", "phase_since": 300.0}
    changes = rollouts(waits) | {("reward", "0"): {"phase": "score", "running": 8, "steps": 2, "still_from": 300.0}}
    (found,) = stalls(scene(changes))
    assert (found.role, found.blocked) == ("reward", 6)


def test_two_counters_of_one_engine_hide_nothing() -> None:
    """It says its own tokens in the directory while its metrics are read: numbers that take turns are no progress."""
    dead = rollouts(GENERATES, but={**GENERATES, "still_from": 300.0})
    read = scene(dead)
    said = [
        msgspec.structs.replace(
            one, source=DIRECTORY, at=(one.at or 0.0) + 3.0, tokens_total=(one.tokens_total or 0) // 7
        )
        for one in read
        if one.role == "rollout"
    ]
    assert named([*read, *said]) == named(read) == [("engine_still", "rollout", "3")]
    silent = [one for one in read if one.instance != "3" or (one.at or 0.0) < START + 200.0]
    assert named([*silent, *said]) == [
        ("engine_still", "rollout", "3")
    ]  # what it says counts once nothing else is read


def test_a_long_lease_is_no_silence() -> None:
    """One that renews each minute, under a lease of three, is heard seldom; five minutes are too long for it too."""
    slow = {**GENERATES, "lease_seconds": 180.0, "tokens": 0.0}
    for silent_from, expected in ((520.0, []), (200.0, [("role_lost", "rollout", "3")])):
        assert named(scene(rollouts(GENERATES, but={**slow, "silent_from": silent_from}))) == expected
    short = {**slow, "lease_seconds": 30.0, "silent_from": 520.0}
    assert named(scene(rollouts(GENERATES, but=short))) == [("role_lost", "rollout", "3")]


def test_the_steady_cycle_is_no_deadlock() -> None:
    """Trainer, queue, rollout and weights wait for one another in turn, each for another version."""
    changes = rollouts({**SYNCS, "waiting_for": "trainer", "phase_since": 590.0}) | {
        ("trainer", "0"): {"phase": "wait", "waiting_for": "queue:experience", "weights": 8, "phase_since": 595.0},
        ("controller", "0"): {"phase": "wait", "waiting_for": "trainer", "phase_since": 100.0},
    }
    assert named(scene(changes)) == []


def test_one_out_of_memory_beside_a_role_that_grew() -> None:
    """The kernel killed the rollout, and the reward on its node had grown: the reward leaks."""
    seen = {("rollout", "3"): Seen(state="X", killed_for_memory=True, leaked_by=("reward", "0"))}
    records = scene(rollouts(GENERATES, but={**GENERATES, "silent_from": 500.0, "still_from": 500.0}))
    assert named(records, seen) == [("role_memory", "reward", "0")]


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize(
    "lost", ["tokens_total", "steps_total", "renewed_at", "answers", "requests_running", "weights", "phase", "node"]
)
def test_less_evidence_is_never_bolder(name: str, lost: str) -> None:
    """Without one field in every reading a claim is no stronger, and of no instance that was not named before."""
    changes, expected = FAULTS[name]
    whole = stalls(scene(changes))
    poorer = [
        RoleState(**{**{f: getattr(one, f) for f in one.__struct_fields__}, lost: None}) for one in scene(changes)
    ]
    for stall in stalls(poorer):
        same = [one for one in whole if (one.role, one.instance) == (stall.role, stall.instance)]
        assert same, (stall, whole)
        assert stall.strength <= max(one.strength for one in same), stall
    assert expected


@pytest.mark.parametrize("name", HEALTHY_JOBS)
@pytest.mark.parametrize(
    "lost", ["tokens_total", "steps_total", "renewed_at", "requests_running", "weights", "phase", "waiting_for"]
)
def test_a_healthy_job_of_which_less_is_seen_has_no_culprit(name: str, lost: str) -> None:
    """A field that no source has accuses nobody of a healthy job strongly enough to act."""
    poorer = [
        RoleState(**{**{f: getattr(one, f) for f in one.__struct_fields__}, lost: None})
        for one in scene(HEALTHY_JOBS[name])
    ]
    assert [one for one in stalls(poorer) if one.strength > 0.5] == []
