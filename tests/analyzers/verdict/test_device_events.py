"""A device's own event beside what held the job up or ended it: the same root, another, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.argued_claims import BARE, HUNG, claim, decided, named, suspect


def test_hardware_that_holds_nobody_up_is_no_root() -> None:
    """An Xid on a node of which no rank is waited for does not make it a culprit of this hang."""
    noise = claim("hardware", "xid_79", suspect(kind="device", node="n9", device="0000:9b:00", strength=0.95))
    verdict = decided(HUNG, noise)
    assert named(verdict) == [("node n1", (5,))]
    assert [entry.kind for entry in verdict.rejected] == ["device"]


def test_a_device_that_fails_beside_a_programs_error_makes_neither_surer() -> None:
    """Both may be so: the exception keeps its doubt, and the node is named with what its own event asks for."""
    raised = claim("crash", "program_error", suspect(5, kind="code", strength=0.7), cause="code", symptom="crash")
    lost = claim("hardware", "xid_79", suspect(kind="device", node="n1", device="0000:9b:00", strength=0.95))
    elsewhere = claim("hardware", "xid_79", suspect(kind="device", node="n9", device="0000:9b:00", strength=0.95))

    verdict, alone = decided(raised, lost), decided(raised, elsewhere)

    assert (verdict.cause, [one.probability for one in verdict.culprits]) == ("code", [0.7, 0.95])
    assert (verdict.action.kind, verdict.action.nodes) == ("reboot_node", ("n1",))
    assert (len(alone.culprits), alone.action.kind) == (1, "none")


@pytest.mark.parametrize(
    ("fault_class", "kind", "strength", "action"),
    [
        ("xid_79", "node", 0.95, "reboot_node"),
        ("ecc_dbe", "node", 0.9, "reset_gpu"),
        ("gpu_counted", "rank", 0.4, "probe"),
    ],
)
def test_a_failed_device_explains_the_error_that_its_program_met(
    fault_class: str, kind: str, strength: float, action: str
) -> None:
    """An illegal access alone is open; beside an event of that GPU its node is named, for what the event asks for."""
    met = claim(
        "crash", "device_fault", suspect(5, strength=0.45), cause="unknown", symptom="crash", missing=("an Xid",)
    )
    event = suspect(5, kind="device", node="n7", device="0000:9b:00", strength=strength)

    verdict = decided(met, claim("hardware", fault_class, event, symptom="hardware"), topology=BARE)

    assert (verdict.symptom, [one.kind for one in verdict.culprits]) == ("crash", [kind])
    assert verdict.culprits[0].ranks == (5,)
    assert verdict.action.kind == action
    if kind == "node":
        assert (verdict.culprits[0].id, verdict.action.nodes) == ("n7", ("n7",))
        assert verdict.culprits[0].probability == strength
        assert not verdict.missing


@pytest.mark.parametrize(("seconds", "roots"), [(-30.0, 1), (60.0, 1), (7200.0, 2)])
def test_a_device_that_fails_long_after_a_crash_did_not_cause_it(seconds: float, roots: int) -> None:
    """An illegal access, and Xid 79 on its node: within minutes they are one, two hours later they are two."""
    met = claim("crash", "device_fault", suspect(5, strength=0.6), cause="unknown", symptom="crash")
    lost = claim("hardware", "xid_79", suspect(kind="device", node="n1", device="0000:9b:00", strength=0.95))
    verdict = decided(replace(met, onset=1000.0), replace(lost, onset=1000.0 + seconds))

    assert len(verdict.roots) == roots


def test_hardware_on_the_culprits_node_confirms_it() -> None:
    """A device event on the node that holds the job up is the same root: its device and its sentence are added."""
    device = claim("hardware", "xid_79", suspect(kind="device", node="n1", device="0000:9b:00", strength=0.95))
    verdict = decided(HUNG, device)
    assert named(verdict) == [("node n1", (5,))]
    assert verdict.culprits[0].devices == ("0000:9b:00",)
    assert verdict.action.kind == "evict"
