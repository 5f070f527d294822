"""Who had lost an instance of a role before it ended: its end is part of a restart."""

from __future__ import annotations

import pytest

from analyzers.model.role_epochs import former_holders
from collectors.records import DIRECTORY, RoleState
from collectors.records.role_states import RoleStanding

NODE = "gpu-7.example.org"


def said(at: float, epoch: int, pid: int | None, state: RoleStanding = "serving", node: str = NODE) -> RoleState:
    """Return what the directory says of rollout 3."""
    return RoleState(
        source=DIRECTORY, role="rollout", instance="3", at=at, epoch=epoch, pid=pid, node=node, state=state
    )


@pytest.mark.parametrize(
    ("readings", "ended_at", "lost"),
    [
        ([said(0.0, 1, 40), said(5.0, 1, 40, "fenced")], 5.1, True),
        ([said(0.0, 1, 40), said(5.0, 1, 40, "fenced")], 4.9, False),  # what is fenced after its end was lost
        ([said(0.0, 1, 40), said(5.0, 2, 41)], 6.0, True),  # another process has its place
        ([said(0.0, 1, 40), said(5.0, 2, 41)], 4.0, False),
        ([said(0.0, 1, 40), said(5.0, 2, 41), said(6.0, 1, 40)], 5.5, True),  # late word of the former epoch
        ([said(0.0, 1, 40), said(5.0, 1, 40, "left")], 6.0, False),  # it left by its own word: another rule's
        ([said(0.0, 1, 40), said(5.0, 1, 40, "fenced"), said(9.0, 2, 40)], 20.0, False),  # a process id given again
        ([said(0.0, 1, None), said(5.0, 1, None, "fenced")], 6.0, False),  # no process is known
        ([said(0.0, 1, 40, node="gpu-8"), said(5.0, 1, 40, "fenced", "gpu-8")], 6.0, False),  # of another node
        ([], 6.0, False),
    ],
)
def test_who_had_lost_its_instance(readings: list[RoleState], ended_at: float, lost: bool) -> None:
    """By the instant of the fence, or of the next holder; a node's domain does not matter."""
    assert former_holders(readings).had_lost("rollout", 40, "gpu-7", ended_at) is lost
    assert not former_holders(readings).had_lost("trainer", 40, "gpu-7", ended_at)
    assert not former_holders(readings).had_lost("rollout", None, "gpu-7", ended_at)
