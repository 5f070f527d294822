"""A pause that all ranks are in excuses none of them: what distinguishes the rank that the others wait for decides."""

from __future__ import annotations

import pytest

from analyzers.model.verdict import Verdict
from collectors.records import Frame, Record, StackDump, Thread
from tests.support.live_hangs import TRAIN, Hang, named, verdict

DISTRIBUTED = "/x/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/x/site-packages/torch/utils/data/dataloader.py"
SERIALIZATION = "/x/site-packages/torch/serialization.py"
EVALUATE = (Frame("evaluate", "/srv/eval.py", 31), *TRAIN)
SAVE = (Frame("save_checkpoint", "/srv/save.py", 31), *TRAIN)
LOADING = (Frame("_try_get_data", LOADER), Frame("_next_data", LOADER), Frame("__next__", LOADER))
FORWARD = (Frame("forward", "/srv/model.py", 5), Frame("_call_impl", "/x/site-packages/torch/nn/modules/module.py"))
WRITING = (Frame("_save", SERIALIZATION), Frame("save", SERIALIZATION))


def calling(name: str, outer: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A wait in communication below these frames."""
    return (Frame(name, DISTRIBUTED), *outer)


def pasted(stacks: dict[int, tuple[Frame, ...]], rounds: int | None = None) -> Verdict:
    """The verdict on one stack a rank, as files have it."""
    records: list[Record] = [
        StackDump(source=f"rank{rank}.txt", rank=rank, tool="py-spy", pid=500 + rank,
                  threads=(Thread(frames=frames, main=True),))
        for rank, frames in stacks.items()
    ]  # fmt: skip
    return verdict(records, rounds)


def others(
    outer: tuple[Frame, ...], but: int, name: str = "all_gather", ranks: int = 16
) -> dict[int, tuple[Frame, ...]]:
    """All ranks but one wait below these frames, most in a collective and some in a receive."""
    return {rank: calling("recv" if rank % 5 == 4 else name, outer) for rank in range(ranks) if rank != but}


def classes(found: Verdict) -> list[str]:
    """The classes of the roots."""
    return [root.fault_class for root in found.roots]


@pytest.mark.parametrize(
    "inner", [(), (Frame("eval_step", "/srv/eval.py", 60),)], ids=["at once", "in an inner function"]
)
@pytest.mark.parametrize("rank", [0, 11])
def test_a_data_loader_below_a_shared_evaluation_is_named(rank: int, inner: tuple[Frame, ...]) -> None:
    """Fifteen wait in collectives or a receive of the evaluation, and one for its data loader."""
    found = pasted({**others(EVALUATE, rank), rank: (*LOADING, *inner, *EVALUATE)})

    assert (named(found), classes(found)) == ([rank], ["stuck_data_loader"])
    assert (found.action.kind, found.symptom) == ("probe", "hang")
    assert "data loader" in found.culprits[0].why


@pytest.mark.parametrize("inner", [(), WRITING], ids=["before it writes", "in the file's writer"])
@pytest.mark.parametrize("call", ["fsync", "__libc_write"])
def test_a_file_system_below_a_shared_checkpoint_is_named(call: str, inner: tuple[Frame, ...]) -> None:
    """All save their shards; fifteen are done, and one does not come back from a call of its file system."""
    found = pasted({**others(SAVE, 9, "barrier"), 9: (Frame(call, "libc.so.6"), *inner, *SAVE)})

    assert (named(found), classes(found), found.action.kind) == ([9], ["stuck_storage"], "probe")


@pytest.mark.parametrize(
    ("stacks", "kind"),
    [
        ({**others(EVALUATE, 6), 6: (*FORWARD, *EVALUATE)}, "pause_evaluation"),
        ({**others(SAVE, 0, "barrier"), 0: (Frame("fsync", "libc.so.6"), *WRITING, *SAVE)}, "pause_checkpoint"),
        ({**others(SAVE, 0, "barrier"), 0: (*WRITING, *SAVE)}, "pause_checkpoint"),
        ({**others(TRAIN, 3, "barrier"), 3: (Frame("fsync", "libc.so.6"), *WRITING, *SAVE)}, "pause_checkpoint"),
        ({**others(TRAIN, 3), 3: (*LOADING, *EVALUATE)}, "pause_evaluation"),
        ({**others(EVALUATE, 0), 0: (Frame("open", "/usr/lib/python3.11/pathlib.py"), *EVALUATE)}, "pause_evaluation"),
    ],
    ids=[
        "one is slow in its shard", "rank 0 saves for all", "rank 0 writes", "it alone saves", "it alone evaluates",
        "rank 0 writes the results",
    ],
)  # fmt: skip
def test_a_pause_that_explains_the_wait_is_one(stacks: dict[int, tuple[Frame, ...]], kind: str) -> None:
    """One rank that evaluates longer, or does alone what a pause consists of, is at no fault."""
    found = pasted(stacks)
    assert (named(found), classes(found), found.action.kind) == ([], [kind], "none")


def test_all_that_compute_in_an_evaluation_are_at_no_fault() -> None:
    """No rank waits for another."""
    found = pasted(dict.fromkeys(range(16), (*FORWARD, *EVALUATE)))
    assert (named(found), found.action.kind) == ([], "none")


def test_a_live_rank_in_a_shared_evaluation_is_not_evicted() -> None:
    """Two rounds find it in its data loader: a large shard looks the same, so it is named and tested."""
    waits = calling("all_reduce", EVALUATE)
    stuck, loading = Hang(), (*LOADING, *EVALUATE)
    records = [
        StackDump(**{**fields(record), "threads": (Thread(frames=loading if record.rank == 2 else waits, main=True),)})
        if isinstance(record, StackDump)
        else record
        for record in stuck.records()
    ]
    found = verdict(records, 4)
    assert (named(found), found.action.kind) == ([2], "probe")


def fields(record: Record) -> dict[str, object]:
    """The fields of a record."""
    return {name: getattr(record, name) for name in record.__struct_fields__}
