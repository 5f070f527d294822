"""`faulthound remediations found`: a person says what checks and replays have found; both are reported in words before."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from analyzers.remediation.dual_phase import plan_replay as replay_of
from service.reports.remediations import deed
from service.reports.timeline_entries import entry_text
from tests.support.desk import NODES, Desk, desk

__all__ = ["desk"]  # a fixture

REPLAY = replay_of(NODES, 1, 4)


def approved(desk: Desk, kind: str, **fields: Any) -> str:
    """Return checks, or a replay, that a person has approved."""
    id = desk.proposed(kind=kind, **{"nodes": NODES, "expected_loss_gpu_hours": None} | fields)
    assert desk.run("remediations", "approve", id, "--yes").returncode == 0
    return id


@pytest.mark.system
def test_a_person_says_what_checks_found(desk: Desk) -> None:
    """One failed, the others passed: that is asked about, kept node by node, and the checks are done."""
    id = approved(desk, "probe")
    asked = desk.run("remediations", "found", id, "--failed", "gpu-0002", "--others-passed")
    tried = desk.run("remediations", "found", id, "--failed", "gpu-0002", "--others-passed", "--dry-run")
    before = desk.status(id)
    done = desk.run("remediations", "found", id, "--failed", "gpu-0002", "--others-passed", "--yes")

    assert asked.returncode == 5
    assert f"Report for {id} that gpu-0002 failed, and 3 passed" in asked.stderr
    assert (tried.returncode, before) == (0, "approved")
    assert done.returncode == 0, done.stderr
    assert desk.found(id)["did"] == {node: "failed" if node == "gpu-0002" else "passed" for node in NODES}
    assert (desk.status(id), desk.found(id)["task"]) == ("done", None)


def test_a_person_names_the_groups_of_a_replay(desk: Desk) -> None:
    """Groups are shown by name and nodes, and named; what is kept are their nodes."""
    id = approved(desk, "replay", replay=REPLAY)
    shown = desk.run("remediations", "show", id).stdout
    page = httpx.get(f"{desk.url}/incidents/{desk.found(id)['incident']}", timeout=60.0).text
    done = desk.run("remediations", "found", id, "--bad", "H0", "--bad", "V1", "--yes")

    assert "2 + 2 groups of 2 nodes" in shown
    assert "V1: gpu-[0002,0004]" in shown
    assert "V1: gpu-[0002,0004]" in page
    assert done.returncode == 0, done.stderr
    assert desk.found(id)["did"] == {"bad": [list(NODES[:2]), [NODES[1], NODES[3]]]}


@pytest.mark.parametrize(
    ("kind", "words", "reported"),
    [
        ("probe", ("--failed", "gpu-0009"), "gpu-0009 was not to be checked"),
        ("probe", ("--failed", "gpu-0002"), "gpu-0001 has no finding"),
        ("probe", ("--failed", "gpu-0002", "--passed", "gpu-0002", "--others-passed"), "name it once"),
        ("replay", ("--bad", "H7"), "its groups are H0, H1, V0, V1"),
        ("replay", (), "--none-bad"),
        ("replay", ("--bad", "H0", "--none-bad"), "--none-bad"),
        ("evict", ("--failed", "gpu-0002"), "only checks and replays have findings"),
    ],
)
def test_findings_that_cannot_be_are_refused_before_anything_is_claimed(
    desk: Desk, kind: str, words: tuple[str, ...], reported: str
) -> None:
    """It says which word is wrong and what to say instead, and the remediation can be claimed as before."""
    id = approved(desk, kind, replay=REPLAY if kind == "replay" else None)
    done = desk.run("remediations", "found", id, *words, "--yes")

    assert done.returncode == 2
    assert reported in done.stderr
    assert (desk.status(id), desk.found(id)["claims"]) == ("approved", 0)
    assert desk.run("remediations", "cancel", id, "--reason", "over", "--yes").returncode == 0


def test_what_nobody_approved_is_not_found(desk: Desk) -> None:
    """A proposal is not claimed by who has looked already: it waits for an answer."""
    id = desk.proposed(kind="probe", nodes=NODES)
    done = desk.run("remediations", "found", id, "--others-passed", "--yes")

    assert done.returncode == 5
    assert desk.status(id) == "proposed"


@pytest.mark.system
def test_checks_and_replays_have_words() -> None:
    """Who is asked reads what is looked at, and that nobody leaves by it; who is wanted reads why."""
    probe = {"kind": "probe", "nodes": ["gpu-0413"], "job": "a"}
    replay = {"kind": "replay", "nodes": list(NODES), "job": "a", "attempt": 3, "replay": None}

    assert deed(probe) == "Check gpu-0413, and evict nothing"
    assert deed(replay) == "Replay a (attempt 3) on 0 + 0 groups of 0 nodes"
    assert entry_text("person_wanted", {"why": "tried in vain: reattempt"}) == "tried in vain: reattempt"
