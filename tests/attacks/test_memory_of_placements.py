"""Placements of jobs that a node invents never become the service's memory, nor rows without end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import func, select

from analyzers.incidents.hosting import Hosting
from analyzers.incidents.rank_maps import MOST_CLAIMED
from collectors.records import Members, Placement, block
from collectors.records.processes import MOST_LABELS
from service.store import observations
from service.store.database import Database
from service.store.follower import Follower
from service.store.log import Incoming, Log
from service.store.models import Job
from service.store.models import Placement as PlacementRow
from service.store.observations import MOST_JOBS, NEW_ROWS_AT_ONCE
from tests.support.served import serving

AT, WIDE = 1_795_230_847.0, "a" * 65_500 + "\U0001f600"  # four bytes a character in memory


def placed(job: str, ranks: Sequence[int] = (0,), node: str = "stranger", **more: Any) -> Placement:
    """Say where these ranks run."""
    pids = tuple(100 + rank for rank in ranks)
    return Placement(job=job, attempt=0, ranks=Members.of(ranks), nodes=(node,) * len(ranks), pids=pids, **more)


def follow(follower: Follower, log: Log, at: float, records: Sequence[Placement], node: str = "stranger") -> None:
    """Let a follower read a batch of a node."""
    log.append([Incoming(node, f"{node}-{at}", at - 0.5, at, len(records), block.encode(records, pack=True))])
    while follower.turn():
        pass


def count(database: Database, table: type[Job] | type[PlacementRow]) -> int:
    """Return how many rows a table has."""
    with database.session() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def texts_bytes(value: Any) -> int:
    """Return how long all texts of a value are, encoded."""
    return len(msgspec.json.encode(value, enc_hook=lambda one: list(one.data)))


def test_a_claim_keeps_only_what_says_where_ranks_run() -> None:
    """Labels, sources and long names of a placement are not kept with a node's claim, and its ranks are a node's."""
    hosting = Hosting()
    ranks = range(MOST_CLAIMED + 100)
    record = placed("wide", range(8), role=WIDE[:4_000], labels={"a": WIDE}, source=WIDE, launcher=WIDE[:4_000])
    names = {"boot_id": WIDE[:4_000], "phase": WIDE[:4_000], "local_ranks": tuple(range(100_000))}
    many = {"roles": (WIDE[:4_000],) * 8, "devices": (WIDE[:4_000],) * 8}
    hosting.take("n", [msgspec.structs.replace(record, **names, **many)], AT)
    small = texts_bytes(hosting.claims["n"].placement)
    hosting.take("m", [placed("wide", ranks)], AT)

    assert small < 5_000
    assert len(hosting.claims["m"].seats) == MOST_CLAIMED
    assert len(hosting.claims["m"].placement.pids) == MOST_CLAIMED  # type: ignore[union-attr]


@pytest.mark.parametrize("labels", [{"a": WIDE}, {f"l{n}": "v" for n in range(MOST_LABELS + 1)}, {"n" * 300: "v"}])
def test_labels_are_bounded_where_records_are_decoded(labels: dict[str, str]) -> None:
    """A placement with more or longer labels than an agent reads costs itself, and one with as many does not."""
    most = {f"{number:0256}": "v" * 1_024 for number in range(MOST_LABELS)}
    decoded = block.decode_counting(block.encode([placed("a", labels=labels), placed("b", labels=most)]))

    assert ([record.job for record in decoded.records], decoded.malformed) == (["b"], 1)


def test_invented_jobs_make_no_rows_without_end(database: Database) -> None:
    """A node brings so many new rows and no more, is counted, and costs no other node a row; its own real job goes on."""
    log, follower = Log(database), Follower(database, Log(database))
    for turn in range(4):
        follow(follower, log, AT + turn, [placed("real", range(8))])
        follow(follower, log, AT + turn + 0.5, [placed(f"x{turn}-{n}", range(64)) for n in range(MOST_JOBS)])
    jobs, left_out = count(database, Job), follower.observations.left_out

    assert jobs * 64 <= NEW_ROWS_AT_ONCE + 2 * 66 < 4 * MOST_JOBS * 64
    assert follower.observations.rows <= NEW_ROWS_AT_ONCE + 2 * 66
    assert left_out == 4 * MOST_JOBS + 1 - jobs
    assert len(follower.observations._hosting) == jobs  # none is made for what was left out

    follow(follower, log, AT + 5.0, [placed("llama", range(8), "good", world_size=8)], "good")

    assert follower.observations.left_out == left_out
    assert count(database, Job) == jobs + 1


def test_ranks_of_one_job_make_no_rows_without_end(database: Database) -> None:
    """A node that claims other ranks of one job again and again has the rows of its share."""
    log, follower = Log(database), Follower(database, Log(database))
    for turn in range(6):
        follow(follower, log, AT + turn, [placed("one", range(turn * 2_000, (turn + 1) * 2_000))])

    assert NEW_ROWS_AT_ONCE / 2 < count(database, PlacementRow) <= NEW_ROWS_AT_ONCE + 2_002


def test_a_share_fills_again(database: Database) -> None:
    """What was left out is written once the node's share allows it: agents report their jobs again and again."""
    log, follower = Log(database), Follower(database, Log(database))
    for number, at in enumerate((AT, AT + 1.0, AT + 2.0, AT + 3_600.0)):
        follow(follower, log, at, [placed(f"j{min(number, 2)}", range(3_000))])

    assert follower.observations.left_out == 1
    assert count(database, Job) == 3


