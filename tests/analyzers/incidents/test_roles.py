"""A job whose roles count from 0 each: no process is taken for another, live, and no node speaks for another's."""

from __future__ import annotations

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.hosting import Hosting
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from analyzers.incidents.rank_maps import own_ranks
from analyzers.incidents.seats import seats_in_words, seats_of
from collectors.records import LogEvent, Members, Placement, ProcessState, Record
from collectors.records.identity import placed_rank
from tests.support.role_scenes import JOB, SEATS, START, pid_of, placements
from tests.support.watched_jobs import step_record


def seen(view: JobView, at: float, *records: Record, node: str = "n0") -> None:
    """Let a view take a batch."""
    view.take(Received(sequence=1, received_at=at, sent_at=at, node=node, records=records), records)


def states(at: float, **ended: int) -> list[Record]:
    """All six processes; ``trainer0=9``: that one was ended by this signal."""
    return [
        ProcessState(
            **JOB, role=role, rank=rank, node="n0", pid=pid_of(role, rank), at=at, started_at=START,
            state="X" if f"{role}{rank}" in ended else "S", signal=ended.get(f"{role}{rank}"),
        )
        for role, rank in SEATS
    ]  # fmt: skip


def test_six_processes_are_six() -> None:
    """Each is counted, and the number of ranks is that of both roles."""
    view = JobView("rl", 0)
    seen(view, START + 1, *placements())
    seen(view, START + 10, *states(START + 9))

    assert {view.numbering.of(number) for number in view.ranks} == set(SEATS)
    assert (view.processes.alive, view.world_size) == (6, 6)


def test_the_one_that_died_is_named_with_its_role() -> None:
    """A rollout that was killed is no trainer, whichever was seen first."""
    view = JobView("rl", 0)
    seen(view, START + 1, *placements())
    seen(view, START + 10, *states(START + 9))
    seen(view, START + 20, *states(START + 19, rollout0=9))
    (symptom,) = find_symptoms(view, START + 60)

    assert (symptom.ranks, symptom.roles) == ((0,), ("rollout",))
    assert "rollout rank 0 on n0 ended by signal 9" in symptom.text


def test_a_job_that_is_killed_after_it_lost_a_rollout_is_no_crash() -> None:
    """It had gone on without that one: all the others were ended at once, from outside."""
    view = JobView("rl", 0)
    seen(view, START + 1, *placements())
    seen(view, START + 10, *states(START + 9))
    seen(view, START + 20, *states(START + 19, rollout0=9))
    rows = [(step, START + step) for step in range(1, 60)]
    seen(view, START + 61, step_record(rows, 0, at=START + 60, job="rl", role="trainer"))
    assert find_symptoms(view, START + 61) == []
    seen(view, START + 100, *states(START + 99, **{f"{role}{rank}": 9 for role, rank in SEATS}))

    assert find_symptoms(view, START + 130) == []


def test_a_worker_without_a_number_may_go() -> None:
    """An environment worker that is gone is no dead rank, and no uneven end."""
    view = JobView("rl", 0)
    numbers = [placed_rank("n0", index) for index in range(3)]
    for at, left in ((START, 3), (START + 60, 2)):
        placed = Placement(
            **JOB, node="n0", at=at, ranks=Members.of([0, *numbers[:left]]), nodes=("n0",) * (left + 1),
            roles=("trainer", *["environment"] * left), pids=tuple(range(10, 11 + left)),
        )  # fmt: skip
        seen(view, at + 1, placed)
    seen(view, START + 200)

    assert not find_symptoms(view, START + 200)


def test_a_trainer_that_ends_well_alone_is_uneven_and_a_whole_role_is_not() -> None:
    """Rollouts that are done while trainers save are no uneven end."""
    for gone, expected in ((("rollout0", "rollout1", "rollout2", "rollout3"), ()), (("trainer0",), ("trainer",))):
        view = JobView("rl", 0)
        seen(view, START + 1, *placements())
        rows = [
            row if row.state == "S" else ProcessState(**{**_fields(row), "signal": None, "exit_code": 0})
            for row in states(START + 9, **dict.fromkeys(gone, 0))
            if isinstance(row, ProcessState)
        ]
        seen(view, START + 10, *rows)
        seen(view, START + 200, *[row for row in states(START + 199) if f"{row.role}{row.rank}" not in gone])
        found = find_symptoms(view, START + 200)

        assert tuple(role for symptom in found for role in symptom.roles) == expected


def _fields(row: ProcessState) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_nodes_host_their_own_role_s_ranks() -> None:
    """Trainer 0 and rollout 0 are on two nodes, and each speaks for its own."""
    hosting = Hosting()
    for placement in placements(nodes=6):
        hosting.take(placement.node or "", [placement], 1.0)

    assert hosting.world_size == 6
    for placement, (role, rank) in zip(placements(nodes=6), SEATS, strict=True):
        node = placement.node or ""
        assert hosting.maps[0].on[node] == {(rank, role)}
        assert not hosting.is_hearsay(LogEvent(event="exit", role=role, rank=rank), node, 0)
        other = "n5" if node != "n5" else "n4"
        assert hosting.is_hearsay(LogEvent(event="exit", role=role, rank=rank), other, 0)


def test_a_stranger_takes_no_rank_of_a_role() -> None:
    """Its claim is refused, as is what it says of that rank, with and without a role."""
    hosting = Hosting()
    for placement in placements(nodes=6):
        hosting.take(placement.node or "", [placement], 1.0)
    claim = Placement(**JOB, ranks=Members.of([0, 3]), roles=("trainer", "rollout"), nodes=("n5", "n5"), pids=(1, 2))
    hosting.take("n5", [claim], 2.0)

    assert hosting.refused("n5", 0) == {(0, "trainer")}
    left = own_ranks(claim, hosting.refused("n5", 0))
    assert (left.ranks, left.roles, left.pids) == (Members.of([3]), ("rollout",), (2,))


def test_refused_ranks_are_written_with_their_roles() -> None:
    """And are read back; a cut from before roles has none."""
    seats = {(0, "trainer"), (1, "trainer"), (7, "")}

    assert seats_in_words(seats) == "7;trainer=0-1"
    assert seats_of("7;trainer=0-1") == seats
    assert seats_of("0-1,7") == {(0, ""), (1, ""), (7, "")}
