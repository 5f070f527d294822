"""Fewer dumps never make a bolder verdict: of the same job, with some files lost, no rank is named that all files acquit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from collectors.records import FlightRecorderDump
from service.packaged_knowledge import load
from tests.support.hand_made import call, calls, dump, group
from tests.support.labelled_dumps import folders

EXAMPLE = Path(__file__).parents[3] / "examples" / "hung_job"
LABELLED_SUBSETS = 80


def dumps_of(paths: Iterable[Path]) -> list[FlightRecorderDump]:
    """The flight-recorder dumps of these files, by rank."""
    found = [record for record in read_paths(sorted(paths)) if isinstance(record, FlightRecorderDump)]
    return sorted(found, key=lambda dump: dump.rank or 0)


def verdict_on(dumps: Sequence[FlightRecorderDump]) -> Verdict:
    """What is made of these dumps alone."""
    window = Window.build(dumps)
    return judge(window, infer(window), load())


def named(verdict: Verdict) -> frozenset[int]:
    """All ranks that a verdict names."""
    return frozenset(rank for culprit in verdict.culprits for rank in culprit.ranks)


def replaced(verdict: Verdict) -> frozenset[int]:
    """The ranks that the action would replace."""
    return frozenset(verdict.action.ranks) if verdict.action.kind == "evict" else frozenset()


def bolder(subsets: Iterable[tuple[FlightRecorderDump, ...]], whole: Verdict) -> list[tuple[list[int | None], ...]]:
    """The subsets whose verdict accuses more than the whole does: others, or with an eviction that the whole withholds."""
    found = []
    for subset in subsets:
        verdict = verdict_on(subset)
        part = named(verdict)
        if not (part <= named(whole) or part >= named(whole)) or not replaced(verdict) <= replaced(whole):
            found.append(([dump.rank for dump in subset], sorted(part)))
    return found


@pytest.mark.parametrize("rank", [0, 2, 4, 6])
def test_a_lone_waiting_dump_names_nobody(rank: int) -> None:
    """One dump that waits shows a hang and not whose: the verdict abstains and says whose dumps would decide."""
    verdict = verdict_on(dumps_of([EXAMPLE / f"fr_rank{rank}.json"]))

    assert (verdict.symptom, verdict.cause, verdict.abstained, verdict.culprits) == ("hang", "unknown", True, ())
    assert any(item.matters and f"group {5 + rank // 2} (mesh_dp)" in item.what for item in verdict.missing)


def test_every_subset_of_the_example_is_no_bolder_than_the_whole() -> None:
    """All 255 subsets of the eight dumps of examples/hung_job, whose members gloo does not list."""
    dumps = dumps_of(EXAMPLE.glob("fr_rank*.json"))
    subsets = [chosen for count in range(1, len(dumps)) for chosen in combinations(dumps, count)]

    assert bolder(subsets, verdict_on(dumps)) == []


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
