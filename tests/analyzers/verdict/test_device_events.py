"""A device's own event beside what held the job up or ended it: the same root, another, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.model.finding import Finding
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
    reported = claim("hardware", fault_class, event, symptom="hardware")

    verdict = decided(replace(met, onset=60.0), replace(reported, onset=59.0), topology=BARE)

    assert (verdict.symptom, [one.kind for one in verdict.culprits]) == ("crash", [kind])
    assert verdict.culprits[0].ranks == (5,)
    assert verdict.action.kind == action
    if kind == "node":
        assert (verdict.culprits[0].id, verdict.action.nodes) == ("n7", ("n7",))
        assert verdict.culprits[0].probability == strength
        assert not verdict.missing


MET = claim("crash", "device_fault", suspect(5, strength=0.6), cause="unknown", symptom="crash")
LOST = claim("hardware", "xid_79", suspect(kind="device", node="n1", device="0000:9b:00", strength=0.95))


@pytest.mark.parametrize("known", ["onset", "no_later_than"])
@pytest.mark.parametrize(("seconds", "is_cause"), [(-30.0, True), (60.0, True), (7200.0, False)])
def test_a_device_that_fails_long_after_a_crash_did_not_cause_it(known: str, seconds: float, *, is_cause: bool) -> None:
    """An illegal access, and Xid 79 on its node: within minutes they are one, two hours later it ended nothing."""
    verdict = decided(replace(MET, **{known: 1000.0}), replace(LOST, onset=1000.0 + seconds))

    assert (len(verdict.roots), verdict.action.kind == "reboot_node") == (1, is_cause)
    assert any("too long after the crash" in one.why for one in verdict.rejected) is not is_cause
    assert is_cause or not (verdict.first_symptom and "xid" in verdict.first_symptom.text)


@pytest.mark.parametrize(("crash", "event"), [(None, 1000.0), (1000.0, None), (None, None)])
def test_a_device_is_less_sure_where_no_stamp_shows_which_came_first(crash: float | None, event: float | None) -> None:
    """It may have failed after the error, or long before: it stays the likeliest cause, and the doubt is said."""
    ordered = decided(replace(MET, onset=1000.0), replace(LOST, onset=990.0))
    verdict = decided(replace(MET, onset=crash), replace(LOST, onset=event))

    assert verdict.culprits[0].probability < ordered.culprits[0].probability == 0.95
    assert "no stamp shows" in verdict.culprits[0].why
    assert verdict.action.kind == ordered.action.kind


TIMED_OUT = claim(
    "crash",
    "echoes_only",
    cause="unknown",
    family="waits",
    onset=10_000.0,
    no_earlier_than=9_400.0,
    no_later_than=10_000.0,
)
"""Watchdogs that waited for ten minutes and name nobody."""
BEHIND = replace(TIMED_OUT, suspects=(suspect(5, strength=0.6),), narrows=True)


@pytest.mark.parametrize("hang", [TIMED_OUT, BEHIND], ids=["nobody is named", "a rank of its node is behind"])
@pytest.mark.parametrize(("minutes", "is_cause"), [(-12, True), (-1, True), (4, True), (27, False), (85, False)])
def test_a_device_that_fails_long_after_watchdogs_gave_up_did_not_stop_the_job(
    hang: Finding, minutes: int, *, is_cause: bool
) -> None:
    """What a GPU breaks stands still from then on: half an hour after the time-out it is another story."""
    verdict = decided(hang, replace(LOST, onset=10_000.0 + 60 * minutes))

    assert (verdict.action.kind == "reboot_node") is is_cause
    assert any("too long after the job had stopped" in one.why for one in verdict.rejected) is not is_cause
    assert not is_cause or verdict.culprits[0].probability == 0.95


@pytest.mark.parametrize("minutes", [55, 115, 7 * 60 - 12, None])
def test_stamps_of_another_zone_or_none_do_not_show_that_a_device_failed_after_a_hang(minutes: int | None) -> None:
    """An hour, two, or seven may lie between two logs' zones: the device stays the likeliest cause, and the doubt is said."""
    verdict = decided(TIMED_OUT, replace(LOST, onset=None if minutes is None else 10_000.0 + 60 * minutes))

    assert verdict.action.kind == "reboot_node"
    assert verdict.culprits[0].probability < 0.95
    assert ("no stamp shows" if minutes is None else "in another zone") in verdict.culprits[0].why


