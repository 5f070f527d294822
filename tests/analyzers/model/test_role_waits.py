"""Where chains of waits end: the same as a plain walk finds from each instance, in far fewer steps."""

from __future__ import annotations

from random import Random

import pytest

from analyzers.model.role_instances import Seat, fold
from analyzers.model.role_waits import RoleWaits
from collectors.records import RoleState
from tests.support.role_readings import rules

AT = 1_000.0


def waits(targets: list[str], weights: list[int | None]) -> RoleWaits:
    """Return the waits of rollouts and two trainers; an empty target: it waits for none."""
    says = [(f"rollout {number}", target) for number, target in enumerate(targets)]
    says += [("trainer 0", ""), ("trainer 1", "rollout 0")]
    records = [
        RoleState(
            source="d", role=name.partition(" ")[0], instance=name.partition(" ")[2], at=AT, phase="wait", state="serving",
            waiting_for=target or None, waiting_since=AT - 60.0 if target else None, weights=version,
        )
        for (name, target), version in zip(says, [*weights, 8, 8], strict=True)
    ]  # fmt: skip
    return RoleWaits(fold(records), rules(), AT)


def walked(found: RoleWaits, seat: Seat) -> tuple[set[Seat], bool]:
    """Walk from one instance to all ends, one step after another."""
    seen, left, ends, unseen = set[tuple[str, int | None]](), [found.instances[seat]], set[Seat](), False
    while left:
        one = left.pop()
        if (edge := (one.waiting_for or "", one.weights)) in seen:
            continue
        seen.add(edge)
        targets = found._of(one)
        unseen = unseen or not targets
        for target in targets or ():
            if found.active(target):
                left.append(target)
            else:
                ends.add(target.seat)
    return ends, unseen


@pytest.mark.parametrize("seed", range(60))
def test_chains_end_where_a_plain_walk_ends(seed: int) -> None:
    """Chains, rings, stars, waits for a whole role, for weights, for a queue and for what is not there."""
    random, count = Random(seed), 12
    others = ["", "trainer", "trainer 1", "queue:experience", "10.0.0.1:80", "rollout 99", "rollout"]
    targets = [
        f"rollout {random.randrange(count)}" if random.random() < 0.7 else random.choice(others) for _ in range(count)
    ]
    found = waits(targets, [random.choice([None, 7, 8]) for _ in range(count)])
    for one in found.waiting:
        ends, unseen = found.ends(one)
        assert ({end.seat for end in ends}, unseen) == walked(found, one.seat), targets


def test_thousands_that_wait_each_for_the_next_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may have 4,096 instances, and is looked at every five seconds."""
    count, asked = 4_096, 0
    found = waits([f"rollout {number + 1}" for number in range(count - 1)] + [""], [None] * count)
    of = found._of

    def counted(one: object) -> object:
        nonlocal asked
        asked += 1
        return of(one)  # type: ignore[arg-type]

    monkeypatch.setattr(found, "_of", counted)
    assert len(found.behind["rollout", str(count - 1)]) == count
    assert asked < 8 * count
