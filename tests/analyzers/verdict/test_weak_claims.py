"""Claims that are hints: they stand alone where nothing else is claimed, and lead no stronger one."""

from __future__ import annotations

import pytest

from tests.support.argued_claims import claim, decided, named, suspect


@pytest.mark.parametrize(("hint", "stands"), [(0.45, "stuck_data_loader"), (0.6, "never_entered")])
def test_a_hint_does_not_stand_before_a_claim(hint: float, stands: str) -> None:
    """An export of a hang that ended by its time-out: its log names by silence whom stacks find in its data loader."""
    silent = claim("crash", "never_entered", suspect(5, strength=hint), family="waits", narrows=True)
    stacks = claim("stacks", "stuck_data_loader", suspect(5, strength=0.92), cause="data", narrows=True)
    verdict = decided(silent, stacks)

    assert [root.fault_class for root in verdict.roots] == [stands]
    assert named(verdict) == [("node n1", (5,))]
    assert named(decided(silent)) != []
