"""A hang's machine is evicted when two looks have found it in one place, and not before."""

from __future__ import annotations

import pytest

from analyzers.model.finding import Finding
from analyzers.model.verdict import Verdict
from collectors.records import Frame, KernelEvent
from tests.support.live_hangs import KNOWLEDGE, SPIN, START, TRAIN, Hang, inside, named, verdict


def action(found: Verdict) -> tuple[str, tuple[str, ...]]:
    """What is to be done, and to whom."""
    return (found.action.kind, found.action.nodes)


@pytest.mark.parametrize("looks", [0, 1])
def test_one_look_evicts_nobody(looks: int) -> None:
    """The rank is named at once; the action is a probe that says what it waits for."""
    found = verdict(Hang().records(), looks)
    assert (named(found), action(found)) == ([2], ("probe", ("gpu-2",)))
    assert found.action.why == (
        "rank 2 was seen once: the next evidence round is 10 s after the first, and that decides whether it moves"
    )


@pytest.mark.parametrize(
    "stands",
    [
        (SPIN, SPIN),
        (SPIN, (Frame("check_loss_scale", "/srv/train.py", 23), *TRAIN)),
        (inside("fuse_rows", "pack"), inside("sleep", "fuse_rows", "pack")),
        (inside("isfinite", "check_loss_scale"), inside("check_loss_scale")),
    ],
    ids=["the same line", "another line", "calls it at the second look", "called it at the first look"],
)
def test_two_looks_at_one_place_evict(stands: tuple[tuple[Frame, ...], ...]) -> None:
    """A loop goes through its lines and calls its helpers, and stands still all the same."""
    assert action(verdict(Hang(stands=stands).records())) == ("evict", ("gpu-2",))


@pytest.mark.parametrize(
    "stands",
    [
        (inside("forward"), inside("backward")),
        (inside("layer_1", "forward"), inside("layer_2", "forward")),
        (TRAIN, inside("forward")),
        (inside("forward"), TRAIN),
    ],
    ids=["another function", "another below", "left the loop's own line", "came back to the loop's own line"],
)
def test_a_rank_that_moves_is_not_evicted(stands: tuple[tuple[Frame, ...], ...]) -> None:
    """It is slow: named, and probed, with the reason."""
    found = verdict(Hang(stands=stands).records())
    assert action(found)[0] == "probe"
    assert "rank 2 moves" in found.action.why


def test_a_rank_that_launched_something_since_is_not_evicted() -> None:
    """Its stack is where it was, its recorder is not: a loop of a group of its own goes round."""
    assert action(verdict(Hang(launches_later=True).records()))[0] != "evict"


@pytest.mark.parametrize("stands", [((), ()), (SPIN, ())], ids=["no look", "only the first look"])
def test_without_a_second_stack_nobody_is_evicted(stands: tuple[tuple[Frame, ...], ...]) -> None:
    """Where it stands now is not known: a compile looks the same from outside."""
    assert action(verdict(Hang(stands=stands).records()))[0] == "probe"


def test_an_answer_holds_two_stacks_that_are_one_look() -> None:
    """Three seconds apart they may be one slow call: the look before the answer is what they are compared with."""
    found = verdict(Hang(looks_at=(60.0,)).records())
    assert action(found)[0] == "probe"
    assert "one stack only" in found.action.why


def test_a_look_from_before_the_hang_says_nothing() -> None:
    """The routine look of a minute ago met it elsewhere, as it would, for the job ran then: that is no movement."""
    found = verdict(Hang(stands=(inside("forward"), (), SPIN), looks_at=(20.0, 50.0, 60.0)).records())
    assert action(found)[0] == "probe"
    assert "one stack only" in found.action.why


def test_a_stopped_process_need_not_wait_if_it_was_seen_twice() -> None:
    """Two states, ten seconds apart, at the first look; a single one waits for the second."""
    assert action(verdict(Hang(state="T").records(), 1)) == ("evict", ("gpu-2",))
    assert action(verdict(Hang(state="T", states_at=(50.0,)).records(), 1))[0] == "probe"
    assert action(verdict(Hang(state="T", states_at=(50.0,)).records(), 2)) == ("evict", ("gpu-2",))


def test_a_dead_process_need_not_wait() -> None:
    """A zombie comes to nothing by itself."""
    assert action(verdict(Hang(state="Z", states_at=(50.0,)).records(), 1)) == ("evict", ("gpu-2",))


