"""The end of a job from outside says nothing of what held it up: the same is named before its end and after it."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge
from analyzers.model import topology
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict import judge
from collectors.files.reading import read_input, read_paths
from collectors.formats import Input
from collectors.records import Members, Placement, ProcessState, Record
from service.packaged_knowledge import load
from tests.support.argued_claims import HUNG, claim, decided, suspect

EXAMPLE = Path(__file__).parents[3] / "examples" / "hung_job"
ENDS = (
    "slurmstepd: error: *** JOB 9 ON gpu-0001 CANCELLED AT 2026-11-21T11:35:25 ***",
    "slurmstepd: error: *** JOB 9 ON gpu-0001 CANCELLED AT 2026-11-21T11:35:25 DUE TO TIME LIMIT ***",
    "W1121 11:35:25.000 410 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal, shutting down workers",
    "W1121 11:35:25.000 410 torch/distributed/elastic/agent/server/api.py:739] Received 2 death signal, shutting down workers",
)


def log(text: str, name: str = "launch.log") -> list[Record]:
    """The records of a log's text."""
    data = text.encode()
    return list(read_input(Input(name, io.BytesIO(data), data)))


@cache
def example(*kinds: str) -> tuple[Record, ...]:
    """The records of the hung job's files whose names begin so."""
    found = [path for path in sorted(EXAMPLE.iterdir()) if path.name.startswith(kinds)]
    return tuple(read_paths(found, workers=1))


def verdict_on(records: list[Record]) -> Verdict:
    """The verdict of ``diagnose``."""
    window = Window.build(records)
    return judge.judge(window, topology.infer(window), load())


def names(verdict: Verdict) -> tuple[object, ...]:
    """What an operator acts on."""
    return (verdict.symptom, verdict.cause, [(each.kind, each.id, each.ranks) for each in verdict.culprits])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kinds", [("fr_", "stacks_", "hosts", "ps", "rank"), ("fr_", "hosts"), ("stacks_", "hosts")])
def test_the_end_of_a_hung_job_leaves_its_diagnosis(kinds: tuple[str, ...], end: str) -> None:
    """With all its files, dumps alone, stacks alone: the verdict is that of the job before it was ended."""
    records = list(example(*kinds))
    before = verdict_on(records)

    assert before.culprits
    assert names(verdict_on([*records, *log(end)])) == names(before)


@pytest.mark.parametrize("end", ENDS)
def test_an_end_of_a_job_that_nothing_held_up_is_the_platform(end: str) -> None:
    """Of the log alone, that it was ended is all there is."""
    assert verdict_on(log(end)).cause == "platform"


def test_the_engine_judges_alike() -> None:
    """The judgement of a cut, as the service and a replay make it."""
    records = example("fr_", "stacks_", "hosts", "ps", "rank")
    cut = Cut(after=0, through=len(records) + 1, at=1_795_260_925.0, looks=2)
    made = [
        judge_cut(Judge(incident="inc-1", cut=cut, records=(*records, *more), attempt=None), load())
        for more in ([], log(ENDS[0]))
    ]
    before, after = (names(one.verdict) for one in made)

    assert before[1] != "platform"
    assert after == before


def test_processes_that_ended_follow_from_the_end() -> None:
    """In a table made while the job ends some processes are gone and others are not: no machine is evicted for it."""
    placed = Placement(source="hosts", ranks=Members.of(range(4)), nodes=("a", "a", "b", "b"), world_size=4)
    table: list[Record] = [
        ProcessState(source="ps.txt", rank=rank, node="ab"[rank // 2], pid=100 + rank, state="Z" if rank == 2 else "S")
        for rank in range(4)
    ]

    assert verdict_on([placed, *table]).cause == "machine"
    assert names(verdict_on([placed, *table, *log(ENDS[0])]))[1] == "platform"


def test_a_failed_device_is_the_root_of_a_job_that_was_then_ended() -> None:
    """An Xid before the end is what it was ended for, and the platform no second culprit."""
    lost = claim("hardware", "xid_79", suspect(5, node="n1"))
    end = claim("crash", "terminated", suspect(kind="platform", strength=0.7), cause="platform", symptom="crash")

    assert [culprit.ranks for culprit in decided(lost, end).culprits] == [(5,)]
    assert decided(end).cause == "platform"
    assert decided(HUNG, end).culprits == decided(HUNG).culprits
