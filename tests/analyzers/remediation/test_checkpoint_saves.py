"""Whether a job saves a checkpoint now: by the phase that its probe is in, and by where its ranks stand."""

from __future__ import annotations

from array import array

import pytest
from msgspec.structs import replace

from analyzers.remediation.checkpoint_saves import SEEN_SECONDS, SaveDetector
from collectors.records import Frame, Ring, StackDump, Thread
from service.packaged_knowledge import load
from tests.support.watched_jobs import ring_record

NOW = 1_795_230_000.0
SAVING = SaveDetector(load())


def ring(now_in: str | None, *entries: tuple[str, float, float | None], at: float = NOW - 5.0, rank: int = 0) -> Ring:
    """Return a probe's ring: the phase that it is in, and what it entered in which phase, and left, seconds ago."""
    rows = [
        ("all_reduce", number, NOW - entered, None if left is None else NOW - left)
        for number, (_, entered, left) in enumerate(entries)
    ]
    made = ring_record(rank, at, rows, 2)
    strings = (*made.strings, *dict.fromkeys(phase for phase, _, _ in entries))
    phases = array("i", [strings.index(phase) for phase, _, _ in entries]).tobytes()
    return replace(made, phase=now_in, strings=strings, columns=made.columns | {"phase": phases})


def test_a_save_in_which_nothing_is_entered_is_seen() -> None:
    """A rank that writes its shard alone is in the phase and in no collective: it saves since it left the last one."""
    assert SAVING.since([ring("checkpoint", ("backward", 30.0, 20.0))], NOW) == pytest.approx(NOW - 20.0)
    assert SAVING.since([ring("save")], NOW) == NOW - 5.0


def test_a_save_begins_with_what_was_first_entered_in_it() -> None:
    """Two barriers within the phase: it lasts since the first."""
    entries = (("optimizer", 60.0, 50.0), ("checkpoint", 40.0, 35.0), ("checkpoint", 30.0, None))

    assert SAVING.since([ring("checkpoint", *entries)], NOW) == pytest.approx(NOW - 40.0)


def test_a_save_that_is_over_is_none() -> None:
    """The last collective was the save's, and the rank has gone on to the next phase, or to none, since."""
    entries = (("checkpoint", 40.0, 35.0),)

    assert SAVING.since([ring("forward", *entries)], NOW) is None
    assert SAVING.since([ring(None, *entries)], NOW) is None


def test_of_several_ranks_the_last_that_saves_counts_and_an_old_look_does_not() -> None:
    """The newest ring of a rank is what counts of it; one that was read too long ago says nothing of now."""
    looks = [ring("checkpoint", ("forward", 30.0, 20.0)), ring("checkpoint", ("forward", 60.0, 50.0), rank=1)]
    assert SAVING.since(looks, NOW) == pytest.approx(NOW - 20.0)
    assert SAVING.since([looks[0], ring("forward", at=NOW - 1.0)], NOW) is None
    assert SAVING.since([replace(looks[0], at=NOW - SEEN_SECONDS - 1.0)], NOW) is None
    assert SAVING.since([replace(looks[0], ended=True)], NOW) is None


@pytest.mark.parametrize("ahead", [60.0, 3e9])
def test_no_save_begins_in_the_future(ahead: float) -> None:
    """A reading, or what it tells of, is dated later than now: the rank saves since now, and that ends like any other."""
    assert SAVING.since([ring("checkpoint", ("forward", 1.0 - ahead, -ahead))], NOW) == NOW
    assert SAVING.since([ring("checkpoint", at=NOW + ahead)], NOW) == NOW


def test_one_wrong_clock_does_not_end_the_wait_for_all() -> None:
    """A rank that says that it saves for an hour does not hide another that began twenty seconds ago."""
    looks = [ring("checkpoint", ("forward", 4_001.0, 4_000.0), rank=1), ring("checkpoint", ("forward", 30.0, 20.0))]
    assert SAVING.since(looks, NOW) == pytest.approx(NOW - 20.0)


def test_a_stack_in_a_save_counts_without_a_probe() -> None:
    """A training thread below save_checkpoint saves since the first look that found it so; one that computes does not."""
    frames = (
        Frame(function="write", file="/usr/lib/python3/pickle.py"),
        Frame(function="save_checkpoint", file="train.py"),
    )
    looks = [
        StackDump(node="n", pid=7, rank=0, at=NOW - ago, threads=(Thread(name="MainThread", frames=frames),))
        for ago in (70.0, 10.0)
    ]
    computing = replace(
        looks[0], threads=(Thread(name="MainThread", frames=(Frame(function="matmul", file="model.py"),)),)
    )

    assert SAVING.since(looks, NOW) == NOW - 70.0
    assert SAVING.since([computing], NOW) is None
