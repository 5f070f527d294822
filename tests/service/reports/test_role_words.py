"""Words about instances of roles: in lists, in the directory's table, and in the headline of one that failed."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from service.reports.job_lines import role_cells
from service.reports.remediations import short
from service.reports.story import headlines

AT = 1_795_892_077.0
ROW: dict[str, Any] = {
    "role": "rollout", "instance": "1", "phase": "generate", "weights": 1_200, "epoch": 1_795_892_077_085, "state": "serving",
    "activity": {"phase_since": AT - 89.0, "waiting_for": "", "waiting_since": None}, "renewed_at": AT - 59.0,
    "lease_seconds": 30.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        ({"instance": "1", "epochs": {"1": 7}}, "restart rollout 1"),
        ({"instance": None, "epochs": {"0": 7, "2": 9}}, "restart rollout 0, 2"),
        ({"instance": None, "epochs": {}}, "restart rollout"),
        (None, "restart role rollout"),
    ],
)
def test_the_line_of_a_restart_names_its_instances(restart: dict[str, Any] | None, said: str) -> None:
    """A list says which instances are restarted, where the plan says it."""
    assert short({"kind": "restart_role", "nodes": [], "role": "rollout", "role_restart": restart}) == said


def test_an_instance_that_is_not_heard_within_its_lease_is_not_said_to_serve() -> None:
    """What it did since its last word is not known; its epoch and its weights are numbers that a person pastes."""
    cells = role_cells(ROW, AT)

    assert cells[-1] == "not heard for 59 s (lease 30 s)"
    assert cells[2] == "generate for 30 s"
    assert cells[4:6] == ("1200", "1795892077085")
    assert role_cells(ROW | {"renewed_at": AT - 5.0}, AT)[-1] == "serving"
    assert role_cells(ROW | {"state": "left"}, AT)[-1] == "left"


@pytest.mark.parametrize(
    ("changed", "action", "said"),
    [
        ({"instances": ("1",)}, Action(kind="none"), "Rollout 1 (node vm) failed"),
        ({}, Action(kind="restart_role", role="rollout", instance="1"), "Rollout 1 (node vm) failed"),
        ({}, Action(kind="restart_role", role="rollout"), "Node vm (rollout rank 7) failed"),
        ({"instances": ("1", "2")}, Action(kind="none"), "Node vm (rollout 1 and 2) failed"),
        ({}, Action(kind="reattempt"), "Node vm (rollout rank 7) brought the job down"),
        ({"role": None}, Action(kind="restart_role", role="rollout"), "Node vm (rank 7) brought the job down"),
    ],
)
def test_an_instance_that_crashed_brought_no_job_down(changed: dict[str, Any], action: Action, said: str) -> None:
    """Where the others of the job go on, the instance failed, and it is named before its node."""
    known: dict[str, Any] = {"ranks": (7,), "role": "rollout", "probability": 0.9} | changed
    verdict = Verdict(
        symptom="crash", cause="code", abstained=False, roots=(Root(root="r1", cause="code", fault_class="exception"),),
        culprits=(Culprit(root="r1", kind="node", id="vm", **known),), action=action,
    )  # fmt: skip

    assert str(headlines(verdict)[0]).startswith(f"{said}: ")
