"""Rings of the probe in a verdict: taken as of the right instant, they name whom gloo's flight recorder cannot."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from analyzers.model.rings import FRESH_SECONDS, with_rings
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.live import Request
from collectors.live.ring import RingCollector
from collectors.live.sources.host import Host
from collectors.records import RING_COLUMNS, FlightRecorderDump, Group, Members, Record, Ring, StackDump
from service.packaged_knowledge import load
from tests.support.hand_made import SCHEDULED, START_NS, Entry, dump
from tests.support.needs import needs_torch

START = START_NS / 1e9
STEPS = 10  # that the job did before rank 1 stopped between its receive and its send
READ_AT = 60.0  # seconds after the start
WORLD = Group("0", "default_pg", Members.of(range(3)))
Line = tuple[str, int, int, float, float | None]  # operation, collective, p2p, entered, left (seconds after the start)


def lines(rank: int) -> list[Line]:
    """Return what a rank of the pipeline 0 → 1 → 2 entered and left; in step 11 rank 1 sends nothing."""
    found: list[Line] = []
    for step in range(1, STEPS + 2):
        at, last = float(step), step > STEPS
        if rank > 0:
            waits = last and rank == 2
            found.append(
                (f"recv {rank}<-{rank - 1}", 0, step, at + 0.1 * rank, None if waits else at + 0.1 * rank + 0.05)
            )
        if rank < 2 and not (last and rank == 1):
            found.append((f"send {rank}->{rank + 1}", 0, step, at + 0.1 * rank + 0.06, at + 0.1 * rank + 0.08))
        if not last or rank == 0:
            found.append(("all_reduce", step, 0, at + 0.5, None if last else at + 0.6))
    return found


def ring(
    rank: int, found: Sequence[Line] | None = None, at: float = READ_AT, failed_at: float = 0.0, **more: object
) -> Ring:
    """Return a ring that was read ``at`` seconds after the start; what was inside failed at ``failed_at``, if given."""
    rows = lines(rank) if found is None else found
    strings = ("0", *dict.fromkeys(row[0] for row in rows))
    values = []
    for operation, collective, p2p, entered, left in rows:
        end = left or failed_at
        ns = (round((START + entered) * 1e9), round((START + end) * 1e9) if end else -1)
        values.append((0, collective, p2p, strings.index(operation), 32, *ns, -1, -1, int(left is None and end > 0)))
    kinds = {"<i1": "b", "<i4": "i", "<i8": "q"}
    columns = {
        name: array(kinds[kind], [row[place] for row in values]).tobytes()
        for place, (name, kind) in enumerate(RING_COLUMNS.items())
    }
    known = {"rank": rank, "pid": 100 + rank, "at": START + at, "source": f"/dev/shm/faulthound-0/{100 + rank}.ring"}
    shape = {"backend": "gloo", "groups": (WORLD,), "strings": strings, "count": len(rows), "columns": columns}
    return Ring(**{**known, **shape, **more})  # type: ignore[arg-type]


def gloo(rank: int, at: float = READ_AT) -> FlightRecorderDump:
    """Return what gloo's recorder has of the same rank: collectives only, and a counter that runs ahead of them."""
    entries = []
    for count, (operation, collective, p2p, entered, left) in enumerate(lines(rank), start=1):
        if not p2p:
            ended = {"retired": left is not None, "op_id": count, "at_s": entered, "timeout_ms": -1}
            entries.append(Entry(f"gloo:{operation}", collective, state=SCHEDULED, **ended))  # type: ignore[arg-type]
    return dump(rank, entries, [Group("0", "default_pg")], at=START + at)


RANKS = range(3)


def judged(records: Sequence[Record]) -> Verdict:
    """Return the verdict on these records."""
    window = Window.build(records)
    return judge(window, infer(window), load())


def named(verdict: Verdict) -> list[int]:
    """Return the ranks that a verdict names for certain."""
    return [rank for culprit in verdict.culprits if culprit.kind == "rank" for rank in culprit.ranks]


