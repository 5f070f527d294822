"""The follower: what it derives from batches, and that each batch is derived once, whatever stops it."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from collectors.records import CollectorReport, CommandResult, Coverage, Device
from service.store.commands import Commands
from service.store.database import Database
from service.store.follower import Follower
from service.store.log import Log
from service.store.models import Attempt, Cursor, Job, Node
from service.store.models import Placement as PlacementRow
from service.store.placements import is_newest, job_nodes
from tests.support.followed_log import drain, placed, send


def test_nodes_show_their_newest_account(database: Database) -> None:
    """A node's row has its agent's version, its newest coverage, all its devices and how far its clock is off."""
    log, follower = Log(database), Follower(database, Log(database))
    coverage = Coverage(
        at=990.0, agent_version="0.1.0", boot_id="boot-1", collectors=(CollectorReport(name="gpu", runs=3),)
    )
    send(log, 1, [coverage, Device(type="gpu", id="GPU-1", at=1.0)], at=1_000.0)
    drain(follower)
    older = Coverage(at=900.0, agent_version="0.0.9", boot_id="boot-0")
    send(log, 2, [older, Device(type="gpu", id="GPU-2", at=2.0)], at=1_001.0)
    drain(Follower(database, log))

    with database.session() as session:
        node = session.get_one(Node, "gpu-0001")

    assert (node.first_seen_at, node.agent_version, node.boot_id) == (1_000.0, "0.1.0", "boot-1")
    assert node.coverage["collectors"][0]["name"] == "gpu"
    assert sorted(node.devices) == ["GPU-1", "GPU-2"]
    assert node.clock_offset_seconds == pytest.approx(-0.5)


def test_jobs_register_themselves(database: Database) -> None:
    """A placement record alone makes the job, its attempt and each rank's placement."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [placed([0, 1], "gpu-0001", attempt=2, local_ranks=(0, 1), roles=("trainer", ""), devices=("GPU-1",))])
    drain(follower)

    with database.session() as session:
        (job,) = session.scalars(select(Job)).all()
        (attempt,) = session.scalars(select(Attempt)).all()
        ranks = session.scalars(select(PlacementRow).order_by(PlacementRow.rank)).all()

    assert (job.name, attempt.number, attempt.world_size) == ("llama", 2, 8)
    assert [(row.rank, row.pid, row.local_rank, row.role, row.device) for row in ranks] == [
        (0, 100, 0, "trainer", "GPU-1"),
        (1, 101, 1, "", None),
    ]


def test_a_rank_that_moves_was_on_both_nodes(database: Database) -> None:
    """Where a rank has moved, its newest sighting is where it is, and an export of before finds the node it was on."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [placed([3], "gpu-0001")], "gpu-0001", at=1_000.0)
    send(log, 2, [placed([3], "gpu-0002")], "gpu-0002", at=4_900.0)
    send(log, 3, [placed([3], "gpu-0002")], "gpu-0002", at=5_000.0)
    drain(follower)

    with database.session() as session:
        now_on = session.scalars(select(PlacementRow.node).where(is_newest())).all()

        assert now_on == ["gpu-0002"]
        assert job_nodes(session, "llama", 900.0, 1_100.0) == ["gpu-0001"]
        assert job_nodes(session, "llama", 4_900.0, 5_100.0) == ["gpu-0002"]
        assert job_nodes(session, "llama", 0.0, 9_000.0) == ["gpu-0001", "gpu-0002"]


def test_ranks_that_move_there_and_back_are_known_at_once(database: Database) -> None:
    """Two nodes change their ranks and change them back a minute later, while the rows of before are still fresh."""
    log, follower = Log(database), Follower(database, Log(database))
    for number, (on_first, on_second) in enumerate([(0, 1), (1, 0), (0, 1)]):
        for again in range(2):  # the second node has the rank only when the first has given it up
            sequence, at = 10 * number + again, 1_000.0 + 60.0 * number + again
            send(log, sequence, [placed([on_first], "gpu-0001")], "gpu-0001", at=at)
            send(log, sequence, [placed([on_second], "gpu-0002")], "gpu-0002", at=at + 0.5)
        drain(follower)
        with database.session() as session:
            now_on = session.execute(select(PlacementRow.rank, PlacementRow.node).where(is_newest()))
            assert dict(map(tuple, now_on)) == {on_first: "gpu-0001", on_second: "gpu-0002"}


def test_a_spool_does_not_turn_back_time(database: Database) -> None:
    """A sighting that comes late counts for when it was made, by the service's clock, and replaces nothing newer."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [placed([0], "gpu-0001", at=1_999.5)], at=2_000.0)
    send(log, 2, [placed([0], "gpu-0001", at=1_099.5)], at=2_001.0)
    drain(follower)
    drain(Follower(database, log))

    with database.session() as session:
        row = session.scalars(select(PlacementRow)).one()

    assert row.last_seen_at == pytest.approx(2_000.0)


