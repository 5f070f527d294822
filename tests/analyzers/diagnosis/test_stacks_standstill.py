"""Stacks in files, of which no record says that the job stood still: ranks may move between two sets."""

from __future__ import annotations

import struct
from math import nan

import pytest

from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import STEP_COLUMNS, Record, StackDump, Steps
from service.packaged_knowledge import load
from service.reports.story import headlines
from tests.support.live_records import columns
from tests.support.stack_claims import KNOWLEDGE, dump, suspects

FIRST, SECOND = 1_700_000_000.0, 1_700_000_015.0
HUNG = ("gradient", "gradient", "loader", "gradient")


def taken(at: float, *ranks: str) -> list[StackDump]:
    """Return one set of stacks of files that were written at an instant."""
    return [dump(rank, stack, at=at, source=f"stacks_{at:.0f}_rank{rank}.json") for rank, stack in enumerate(ranks)]


def logged(*at: float) -> Steps:
    """Return the steps of a log in a folder."""
    columns = {"step": struct.pack(f"<{len(at)}q", *range(len(at))), "at": struct.pack(f"<{len(at)}d", *at)}
    return Steps(count=len(at), columns=columns, step=len(at) - 1, source="train.log")


def found(*records: Record) -> list[Finding]:
    """Analyze a folder of a job of four ranks."""
    return list(analyze(Window(records=records), Topology((0, 1, 2, 3)), KNOWLEDGE))


def headline(*records: Record) -> str:
    """Return what is said first of a folder."""
    return str(headlines(judge(Window(records=records), Topology((0, 1, 2, 3)), KNOWLEDGE))[0])


@pytest.mark.parametrize(("zone", "hung"), [(0, 3000), (3600, 3000), (3600, 2600), (19800, 19200), (28800, 28200)])
def test_a_log_of_an_unknown_zone_does_not_clear_a_hang(zone: int, hung: int) -> None:
    """Steps that seem to follow the stacks may be from before the hang: no record shows the zone of a log's stamps."""
    log = logged(*(FIRST - hung + zone - 3.0 * back for back in range(400, -1, -1)))
    assert suspects(found(*taken(FIRST, *HUNG), log)) == [2]


def test_a_rank_that_left_a_wait_between_two_sets_is_not_named() -> None:
    """It waited as the others do, and what it waited for has come: the job went on in between."""
    went_on = found(*taken(FIRST, "gradient", "gradient", "gradient", "gradient"), *taken(SECOND, *HUNG))
    stuck = found(*taken(FIRST, *HUNG), *taken(SECOND, *HUNG))

    assert (suspects(went_on), suspects(stuck)) == ([], [2])
    assert any(
        "rank 2 waited in one set of stacks and no longer in the next" in m for one in went_on for m in one.missing
    )


@pytest.mark.parametrize(("seconds", "named"), [(0.01, [2]), (45.0, []), (600.0, [2])])
def test_a_rank_that_left_a_wait_long_before_may_hold_the_job_up_since(seconds: float, named: list[int]) -> None:
    """Of two sets ten minutes apart, the first may be of the job that ran, and the next of its hang. A copy hides how far."""
    first = taken(FIRST, "gradient", "gradient", "gradient", "gradient")
    assert suspects(found(*first, *taken(FIRST + seconds, *HUNG))) == named


def test_a_rank_that_moves_between_two_sets_may_only_take_long() -> None:
    """It is the one that the others wait for; whether it ever comes is not shown, and the headline says so."""
    moving = [*taken(FIRST, "gradient", "gradient", "compute", "gradient"), *taken(SECOND, *HUNG)]
    stuck = [*taken(FIRST, *HUNG), *taken(SECOND, *HUNG)]

    assert headline(*moving).startswith("Rank 2 holds the job up if it stands still: ")
    assert headline(*stuck).startswith("Rank 2 hangs the job: ")
    (claim,) = found(*moving)
    assert "rank 2 moved between the sets" in claim.assumes


def test_ranks_that_are_alike_in_two_sets_of_files_may_be_at_work() -> None:
    """A healthy job is found twice in the line that takes the longest: its code is blamed only if it stands still."""
    alike = ("compute",) * 4
    verdict = judge(Window(records=(*taken(FIRST, *alike), *taken(SECOND, *alike))), Topology((0, 1, 2, 3)), KNOWLEDGE)

    assert str(headlines(verdict)[0]).startswith("The code (not a machine) holds the job up if it stands still: ")
    assert any(one.what.startswith("whether the job stands still") for one in verdict.missing)


@pytest.mark.parametrize("sets", [1, 2])
def test_a_second_set_is_asked_for_where_one_was_given(sets: int) -> None:
    """Ranks that compile in two sets, and moved in between, were looked at twice."""
    looks = [*taken(FIRST, *("torch_loader",) * 4), *taken(SECOND, *("loader",) * 4)][: 4 * sets]
    asked = [missing for one in found(*looks) for missing in one.missing]
    assert any("second set of stacks" in one for one in asked) == (sets == 1)


def test_beside_a_loss_that_is_no_number_nobody_asks_whether_it_stands_still() -> None:
    """What one set of stacks leaves open is no question of a job whose numbers are wrong."""
    numbers = {
        "step": [1, 2, 3],
        "at": [FIRST - 9.0, FIRST - 6.0, FIRST - 3.0],
        "loss": [2.0, nan, nan],
        "nan": [0, 1, 1],
    }
    rest = {name: [0] * 3 for name in STEP_COLUMNS if name not in numbers}
    steps = Steps(source="train.log", told_by="plain", count=3, columns=columns(STEP_COLUMNS, **numbers, **rest))
    stacks = taken(FIRST, *("compute",) * 4)
    topology = Topology((0, 1, 2, 3))

    alone = judge(Window(records=tuple(stacks)), topology, KNOWLEDGE)
    beside = judge(Window(records=(*stacks, steps)), topology, KNOWLEDGE)

    assert (alone.symptom, beside.symptom) == ("unknown", "numeric")
    assert [any("leave the place" in one.what for one in verdict.missing) for verdict in (alone, beside)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(("sets", "asked"), [(1, "a second set of stacks, later"), (2, "a later set of stacks")])
def test_a_pause_of_unknown_length_asks_for_a_set_that_was_not_given(sets: int, asked: str) -> None:
    """Two sets that find a rank in its checkpoint are two."""
    saves = ("gradient", "gradient", "checkpoint", "gradient")
    looks = [*taken(FIRST, *saves), *taken(SECOND, *saves)][: 4 * sets]
    verdict = judge(Window(records=tuple(looks)), Topology((0, 1, 2, 3)), load())
    (missing,) = (one.what for one in verdict.missing if "set of stacks" in one.what)
    assert missing.endswith(asked)