def test_an_end_that_nobody_saw_proves_nothing() -> None:
    """An agent that was started anew finds the process gone: it may have ended well, so it is named and not evicted."""
    gone = verdict(Hang(state="X", states_at=(50.0,)).records())
    assert (named(gone), action(gone)[0]) == ([2], "probe")
    assert "no record shows how" in gone.action.why
    assert action(verdict(Hang(state="X", states_at=(50.0,)).records(), None)) == ("evict", ("gpu-2",))


def test_hardware_that_agrees_need_not_wait() -> None:
    """The kernel lost the GPU of that machine."""
    lost = KernelEvent(
        source="kern.log:8", at=START + 31.0, boot_id="b", node="gpu-2", event="xid", code=79, pci="0000:9b:00",
        text="NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",
    )  # fmt: skip
    assert action(verdict(Hang(more=[lost]).records(), 1)) == ("evict", ("gpu-2",))


def test_uninterruptible_in_a_driver_twice_is_a_standstill() -> None:
    """No stack can be had of such a process: its state in two tables stands for two looks."""
    found = verdict(Hang(state="D", channel="os_acquire_rwlock_write", stands=((),)).records())
    assert action(found) == ("evict", ("gpu-2",))


@pytest.mark.parametrize("channel", [None, "rwsem_down_write_slowpath", "folio_wait_bit_common"])
def test_uninterruptible_for_what_is_not_shown_evicts_nothing(channel: str | None) -> None:
    """A file system of every client may hold it there: the rank is known, its machine is probed."""
    found = verdict(Hang(state="D", channel=channel, stands=((),)).records())
    assert (named(found), action(found)[0]) == ([2], "probe")


def test_a_silent_node_is_probed() -> None:
    """Nothing comes from it: it may be dead, or its agent, or the way from it."""
    found = verdict(Hang(silent=(2,)).records())
    assert (named(found), action(found)) == ([2], ("probe", ("gpu-2",)))


def test_a_node_that_fell_silent_after_its_look_is_probed() -> None:
    """What it reported is a minute old: the others' looks go on, and blindness is not death."""
    later = Hang(looks_at=(50.0, 60.0, 120.0), states_at=(50.0, 60.0, 120.0)).records()
    cut = [record for record in later if record.node != "gpu-2" or (record.at or 0.0) < START + 65.0]
    assert action(verdict(later)) == ("evict", ("gpu-2",))
    found = verdict(cut)
    assert action(found)[0] == "probe"


def test_files_evict_no_rank_for_the_waits_of_others() -> None:
    """Who holds them up is sure, and why is not: its stack is its own code, moves, or is not there."""
    for hang in (Hang(), Hang(stands=((),)), Hang(stands=(inside("forward"), inside("backward")))):
        found = verdict(hang.records(), None)
        assert (named(found), action(found)) == ([2], ("probe", ("gpu-2",)))
        assert "hold" in found.action.why


@pytest.mark.parametrize("state", ["T", "X", "Z"])
def test_files_evict_a_rank_whose_process_shows_why(state: str) -> None:
    """It is stopped, or has ended, while its peers wait for it."""
    assert action(verdict(Hang(state=state).records(), None)) == ("evict", ("gpu-2",))


def test_each_of_two_culprits_has_its_own_looks() -> None:
    """One stands still and one moves: the one is evicted, and the other to be probed before it is touched."""
    still = Hang((1, 2))
    moving = Hang((1, 2), stands=(inside("forward"), inside("backward")))
    records = [
        *(record for record in still.records() if record.node != "gpu-2"),
        *(record for record in moving.records() if record.node == "gpu-2"),
    ]
    found = verdict(records)
    assert (named(found), action(found)) == ([1, 2], ("evict", ("gpu-1",)))
    assert "test the others" in found.action.why


def test_order_of_records_does_not_matter() -> None:
    """The same records in another order give the same verdict."""
    records = Hang().records()
    assert verdict(records) == verdict(list(reversed(records)))


def test_a_failure_of_the_weighing_evicts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should what excuses a rank crash on odd records, the claims stand, the verdict says so, and nobody is evicted."""
    from analyzers.verdict import judge

    def broken(claims: list[Finding], *_rest: object) -> list[Finding]:
        raise ValueError("odd")

    monkeypatch.setattr(judge, "without_echoes", broken)
    found = verdict(Hang().records())
    assert (named(found), action(found)[0]) == ([2], "probe")
    assert any("odd" in missing.what for missing in found.missing)
    assert KNOWLEDGE.hash == found.knowledge
