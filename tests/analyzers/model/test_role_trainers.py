"""When a trainer stands: by its steps and its processor, and what its peers do meanwhile."""

from __future__ import annotations

import pytest

from analyzers.model.role_silence import Seen
from tests.support.role_readings import named, scene, stalls

TRAINS = {"phase": "update_actor", "steps": 0.1, "still_from": 200.0}
BUSY, AT_REST = Seen(state="R", still_seconds=0.0), Seen(state="S", still_seconds=400.0)


@pytest.mark.parametrize(("zero", "one"), [(BUSY, BUSY), (AT_REST, BUSY), (BUSY, AT_REST), (AT_REST, AT_REST)])
def test_trainers_that_use_their_processors_and_finish_no_step_stand(zero: Seen, one: Seen) -> None:
    """One spins, and who waits for it spins or rests: the role stands, and its rule alone names none of them."""
    both = scene({("trainer", "0"): TRAINS, ("trainer", "1"): {**TRAINS, "node": "t1"}})
    (found,) = stalls(both, {("trainer", "0"): zero, ("trainer", "1"): one})
    assert (found.fault_class, found.role, found.instance, len(found.seats)) == ("trainer_still", "trainer", "", 2)
    assert (found.strength < 0.75) is (zero is one is BUSY)


def test_a_trainer_at_work_at_a_long_step_does_not_stand() -> None:
    """A step of 360 s after some of 100 s, and one of which no step is counted: they use their processors."""
    seen = {("trainer", "0"): BUSY}
    long = {**TRAINS, "steps": 0.01, "still_from": 240.0, "phase_since": 230.0}
    assert named(scene({("trainer", "0"): long}), seen) == []
    assert named(scene({("trainer", "0"): {"phase": "update_actor"}}), seen) == []


def test_a_trainer_that_rests_while_another_works_may_wait_for_it() -> None:
    """No step of either is counted: the one that rests is no more than suspected."""
    uncounted = {"phase": "update_actor"}
    changes = {("trainer", "0"): uncounted, ("trainer", "1"): {**uncounted, "node": "t1"}}
    (found,) = stalls(scene(changes), {("trainer", "0"): AT_REST, ("trainer", "1"): BUSY})
    assert (found.instance, found.strength) == ("0", 0.4)