def test_gloos_dumps_leave_a_set_that_rings_decide() -> None:
    """The recorder shows ranks 1 and 2 behind; what rank 2 is still inside of says that it waits for rank 1."""
    dumps, rings = [gloo(rank) for rank in RANKS], [ring(rank) for rank in RANKS]

    without, verdict = judged(dumps), judged([*dumps, *rings])

    assert {rank for suspect in without.suspects for rank in suspect.ranks} >= {1, 2}
    assert (named(verdict), verdict.symptom, verdict.cause) == ([1], "hang", "machine")


def test_rings_alone_name_the_rank() -> None:
    """No recorder at all: the rings stand for the dumps."""
    verdict = judged([ring(rank) for rank in RANKS])

    assert (named(verdict), verdict.symptom) == ([1], "hang")


def test_files_of_rings_do_not_say_that_the_job_runs() -> None:
    """A copy is dated by its newest entry: how long the others wait is unknown, and stacks decide without it."""
    copies = [ring(rank, at=STEPS + 2, undated=True) for rank in RANKS]

    alone = judged(copies)
    beside = judged([*copies, *(StackDump(rank=rank, pid=100 + rank, source=f"{rank}.json") for rank in RANKS)])

    assert (alone.symptom, alone.cause, alone.action.kind, named(alone)) == ("unknown", "unknown", "none", [])
    assert "30 s later" in alone.missing[0].what
    assert beside.symptom != "healthy"
    assert not any("rings" in one.what for one in beside.missing)


def test_a_ring_stands_for_the_dump_that_a_rank_did_not_give() -> None:
    """Rank 1 is stopped and its recorder does not answer: its ring says what it had entered."""
    verdict = judged([gloo(0), gloo(2), *(ring(rank) for rank in RANKS)])

    assert named(verdict) == [1]


def test_a_dump_of_nccl_stays_as_it_is() -> None:
    """That recorder has sends, receives and states of its own: the ring adds nothing."""
    entries = [Entry("nccl:all_reduce", number) for number in (1, 2, 3)]
    dumps = tuple(dump(rank, entries, [WORLD], at=START + READ_AT) for rank in RANKS)

    assert with_rings(dumps, [ring(rank) for rank in RANKS]) == dumps


def test_without_rings_nothing_changes() -> None:
    """A bundle from before there were rings is judged as it was."""
    dumps = tuple(gloo(rank) for rank in RANKS)

    assert with_rings(dumps, []) == dumps


def test_rings_read_after_the_end_show_what_was_before_it() -> None:
    """The waits failed a minute later and nobody is inside any more: taken as of before that, the rings name rank 1."""
    late = [ring(rank, at=120.0, failed_at=90.0 + rank, ended=True) for rank in RANKS]

    verdict = judged(late)

    assert (named(verdict), verdict.symptom) == ([1], "hang")


def test_rings_read_after_the_dumps_are_taken_as_of_the_dumps() -> None:
    """What ended after the dump was taken had not ended then."""
    dumps = [gloo(rank) for rank in RANKS]
    later = [ring(rank, at=400.0, failed_at=300.0) for rank in RANKS]

    assert named(judged([*dumps, *later])) == [1]


def test_a_ring_from_long_before_tells_nothing() -> None:
    """Read when the job still ran, it neither adds to a dump nor stands for one."""
    early = [ring(rank, lines(rank)[:4], at=READ_AT - FRESH_SECONDS - 1) for rank in RANKS]

    merged = with_rings([gloo(0), gloo(2)], early)

    assert [(one.rank, one.count) for one in merged] == [(0, gloo(0).count), (2, gloo(2).count)]


def test_a_ring_that_was_still_moving_adds_nothing() -> None:
    """Read two seconds before the dump and in the middle of things, it does not know what the rank entered since."""
    moving = [ring(2, lines(2)[:-1], at=11.15)]

    merged = with_rings([gloo(rank, at=13.0) for rank in RANKS], moving)

    assert [one.count for one in merged] == [gloo(rank).count for rank in RANKS]


def test_the_ring_of_an_earlier_attempt_is_left_out() -> None:
    """Its file may have been read again: neither the attempt before nor the rank's process before is this one's."""
    attempts = [ring(rank, attempt=1) for rank in RANKS] + [ring(0, attempt=2)]
    processes = [ring(0, [("all_reduce", 1, 0, 100.0, None)], at=160.0, pid=7), ring(0, at=161.0)]

    assert [one.rank for one in Window.build(attempts).dumps] == [0]
    assert [(one.pid, one.count) for one in Window.build(processes).dumps] == [(7, 1)]


