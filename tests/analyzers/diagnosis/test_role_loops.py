"""A rollout that loops in its own code: two rounds of its stacks name it; a sequence, a poll and a call are no loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from analyzers.model.verdict import Verdict
from collectors.records import Frame, Members, Placement, Record, StackDump, Thread
from tests.analyzers.diagnosis.test_roles import judged
from tests.support.looping_rollouts import SEATS, scene
from tests.support.role_readings import END, JOB

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"
RUN = Frame("run", "/srv/rl/rollout.py", 30)
LOOP = (Frame("generate", "/srv/rl/rollout.py", 41), RUN)
IDLE = (Frame("ask", "/srv/rl/wire.py", 12), RUN)
Stacks = Sequence[tuple[tuple[Frame, ...], bool]]


def placed() -> Iterator[Placement]:
    """Where they run, each on a node of its own."""
    for place, (role, instance) in enumerate(SEATS):
        yield Placement(
            **JOB, source="placement", at=END - 60, received_at=END, node=f"{role}{instance}", ranks=Members.of([int(instance)]),
            roles=(role,), nodes=(f"{role}{instance}",), pids=(100 + place,),
        )  # fmt: skip


def stacks(of_rollout: Stacks, every: float = 12.0) -> Iterator[StackDump]:
    """Yield the stacks of the last rounds: rollout 3's, each with whether it runs; all others ask for work."""
    for place, (role, instance) in enumerate(SEATS):
        mine = (role, instance) == ("rollout", "3")
        for number, (frames, active) in enumerate(of_rollout if mine else [(IDLE, False)] * 2):
            at = END - every * (2 - number)
            whose = {**JOB, "node": f"{role}{instance}", "role": role, "rank": int(instance), "pid": 100 + place}
            yield StackDump(
                **whose, at=at, received_at=at, boot_id="b", tool="py-spy", source=f"stacks/{100 + place}",
                threads=(Thread(frames=frames, main=True, active=active),),
            )  # fmt: skip


def verdict(of_rollout: Stacks, every: float = 12.0, **how: bool) -> Verdict:
    """Return the verdict on the job."""
    records: list[Record] = [*scene(**how), *placed(), *stacks(of_rollout, every)]  # type: ignore[arg-type]
    return judged(records)


@pytest.mark.parametrize("alone", [True, False], ids=["all wait for it", "its peers go on"])
def test_a_loop_is_named_and_its_instance_is_restarted(alone: bool) -> None:
    """Its node is no culprit: its code or its data is."""
    said = verdict([(LOOP, True), (LOOP, True)], alone=alone)
    (culprit,) = said.culprits
    assert (culprit.role, culprit.instances, culprit.ranks) == ("rollout", ("3",), (3,))
    assert (said.cause, said.roots[0].fault_class) == ("unknown", "role_loops")
    assert (said.action.kind, said.action.role, said.action.instance) == ("restart_role", "rollout", "3")
    assert said.action.nodes == ()
    assert "generate (rl/rollout.py:41)" in culprit.why


DECODES = (Frame("forward", TORCH, 134), Frame("decode", "/srv/rl/model.py", 70), *LOOP)
SAMPLES = (Frame("sample", "/srv/rl/model.py", 80), *LOOP)
CALLS = (Frame("readinto", "/usr/lib/python3.11/socket.py", 717), Frame("ask", "/srv/rl/wire.py", 12), RUN)
NO_LOOPS: dict[str, Stacks] = {
    "a sequence": [(DECODES, True), (DECODES, True)],
    "a sequence, in its own functions": [(SAMPLES, True), (LOOP, True)],
    "a poll": [(LOOP, False), (LOOP, False)],
    "a poll that is met awake once": [(LOOP, True), (LOOP, False)],
    "a call": [(CALLS, False), (CALLS, False)],
    "no stacks": [],
}


@pytest.mark.parametrize("alone", [True, False], ids=["all wait for it", "its peers go on"])
@pytest.mark.parametrize("name", NO_LOOPS)
def test_what_may_be_a_long_tail_names_none(name: str, alone: bool) -> None:
    """Nothing is restarted, whatever such a rollout says of itself."""
    said = verdict(NO_LOOPS[name], alone=alone)
    assert (said.culprits, said.action.kind) == ((), "none")


def test_one_round_is_not_enough() -> None:
    """Two stacks of one round may have met it in its longest line; what is missing is asked for."""
    said = verdict([(LOOP, True), (LOOP, True)], every=1.0)
    assert said.action.kind != "restart_role"
    assert any("rollout 3 loops or decodes" in one.what for one in said.missing)