@pytest.mark.system
def test_nothing_new_is_nearly_nothing_to_write(database: Database) -> None:
    """A thousand repeated sightings within half a minute change no row but the cursor."""
    log, follower = Log(database), Follower(database, Log(database))
    for number in range(1_000):
        send(log, number, [placed(range(8), "gpu-0001")], at=1_000.0 + number * 0.029)
    drain(follower)

    with database.session() as session:
        seen = session.scalars(select(PlacementRow.last_seen_at)).all()
        node = session.scalars(select(Node.last_seen_at)).one()
        cursor = session.get_one(Cursor, "follower").sequence

    assert max(seen) < 1_029.0
    assert node < 1_029.0
    assert cursor == 1_000


def test_a_declaration_survives_sightings(database: Database) -> None:
    """What a job's owner declared, and its version, stay when its ranks are seen."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [placed([0], "gpu-0001")])
    drain(follower)
    with database.transaction() as session:
        session.execute(update(Job).values(declared={"code_version": "abc"}, declared_at=5.0, version=7))
    send(log, 2, [placed([1], "gpu-0001")], at=2_000.0)
    drain(Follower(database, log))

    with database.session() as session:
        job = session.scalars(select(Job)).one()

    assert (job.declared, job.version, job.last_seen_at) == ({"code_version": "abc"}, 7, 2_000.0)


def test_a_run_has_the_code_version_that_was_declared(database: Database) -> None:
    """A run that is new has the code declared for it or before it, keeps it, and hands it on where nothing is declared."""
    log = Log(database)
    declared = {"world_size": 8, "attempt": 1, "code_version": "abc"}
    with database.transaction() as session:
        session.add(Job(name="llama", first_seen_at=0.0, last_seen_at=0.0, declared=declared, declared_at=0.0))
    for number in range(3):
        send(log, number, [placed([0], "gpu-0001", attempt=number)], at=1_000.0 + number)
    drain(Follower(database, log))
    with database.transaction() as session:
        session.execute(update(Job).values(declared={**declared, "attempt": 9, "code_version": "xyz"}))
    send(log, 3, [placed([0], "gpu-0001", attempt=number) for number in (2, 3)], at=1_003.0)
    drain(Follower(database, log))

    with database.session() as session:
        versions = session.scalars(select(Attempt.code_version).order_by(Attempt.number)).all()

    assert versions == [None, "abc", "abc", "abc"]


def test_results_end_commands(database: Database) -> None:
    """A command ends with the outcome that its own node reports; another node's word counts for nothing."""
    log, follower, commands = Log(database), Follower(database, Log(database)), Commands(database)
    (command,) = commands.ask([("gpu-0001", {})], "stacks", "ops", 60.0)
    send(log, 1, [CommandResult(command=command.id, outcome="failed", text="lies")], node="gpu-0666")
    send(log, 2, [CommandResult(command=command.id, outcome="done", text="8 stacks")], node="gpu-0001")
    drain(follower)

    found = commands.get(command.id)

    assert found is not None
    assert (found.outcome, found.text) == ("done", "8 stacks")
