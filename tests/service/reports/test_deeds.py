"""What was done and what would be done of a remediation, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from service.reports import history
from service.reports.remediations import deed, loss, standing, undoing
from service.reports.timeline_entries import entry_text
from tests.support.incident_rows import AT


@pytest.mark.parametrize(
    ("kind", "details", "line"),
    [
        ("remediation_approved", {"by": "ann"}, "rem-1 evict gpu-0002, by ann"),
        ("remediation_proposed", {"by": "engine", "why": "it hangs"}, "rem-1 evict gpu-0002, by engine: it hangs"),
        ("remediation_verified", {"by": "engine", "outcome": "not_cured"}, "rem-1 evict gpu-0002, by engine, not cured"),
        ("remediation_would_act", {"by": "policy", "rule": "gone", "hindered": ["held", "budget"]},
         "rem-1 evict gpu-0002, by policy, rule gone, blocked by: held, budget"),
    ],
)  # fmt: skip
def test_what_was_done_is_a_line(kind: str, details: dict[str, Any], line: str) -> None:
    """`watch` and the timeline say of a remediation what it does to whom, who did that, and why."""
    about = {"remediation": "rem-1", "incident": "inc-1", "kind": "evict", "nodes": ["gpu-0002"]}

    assert entry_text(kind, about | details) == line


def test_what_stops_all_is_a_line() -> None:
    """`watch` says of a hold, the freeze and the breaker who did what, until when and why."""
    held = {"hold": "hold-1", "node": "gpu-0002", "job": None, "until": AT, "reason": "HBM", "by": "ann"}

    assert entry_text("hold_added", held) == "node gpu-0002, by ann, until 2026-11-21 03:14:07 UTC: HBM"
    assert entry_text("frozen", {"by": "ann", "reason": "power work"}) == "by ann: power work"
    assert entry_text("breaker_tripped", {"by": "slurm", "why": "3 of 40 nodes"}) == "by slurm: 3 of 40 nodes"


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "fields", "job_nodes", "sentence"),
    [
        ("evict", {}, 512, "Drain gpu-0413 and restart llama (attempt 3) on the other 511 nodes"),
        ("evict", {}, 2, "Drain gpu-0413 and restart llama (attempt 3) on the other node"),
        ("evict", {}, None, "Drain gpu-0413 and restart llama (attempt 3) without it"),
        ("evict", {"attempt": None}, 1, "Drain gpu-0413 and restart llama without it"),
        ("evict", {"nodes": [f"n{n}" for n in range(4)]}, 8,
         "Drain n[0-3] (4 nodes) and restart llama (attempt 3) on the other 4 nodes"),
        ("drain_after_job", {}, 512, "Let llama (attempt 3) go on, and drain gpu-0413 when it ends"),
        ("reset_gpu", {}, 512, "Reset the GPUs of gpu-0413 and restart llama (attempt 3)"),
        ("reboot_node", {}, 512, "Reboot gpu-0413 and restart llama (attempt 3)"),
        ("restart_role", {"nodes": [], "role": "rollout"}, 512,
         "Restart the role rollout of llama (attempt 3) and leave the others running"),
        ("restart_job", {"nodes": []}, 512, "Restart llama (attempt 3) on the nodes that it has"),
        ("reattempt", {"nodes": []}, 512, "Start llama (attempt 3) again as it is"),
        ("rollback", {"nodes": [], "code_version": "a1b2c3"}, 512,
         "Roll llama (attempt 3) back to code version a1b2c3 and restart it"),
        ("new_in_2027", {}, 512, "New in 2027 gpu-0413"),
    ],
)  # fmt: skip
def test_object_and_effect_are_named(kind: str, fields: dict[str, Any], job_nodes: int | None, sentence: str) -> None:
    """Whoever is asked reads which node, which job and what becomes of it, for every kind of remediation."""
    plan = {"id": "rem-1", "kind": kind, "nodes": ["gpu-0413"], "job": "llama", "attempt": 3} | fields

    assert deed(plan, job_nodes) == sentence
    assert "rem-1" in undoing(plan)


@pytest.mark.parametrize(("status", "said"), [("proposed", True), ("approved", True), ("done", False)])
def test_what_waits_says_until_when(status: str, said: bool) -> None:
    """A proposal and an approval expire; what has ended does not."""
    plan = {"status": status, "expires_at": AT if said else None, "because": ""}

    assert ("until 2026-11-21 03:14:07 UTC" in standing(plan)) is said


def test_a_loss_has_the_unit_that_its_reason_has() -> None:
    """GPU hours, or node hours where the nodes have no GPU; nothing where it is unknown."""
    hours = [
        {"expected_loss_gpu_hours": 1_234.56},
        {"expected_loss_gpu_hours": None, "expected_loss_node_hours": 0.7},
        {},
    ]

    assert [loss(one) for one in hours] == ["1,234.6 GPU hours", "0.7 node hours", ""]


def test_the_newest_version_stands_with_what_is_planned() -> None:
    """Lists, page and table of versions name the plan, and whose the other action is; an earlier version has its own."""
    versions = [
        {
            "version": number,
            "at": AT,
            "symptom": "hang",
            "cause": "machine",
            "abstained": False,
            "action": action,
            "culprits": [],
        }
        for number, action in ((2, "evict"), (1, "probe"))
    ]
    row = {"plan": "reattempt", "verdict": versions[0]}
    found = list(history.versions_of(row, versions))

    assert [(one.version, one.deed) for one in found] == [(1, "probe"), (2, "reattempt (verdict: evict)")]
    assert history.of_incident(row) == found[-1]
    for plan in (None, "evict"):
        assert [one.deed for one in history.versions_of({**row, "plan": plan}, versions)] == ["probe", "evict"]
