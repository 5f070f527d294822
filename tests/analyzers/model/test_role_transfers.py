"""Who holds weights up: a node, those that are passed over, or one after another that are on their way."""

from __future__ import annotations

import msgspec
import pytest

from collectors.records import RoleState
from tests.analyzers.model.test_role_stalls import FETCHES, TRAINED, TRAINERS, rollouts
from tests.support.role_readings import GENERATES, START, named, readings, scene, stalls


def test_engines_of_one_node_that_get_no_weights_are_not_their_sender_s_fault() -> None:
    """Two engines of one node wait, and those of other nodes were served: the node, and no trainer."""
    waits = {**FETCHES, "waiting_for": "trainer 0", "node": "r2"}
    changes = rollouts({**GENERATES, "weights": 8}) | TRAINERS | {("rollout", number): waits for number in "23"}
    assert named(scene(changes)) == [("weight_sync_still", "rollout", "2"), ("weight_sync_still", "rollout", "3")]


def one_after_another(last: float) -> list[RoleState]:
    """A trainer sends its weights to one rollout after another; the newest that got them did so at an instant."""
    waits = {**FETCHES, "waiting_for": "trainer 0", "phase_since": 100.0, "still_from": 100.0}
    found = list(scene(rollouts(waits) | TRAINERS))
    for number, since in (("0", last - 200.0), ("1", last - 100.0), ("2", last)):
        found = [
            one for one in found if one.instance != number or one.role != "rollout" or (one.at or 0.0) < START + since
        ]
        found += readings("rollout", number, **{**GENERATES, "weights": 8, "since": since, "phase_since": since})
    return found


def test_weights_that_go_to_one_after_another_are_on_their_way() -> None:
    """The last of four waits for 500 s, and the third got them 60 s ago; where that is 300 s ago it is late."""
    assert named(one_after_another(540.0)) == []
    assert named(one_after_another(300.0)) == [("weight_sync_still", "rollout", "3")]


@pytest.mark.parametrize("stuck", ["3", "23"])
def test_those_that_are_passed_over_again_and_again_are_named(stuck: str) -> None:
    """Their peers get every version from the one trainer, which sends: it is not at fault, and they wait since the first."""
    waits = {**FETCHES, "waiting_for": "trainer 0", "phase_since": 100.0, "still_from": 100.0}
    changes = {("rollout", number): {**GENERATES, "phase": "generate"} for number in "0123" if number not in stuck}
    every = scene({**changes, **{("rollout", number): waits for number in stuck}, ("trainer", "0"): TRAINED})

    def version(one: RoleState) -> int:
        return 7 + max(0, int((one.at or 0.0) - START - 50.0) // 100)

    records = [
        msgspec.structs.replace(one, weights=version(one) + (one.role == "trainer"))
        if one.role == "trainer" or (one.role == "rollout" and one.instance not in stuck)
        else one
        for one in every
    ]
    assert named(records) == [("weight_sync_still", "rollout", number) for number in stuck]


def test_who_waits_behind_a_transfer_is_counted() -> None:
    """Four rollouts wait for weights, the other trainer and the controller for their experience."""
    (found,) = stalls(scene(rollouts({**FETCHES, "waiting_for": "trainer 0"}) | TRAINERS))
    assert found.blocked == 6