def test_the_memory_of_rows_is_bounded_in_total(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many nodes bring rows, those longest unseen leave the memory, and their tables are as they were."""
    monkeypatch.setattr(observations, "MOST_SEEN", 10)
    monkeypatch.setattr(observations, "MOST_HOSTED", 2)
    log, follower = Log(database), Follower(database, Log(database))
    for turn in range(2):
        for number in range(30):
            record = placed(f"j{number}", range(4), f"n{number}", world_size=4)
            follow(follower, log, AT + 60.0 * turn + number, [record], f"n{number}")

    assert follower.observations.rows <= 4 * 10
    assert len(follower.observations._hosting) == 2
    assert count(database, PlacementRow) == 120
    with database.session() as session:
        row = session.scalars(select(PlacementRow).where(PlacementRow.job == "j3", PlacementRow.rank == 1)).one()
        assert (row.first_seen_at, row.last_seen_at) == (AT + 3, AT + 63)


@pytest.mark.system
def test_a_flood_of_invented_jobs_takes_no_memory(tmp_path: Path) -> None:
    """Small batches of new jobs whose labels take a gigabyte, and as many with all labels that are taken, are not kept."""
    with serving(tmp_path) as (url, process):
        before = resident_bytes(process.pid)
        kept = {f"l{number}": WIDE[-1_024:] for number in range(MOST_LABELS)}
        for turn in range(8):
            labels = kept if turn % 2 else {f"l{number}": WIDE for number in range(15)}
            records = [placed(f"x{turn}-{number}", labels=labels) for number in range(60)]
            name = {"Faulthound-Node": "stranger", "Faulthound-Batch": f"b{turn}"}
            head = name | {"Content-Type": "application/vnd.faulthound.block", "Faulthound-Sent-At": str(time.time())}
            httpx.post(f"{url}/v1/records", content=block.encode(records, pack=True), headers=head).raise_for_status()
        _wait_followed(url, 8)
        grown = resident_bytes(process.pid) - before

    assert grown < 200 << 20


def _wait_followed(url: str, batches: int) -> None:
    for _ in range(1_200):
        if f"faulthound_followed_batches_total {batches}.0" in httpx.get(f"{url}/metrics").text:
            return
        time.sleep(0.05)
    raise AssertionError("the follower has not read all batches")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024