def test_what_a_ring_lacks_proves_nothing_where_collectives_went_by() -> None:
    """DDP's buckets are not in it: the dump that it stands for is marked as cut."""
    cut, whole = (with_rings([], [ring(0, unseen_groups=groups)])[0].truncated for groups in (("0",), ()))

    assert (cut, whole) == (True, False)


def test_other_words_for_the_same_collective_are_no_disagreement() -> None:
    """Gloo's recorder calls a reduce-scatter all_reduce, and counts elements: the ring takes its words."""
    said = [(name.replace("all_reduce", "_reduce_scatter_base"), *rest) for name, *rest in lines(1)]

    verdict = judged([gloo(0), gloo(2), *(ring(rank, said if rank == 1 else None) for rank in RANKS)])  # type: ignore[arg-type]

    assert (named(verdict), verdict.cause) == ([1], "machine")


def test_rings_alone_show_who_called_something_else() -> None:
    """Among rings of one kind operations and bytes are compared."""
    inside = [("all_reduce", 11, 0, 11.0, None)]
    calls = {0: inside, 1: [("all_gather", 11, 0, 11.0, None)], 2: inside}
    before: list[Line] = [("all_reduce", number, 0, float(number), number + 0.1) for number in range(1, 11)]

    verdict = judged([ring(rank, [*before, *calls[rank]]) for rank in RANKS])  # type: ignore[list-item]

    assert (verdict.cause, {root.fault_class for root in verdict.roots}) == ("code", {"desync"})


def test_the_order_of_rings_does_not_matter() -> None:
    """Several looks at the same rings, in any order, give the same dumps."""
    looks = [ring(rank, at=at) for rank in RANKS for at in (40.0, 50.0, READ_AT)]

    assert Window.build(looks).dumps == Window.build(reversed(looks)).dumps


@pytest.mark.system
@pytest.mark.timeout(240)
def test_a_real_pipeline_is_decided_by_its_rings(tmp_path: Path) -> None:
    """PP4 × DP2 over gloo, one rank spinning: the dumps leave a replica of four, dumps with rings and rings alone name it."""
    needs_torch("real jobs cannot be started")
    from collectors.files.reading import read_paths
    from tests.support.jobs import collect, driver, faults
    from tests.support.jobs.scenarios import Scenario

    scenario = Scenario.draw("spin", "pipeline", 3)
    with driver.running(scenario) as job:
        job.bring_probe()
        job.labels |= {
            "FAULTHOUND_PROBE_DIR": str(job.private),
            "FAULTHOUND_JOB": "rings-test",
            "FAULTHOUND_ATTEMPT": "1",
        }
        watch = driver.Watch(job)
        job.start_ranks(scenario.evidence())
        driver.wait(job, "fault", driver.START_SECONDS, watch.struck())
        driver.wait(job, "standstill", driver.START_SECONDS, watch.stuck(driver.STILL_SECONDS))
        collector = RingCollector(Host("gpu-0000", options={"ring": {"folder": str(job.private)}}))
        seen = [*collector(None)], [*collector(Request("recorders"))]
        collector.close()
        for rank, pid in faults.pids(job.private).items():
            answer = collect.ask(job.private / f"faulthound-{os.geteuid()}" / f"{pid}.sock", "fr_trace_json")
            (tmp_path / f"fr_rank{rank}.json").write_bytes(answer or b"")
    light, whole = (
        [record for record in look if isinstance(record, Ring) and record.job == "rings-test"] for look in seen
    )
    dumps = list(read_paths(sorted(tmp_path.iterdir())))

    assert len(light) == len(whole) == scenario.ranks
    assert named(judged(dumps)) != list(scenario.culprits)
    for records in ([*dumps, *light], [*dumps, *whole], light):
        assert named(judged(records)) == list(scenario.culprits)
    assert all(msgspec.msgpack.encode(record, enc_hook=lambda value: value.data) for record in whole)
