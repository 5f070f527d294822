"""Fewer dumps never make a bolder verdict: of the same job, with some files lost, no rank is named that all files acquit."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from collectors.records import FlightRecorderDump, Group
from service.packaged_knowledge import load
from tests.support.hand_made import call, calls, dated, dump, group
from tests.support.labelled_dumps import folders
from tests.support.waits_alone import evicting

EXAMPLE = Path(__file__).parents[3] / "examples" / "hung_job"
LABELLED_SUBSETS = 80
EVEN_ODDS = 0.5
HAND_MADE_JOBS, HAND_MADE_SUBSETS = 120, 12
CHECKED_JOBS, TESTED_JOBS = 12, 24  # in `make check`, in `make test`; the rest in `make acceptance`
LISTED = (group("0", *range(8), description="default_pg"),)


def marks_of(seed: int) -> list[pytest.MarkDecorator]:
    """Return which runs leave out the job of this seed."""
    if seed < CHECKED_JOBS:
        return []
    return [pytest.mark.system if seed < TESTED_JOBS else pytest.mark.acceptance]


def dumps_of(paths: Iterable[Path]) -> list[FlightRecorderDump]:
    """The flight-recorder dumps of these files, by rank."""
    found = [record for record in read_paths(sorted(paths)) if isinstance(record, FlightRecorderDump)]
    return sorted(found, key=lambda dump: dump.rank or 0)


def verdict_on(dumps: Sequence[FlightRecorderDump]) -> Verdict:
    """What is made of these dumps alone."""
    window = Window.build(dated(dumps))
    with evicting():  # what is asked is whether fewer dumps would evict more
        return judge(window, infer(window), load())


def named(verdict: Verdict) -> frozenset[int]:
    """All ranks that a verdict names."""
    return frozenset(rank for culprit in verdict.culprits for rank in culprit.ranks)


def replaced(verdict: Verdict) -> frozenset[int]:
    """The ranks that the action would replace."""
    return frozenset(verdict.action.ranks) if verdict.action.kind == "evict" else frozenset()


def accused(verdict: Verdict, dumped: Collection[int]) -> frozenset[int]:
    """The ranks named as at least as likely guilty as not, without those named, to be probed, for having left no dump.

    That is the one exception that docs/decisions/0007 admits: these are never evicted, and no more than a third of all.
    """
    likely = {rank for culprit in verdict.culprits if culprit.probability >= EVEN_ODDS for rank in culprit.ranks}
    return frozenset(likely.intersection(dumped))


def is_bolder(verdict: Verdict, dumped: Collection[int], whole: Verdict) -> bool:
    """Whether a verdict on these ranks' dumps evicts or names a rank that the whole does not.

    Where the whole names ranks, the fewer dumps may also name a larger set that holds them all.
    """
    part, full = accused(verdict, dumped), named(whole)
    larger = not whole.abstained and full & frozenset(dumped) <= part and verdict.action.kind != "evict"
    return not replaced(verdict) <= replaced(whole) & frozenset(dumped) or not (part <= full or larger)


def bolder(subsets: Iterable[tuple[FlightRecorderDump, ...]], whole: Verdict) -> list[tuple[list[int], list[int]]]:
    """The subsets whose verdict accuses more than the whole does, with the ranks that it accuses."""
    found = []
    for subset in subsets:
        verdict = verdict_on(subset)
        dumped = [dump.rank for dump in subset if dump.rank is not None]
        if is_bolder(verdict, dumped, whole):
            found.append((dumped, sorted(accused(verdict, dumped) | replaced(verdict))))
    return found


def every_subset(dumps: Sequence[FlightRecorderDump]) -> list[tuple[FlightRecorderDump, ...]]:
    """All that may be left of these dumps where at least one is lost and one is not."""
    return [chosen for count in range(1, len(dumps)) for chosen in combinations(dumps, count)]


def some_subsets(dumps: Sequence[FlightRecorderDump], seed: int) -> list[tuple[FlightRecorderDump, ...]]:
    """Forty subsets of these dumps, drawn anew with each seed and the same in every run, and each with one dump lost."""
    subsets = every_subset(dumps)
    return [*random.Random(seed).sample(subsets, 40), *combinations(dumps, len(dumps) - 1)]


def idle(rank: int, world: Iterable[Group]) -> FlightRecorderDump:
    """The dump of a rank that ended three collectives and launched no other."""
    return dump(rank, calls(1, 2, 3), world)


def waiting(rank: int, world: Iterable[Group], operation: str = "all_reduce", state: int = 0) -> FlightRecorderDump:
    """The dump of a rank that waits in a fourth collective."""
    return dump(rank, [*calls(1, 2, 3), call(4, state, operation)], world)


@pytest.mark.parametrize("rank", [0, 2, 4, 6])
def test_a_lone_waiting_dump_names_nobody(rank: int) -> None:
    """One dump that waits shows a hang and not whose: the verdict abstains and says whose dumps would decide."""
    verdict = verdict_on(dumps_of([EXAMPLE / f"fr_rank{rank}.json"]))

    assert (verdict.symptom, verdict.cause, verdict.abstained, verdict.culprits) == ("hang", "unknown", True, ())
    assert any(item.matters and f"group {5 + rank // 2} (mesh_dp)" in item.what for item in verdict.missing)


@pytest.mark.system  # seconds
def test_every_subset_of_the_example_is_no_bolder_than_the_whole() -> None:
    """All 255 subsets of the eight dumps of examples/hung_job, whose members gloo does not list."""
    dumps = dumps_of(EXAMPLE.glob("fr_rank*.json"))

    assert bolder(every_subset(dumps), verdict_on(dumps)) == []


@pytest.mark.system  # seconds
def test_subsets_of_labelled_dumps_are_no_bolder_than_the_whole(corpus: Path) -> None:
    """Each dump of a real hung job alone, each one lost, and many subsets of any size."""
    for folder in folders(corpus):
        dumps = dumps_of(folder.glob("_dump_*"))
        draw = random.Random(folder.name)
        subsets = [*combinations(dumps, 1), *combinations(dumps, len(dumps) - 1)]
        sizes = [draw.randrange(2, len(dumps)) for _ in range(LABELLED_SUBSETS)]
        subsets += [tuple(draw.sample(dumps, size)) for size in sizes]
        whole = verdict_on(dumps)

        assert bolder(subsets, whole) == []
        alone = [dump.rank for dump in dumps if not verdict_on([dump]).abstained]
        assert alone == []


def test_a_majority_of_the_few_that_left_dumps_is_no_majority() -> None:
    """Two ranks that call another operation outnumber the one peer whose dump is here: none of them is named."""
    world = (group("0", *range(8), description="default_pg"),)
    dumps = [dump(rank, [call(4, 0, "barrier" if rank < 2 else "all_reduce")], world) for rank in range(8)]

    assert named(verdict_on(dumps)) == {0, 1}
    assert verdict_on(dumps[:3]).abstained


def test_a_rank_without_a_dump_is_no_suspect_where_most_left_none() -> None:
    """One of eight left no dump, and is the one that all wait for; five of eight left none, and nobody is named."""
    world = (group("0", *range(8), description="default_pg"),)
    dumps = [dump(rank, [*calls(3), call(4, 0)], world) for rank in range(8)]

    assert named(verdict_on(dumps[:7])) == {7}
    few = verdict_on(dumps[:3])
    assert few.abstained
    assert any("ranks 3-7 would decide" in item.what for item in few.missing)


@pytest.mark.parametrize("guilty", [1, *(pytest.param(guilty, marks=pytest.mark.system) for guilty in range(2, 8))])
def test_lost_dumps_never_make_idle_ranks_few_enough_to_evict(guilty: int) -> None:
    """Of eight listed ranks the last few stand still: where they are too many to blame, they are so without some dumps."""
    dumps = [idle(rank, LISTED) if rank >= 8 - guilty else waiting(rank, LISTED) for rank in range(8)]
    whole = verdict_on(dumps)

    assert bolder(some_subsets(dumps, guilty), whole) == []
    assert whole.abstained == (guilty > 4)


def test_idle_ranks_that_may_share_a_cause_are_probed_and_not_evicted() -> None:
    """Two of eight stand still and three left no dump: with those they would be most of the job."""
    dumps = [idle(rank, LISTED) if rank in (3, 4) else waiting(rank, LISTED) for rank in range(8)]

    assert verdict_on(dumps).action.kind == "evict"
    fewer = verdict_on(dumps[:5])
    assert (named(fewer), fewer.action.kind) == ({3, 4}, "probe")
    assert all(culprit.probability < EVEN_ODDS for culprit in fewer.culprits)


def test_idle_ranks_of_a_job_of_unknown_size_are_never_evicted() -> None:
    """No dump lists the members: that ranks 3-7 stand still does not show in the dumps of ranks 0, 1 and 3."""
    unlisted = (group("0"),)
    dumps = [idle(rank, unlisted) if rank >= 3 else waiting(rank, unlisted) for rank in range(8)]

    assert verdict_on(dumps).abstained
    assert [replaced(verdict_on(subset)) for subset in some_subsets(dumps, 1) if replaced(verdict_on(subset))] == []


def test_a_majority_that_the_lost_dumps_could_turn_decides_nothing() -> None:
    """Three ranks call another operation than five: where three of the five left no dump, the two are not the odd ones."""
    dumps = [waiting(rank, LISTED, "all_reduce" if rank in (2, 3, 4) else "barrier") for rank in range(8)]
    whole = verdict_on(dumps)

    assert named(whole) == {2, 3, 4}
    assert verdict_on(dumps[:5]).abstained
    assert verdict_on(dumps[:7]).abstained  # four against three, and the eighth might make it even
    assert bolder(some_subsets(dumps, 2), whole) == []


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=marks_of(seed)) for seed in range(HAND_MADE_JOBS)])
def test_subsets_of_hand_made_jobs_are_no_bolder_than_the_whole(seed: int) -> None:
    """Listed jobs of several sizes, with or without pairs, whose odd ranks are idle, call another operation, or both."""
    draw = random.Random(seed)
    size = draw.choice((4, 6, 8, 12))
    world = [group("0", *range(size), description="default_pg")]
    if draw.random() < 0.4:
        pairs = range(0, size, 2)
        world += [group(f"tp{rank}", rank, rank + 1, description="TENSOR_MODEL_PARALLEL_GROUP") for rank in pairs]
    kind = draw.choice(("idle", "called", "scheduled", "mixed"))
    odd = draw.sample(range(size), draw.randrange(1, size))
    dumps = []
    for rank in range(size):
        if rank in odd and (kind == "idle" or (kind == "mixed" and draw.random() < 0.5)):
            dumps.append(idle(rank, world))
        else:
            operation = "barrier" if rank in odd and kind in ("called", "mixed") else "all_reduce"
            dumps.append(waiting(rank, world, operation, state=int(kind == "scheduled" and rank not in odd)))
    kept = [sorted(draw.sample(range(size), draw.randrange(1, size))) for _ in range(HAND_MADE_SUBSETS)]

    assert bolder((tuple(dumps[rank] for rank in ranks) for ranks in kept), verdict_on(dumps)) == []
