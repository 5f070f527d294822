"""Replicas whose hashes disagree: the one that left is tested, and what is no corruption accuses no rank."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import HASH_COLUMNS, Members, Placement, Record, Ring
from tests.support.live_hangs import KNOWLEDGE, named, verdict
from tests.support.live_records import columns

AT_NS, STEP_NS = 1_760_000_000_000_000_000, 100_000_000
STEPS = 20
Hash = Callable[[int, int], int]  # of a rank and a step


def same(_rank: int, step: int) -> int:
    """Return what every replica holds after a step."""
    return 1000 + step


def leaves(*culprits: tuple[int, int]) -> Hash:
    """Return hashes of ranks that leave the others for good at their step."""
    onsets = dict(culprits)
    return lambda rank, step: same(rank, step) + (10_000 * (rank + 1) if step >= onsets.get(rank, STEPS + 1) else 0)


def ring(rank: int, steps: list[int], hashes: list[int], at_ns: list[int] | None = None, first: int = 1) -> Ring:
    """Return the ring of a rank on a node of its own, as its agent sends it."""
    ends = at_ns or [AT_NS + step * STEP_NS for step in steps]
    rows = {"number": list(range(first, first + len(steps))), "step": steps, "ended_ns": ends, "hash": hashes}
    return Ring(
        source=f"ring/{rank}", at=AT_NS / 1e9 + 60, node=f"gpu-{rank}", job="llama", attempt=1, rank=rank, pid=100 + rank,
        boot_id="b", hashed=len(steps), hashes=columns(HASH_COLUMNS, **rows),
    )  # fmt: skip


def job(of: Hash, ranks: int = 4, steps: range = range(1, STEPS + 1)) -> list[Record]:
    """Return the rings of a job."""
    return [ring(rank, list(steps), [of(rank, step) for step in steps]) for rank in range(ranks)]


def placed(ranks: int = 4) -> list[Record]:
    """Return where each rank is, as agents report it."""
    return [
        Placement(
            node=f"gpu-{rank}", job="llama", attempt=1, source="placement", at=AT_NS / 1e9, boot_id="b",
            ranks=Members.of([rank]), nodes=(f"gpu-{rank}",), pids=(100 + rank,), world_size=ranks,
        )
        for rank in range(ranks)
    ]  # fmt: skip


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("looks", [None, 1, 4])
def test_the_replica_that_leaves_is_tested(rank: int, looks: int | None) -> None:
    """By files and live; never an eviction, whichever rank it is."""
    found = verdict([*placed(), *job(leaves((rank, 9)))], looks)

    assert (named(found), found.symptom, found.cause) == ([rank], "numeric", "machine")
    assert (found.action.kind, found.action.nodes) == ("probe", (f"gpu-{rank}",))
    assert found.onset == "2025-10-09T08:53:20.900Z"  # the end of step 9


def test_the_newest_reading_that_an_engine_keeps_is_enough() -> None:
    """Each reading repeats the hashes before it: with a reading lost the rank is still named."""
    parts = [
        ring(rank, list(steps), [leaves((1, 12))(rank, step) for step in steps], first=steps.start)
        for rank in range(3)
        for steps in (range(1, 15), range(8, 21))
    ]

    assert named(verdict(parts, 1)) == [1]
    assert named(verdict(parts[1::2], 1)) == [1]


def test_replicas_among_shards_are_found() -> None:
    """Two stages of four replicas: a rank of the second stage left its own, and the first stage's are no witnesses."""
    hashes = leaves((6, 9))
    found = verdict(job(lambda rank, step: hashes(rank, step) + 100_000 * (rank // 4), 8), None)

    assert named(found) == [6]


def test_two_that_left_at_different_steps_are_both_tested() -> None:
    """Each left a majority."""
    assert named(verdict(job(leaves((1, 9), (5, 14)), 8), None)) == [1, 5]


def test_of_two_either() -> None:
    """Neither is more likely, and no node is evicted."""
    found = verdict([*placed(2), *job(leaves((1, 9)), 2)], 1)

    assert (named(found), found.culprits[0].kind, found.action.kind) == ([0, 1], "group", "probe")


@pytest.mark.parametrize("odd", [{0, 1, 2, 3}, {1, 2, 3}, {0, 1}], ids=["all", "all but one", "half"])
def test_replicas_that_go_apart_are_the_program_s(odd: set[int]) -> None:
    """Where no majority is left, no machine is named; in a running job it may be meant."""
    records = job(leaves(*((rank, 9) for rank in odd)))

    found = verdict(records, None)
    assert (named(found), found.cause, found.action.kind) == ([], "code", "none")
    assert verdict(records, 1).culprits == ()


def test_several_that_leave_together_are_the_program_s() -> None:
    """Two of eight at one step: machines do not break together."""
    found = verdict(job(leaves((1, 9), (5, 9)), 8), None)

    assert (named(found), found.cause) == ([], "code")


def test_the_first_rank_of_every_group_is_the_program_s() -> None:
    """Four groups of four, in each of which the first left: a program that averages weights there, and no four machines."""
    hashes = leaves(*((rank, 9) for rank in range(0, 16, 4)))
    records = [*placed(16), *job(lambda rank, step: hashes(rank, step) + 10**9 * (rank // 4), 16)]

    found = verdict(records, None)
    assert (named(found), found.cause, found.action.kind) == ([], "code", "none")
    assert verdict(records, 1).culprits == ()


def _slid(step: int) -> list[Record]:
    """A rank that repeated three steps alone, whose steps are counted on: its numbers are of other steps since."""
    steps = list(range(1, STEPS + 1))
    hashes = [same(2, one if one < step else one - 3) for one in steps]
    return [*job(same, 2), ring(2, steps, hashes), *job(same, 4)[3:]]


def _slid_unseen(step: int) -> list[Record]:
    """The same where hashes are taken so rarely that no other rank hashed those steps."""
    steps = list(range(10, 201, 10))
    odd = [same(2, one) if one < step * 10 else 7_000_000 + one for one in steps]
    at_ns = [AT_NS + (one if one < step * 10 else one - 3) * STEP_NS for one in steps]
    others = [ring(rank, steps, [same(rank, one) for one in steps]) for rank in (0, 1, 3)]
    return [*others, ring(2, steps, odd, at_ns)]


def _restarted() -> list[Record]:
    """A rank that began again from an older checkpoint counts from that step, and is not level with the others yet."""
    steps = [*range(1, 21), *range(11, 16)]
    hashes = [*(same(2, one) for one in range(1, 21)), *(9_000_000 + one for one in range(11, 16))]
    ends = [AT_NS + number * STEP_NS for number in range(len(steps))]
    return [*job(same, 2), ring(2, steps, hashes, ends), *job(same, 4)[3:]]


def _drawn(rank: int, step: int) -> int:
    return random.Random(1000 * step + rank).getrandbits(60)


SOUND: dict[str, list[Record]] = {
    "no flip": job(same),
    "no rank is like another": job(_drawn),
    "one alone": job(same, 1),
    "new parameters on all": job(lambda _rank, step: same(0, step) + (step >= 9) * 500_000),
    "the same seed, then shards": job(lambda rank, step: 77 if step < 4 else _drawn(rank, step)),
    "the same seed, and one shard is updated": job(lambda rank, step: 77 if rank < 3 or step < 9 else 8000 + step),
    "it came back": job(lambda rank, step: same(rank, step) + (rank == 2 and 9 <= step < 13)),
    "it came back, and left again": job(lambda rank, step: same(rank, step) + (rank == 2 and step >= 9 and step != 13)),
    "the newest step alone": job(leaves((2, STEPS))),
    "local steps, averaged every four": job(lambda rank, step: same(rank, step) + (step % 4 > 0) * 10_000 * rank),
    "pairs averaged, all every four": job(
        lambda rank, step: same(rank, step) + (step % 4 > 0) * 9_000 * (rank // 2), 5
    ),
    "averaged every four, of two": job(lambda rank, step: same(rank, step) + (step % 4 > 0) * 10_000 * rank, 2),
    "it counts otherwise": _slid(9),
    "it counts otherwise, hashed rarely": _slid_unseen(9),
    "it began again": _restarted(),
    "cut columns": [*job(same, 3), Ring(rank=3, hashed=2, hashes={"number": bytes(16), "hash": bytes(8)})],
}


@pytest.mark.parametrize("looks", [None, 1])
@pytest.mark.parametrize("name", SOUND)
def test_what_is_no_corruption_accuses_no_rank(name: str, looks: int | None) -> None:
    """Neither a rank nor the program."""
    assert verdict(SOUND[name], looks).culprits == ()


def test_the_order_of_records_and_skewed_clocks_change_nothing() -> None:
    """A node's clock may be an hour ahead: its steps are held against its own before."""
    ahead = 3600 * 10**9
    records = [*placed(), *job(leaves((2, 9)))]
    hashes = [leaves((2, 9))(2, step) for step in range(1, STEPS + 1)]
    skewed = ring(
        2, list(range(1, STEPS + 1)), hashes, [AT_NS + ahead + step * STEP_NS for step in range(1, STEPS + 1)]
    )
    records = [one for one in records if not (isinstance(one, Ring) and one.rank == 2)] + [skewed]

    for seed in range(3):
        random.Random(seed).shuffle(records)
        assert named(verdict(records, None)) == [2]


@pytest.mark.system
def test_sixteen_thousand_ranks_are_compared() -> None:
    """In 64 groups of 256 replicas the one that left is named, and no other."""
    hashes = leaves((777, 9))
    records = job(lambda rank, step: hashes(rank, step) + 10**9 * (rank % 64), 16_384)
    window = Window.build(records)

    found = judge(window, infer(window), KNOWLEDGE)

    assert named(found) == [777]