def test_without_the_time_that_watchdogs_wait_no_later_device_is_rejected() -> None:
    """When the ranks began to wait is unknown: in another zone the device's event may lie before that."""
    verdict = decided(replace(TIMED_OUT, no_earlier_than=None), replace(LOST, onset=10_000.0 + 27 * 60))

    assert (verdict.action.kind, "in another zone" in verdict.culprits[0].why) == ("reboot_node", True)


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ("xid_94", "none"),
        ("xid_94_then_drain", "reset_gpu"),
        ("xid_95", "reset_gpu"),
        ("xid_79", "reboot_node"),
        ("ecc_dbe_remap", "evict"),
    ],
)
def test_an_error_of_a_gpu_that_its_program_met_asks_for_no_more_than_the_event_does(event: str, action: str) -> None:
    """The program's line and the kernel's are one fault seen twice: they agree who it is, and the table says what to do."""
    met = claim("crash", "device_lost", suspect(5, strength=0.9), symptom="crash")
    event_of_it = suspect(kind="device", node="n1", device="0000:2a:00", strength=0.9)

    verdict = decided(met, claim("hardware", event, event_of_it, symptom="hardware"))

    assert named(verdict) == [("node n1", (5,))]
    assert verdict.culprits[0].probability > 0.95
    assert (verdict.action.kind, verdict.action.nodes) == (action, ("n1",))


@pytest.mark.parametrize("ended_as", ["process_aborted", "process_crashed", "exit_unexplained", "killed_unexplained"])
@pytest.mark.parametrize(("event", "action"), [("xid_79", "reboot_node"), ("machine_check", "evict")])
def test_an_end_without_a_reason_has_it_in_what_the_kernel_says_of_its_machine(
    ended_as: str, event: str, action: str
) -> None:
    """A process aborts or gets a signal and says nothing: an error of its node's hardware beside it is the cause."""
    met = claim("crash", ended_as, suspect(5, strength=0.4), cause="unknown", symptom="crash")
    reported = claim("hardware", event, suspect(kind="node", node="n1", strength=0.9), symptom="hardware")

    verdict = decided(replace(met, onset=60.0), replace(reported, onset=58.0))

    assert (verdict.cause, named(verdict)) == ("machine", [("node n1", (5,))])
    assert (verdict.action.kind, verdict.action.nodes) == (action, ("n1",))
    assert not verdict.rejected


FATAL = claim("hardware", "sxid_20034", suspect(kind="switch", node="n9", device="nvswitch1", strength=0.8))


def test_an_open_error_of_one_rank_rejects_no_surer_event_of_another_machine() -> None:
    """An illegal access on n1 is the program's two times in three: a fatal event of n9 is surer."""
    met = claim("crash", "device_fault", suspect(5, strength=0.45), cause="unknown", symptom="crash", together=False)
    verdict = decided(replace(met, victims=(38,), onset=60.0), replace(FATAL, symptom="hardware", onset=50.0))

    assert (verdict.symptom, verdict.cause, [one.kind for one in verdict.culprits]) == ("crash", "machine", ["switch"])
    assert verdict.action.kind == "reboot_node"
    assert ["may be its program's" in one.why for one in verdict.rejected] == [True]


def test_a_weak_event_of_another_machine_is_rejected_by_an_open_error() -> None:
    """A network link that may be loose, on n9, says less than the error of the rank itself."""
    met = claim("crash", "device_fault", suspect(5, strength=0.45), cause="unknown", symptom="crash", together=False)
    weak = claim("hardware", "nvlink_74_seating", suspect(kind="device", node="n9", device="0000:b7:00", strength=0.6))

    assert named(decided(met, weak)) == [("group rank 5", (5,))]


def test_a_port_that_flaps_does_not_make_ranks_call_different_operations() -> None:
    """The log decides by itself, as it does without the kernel's lines about a port."""
    parted = claim("crash", "desync", suspect(5, kind="code", strength=0.9), cause="code", family="waits", narrows=True)
    flaps = claim(
        "hardware", "link_flapping", suspect(kind="link", node="n1", device="eno1", strength=0.6), cause="network"
    )

    alone, beside = decided(parted), decided(parted, replace(flaps, symptom="hardware"))

    assert named(beside) == named(alone) == [("code rank 5", (5,))]
    assert (beside.cause, [one.kind for one in beside.rejected]) == ("code", ["link"])


def test_what_a_log_shows_to_have_failed_by_itself_still_rejects_an_event_elsewhere() -> None:
    """The error that a log spells out decides: a device of a node whose ranks did nothing is no cause of it."""
    raised = claim("crash", "program_error", suspect(5, kind="code", strength=0.7), cause="code", symptom="crash")

    assert [one.kind for one in decided(raised, FATAL).rejected] == ["switch"]


def test_hardware_on_the_culprits_node_confirms_it() -> None:
    """A device event on the node that holds the job up is the same root: its device and its sentence are added."""
    device = claim("hardware", "xid_79", suspect(kind="device", node="n1", device="0000:9b:00", strength=0.95))
    verdict = decided(HUNG, device)
    assert named(verdict) == [("node n1", (5,))]
    assert verdict.culprits[0].devices == ("0000:9b:00",)
    assert verdict.action.kind == "evict"
