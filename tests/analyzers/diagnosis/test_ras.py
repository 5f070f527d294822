"""NCCL RAS: what the readers make of its text and JSON, and whom the analyzer suspects."""

from __future__ import annotations

import io
import json

import pytest

from analyzers.diagnosis.ras.ras import analyze
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import ProcessGroup, Topology
from analyzers.model.window import Window
from collectors.formats import Input, recognise
from collectors.records import FlightRecorderDump, RasCommunicator, RasPeerDead, RasRank, Record, Unread

TEXT = """NCCL version 2.30.7 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       3-4         8         7   RUNNING  INCOMPLETE,MISMATCH
    1         4         1         2         2         8   RUNNING      OK

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 507 on node 10.0.0.2 managing GPU 3

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 507 on node 10.0.0.2 managing GPUs 3,4

#0-0 (1bdb83b038775869) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 507 on node 10.0.0.2

Warnings
========

#0-0 (1bdb83b038775869) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 64
  Rank 5 has launched up to operation 60 -- GPU 1 managed by process 505 on node 10.0.0.2

"""

DOCUMENTED = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 7 -- GPU 7 managed by process 483079 on node 172.16.64.210
"""


def read(text: str) -> list[Record]:
    """Read text through whichever reader recognises it."""
    data = text.encode()
    format = recognise(data[:65_536], "ras")
    assert format is not None
    assert format.name.startswith("nccl_ras")
    return list(format.read(Input("ras", io.BytesIO(data), data[:65_536])))


def communicators(records: list[Record]) -> list[RasCommunicator]:
    """Return the communicators among records."""
    return [record for record in records if isinstance(record, RasCommunicator)]


def test_text_report_gives_communicators_counts_and_dead() -> None:
    """Blocks join their table row, unlisted ranks get the unlisted count, a dead process is its own record."""
    records = read(TEXT)
    world, alike = communicators(records)
    assert (world.hash, world.size, world.status, world.errors) == (
        "0x1bdb83b038775869",
        8,
        "RUNNING",
        "INCOMPLETE,MISMATCH",
    )
    assert {one.rank: one.counts.get("AllReduce") for one in world.ranks} == {
        **dict.fromkeys((0, 1, 2, 3, 4, 6), 64),
        5: 60,
        7: None,
    }
    (missing,) = [one for one in world.ranks if one.missing]
    assert (missing.rank, missing.host, missing.pid, missing.gpu) == (7, "10.0.0.2", 507, 3)
    assert (alike.size, alike.errors, alike.hash) == (2, "OK", "")
    (dead,) = [record for record in records if isinstance(record, RasPeerDead)]
    assert (dead.host, dead.pid, dead.gpus) == ("10.0.0.2", 507, (3, 4))


def test_text_with_outliers_listed_fills_in_the_rest() -> None:
    """26 ranks at 6650 and six listed at 6649: all 32 ranks get a count."""
    (world,) = communicators(read(DOCUMENTED))
    counts = {one.rank: one.counts["collective"] for one in world.ranks}
    assert len(counts) == 32
    assert sorted(rank for rank, count in counts.items() if count == 6649) == [0, 2, 3, 4, 5, 7]


def test_text_of_garbage_ranks_is_kept_out() -> None:
    """A rank beyond the communicator's size, as one NCCL release printed, is no rank."""
    text = DOCUMENTED.replace("Rank 7 --", "Rank 1057455228 --")
    (world,) = communicators(read(text))
    assert max(one.rank for one in world.ranks) < 32


def test_monitor_lines_give_dead_processes() -> None:
    """An event of the text monitor is a dead process with its time."""
    (dead,) = read("[2026-11-19 13:07:07] PEER_DEAD: Process 77 on node 172.16.64.245 managing GPU 1\n")
    assert isinstance(dead, RasPeerDead)
    assert (dead.host, dead.pid, dead.gpus, dead.at) == ("172.16.64.245", 77, (1,), 1_795_093_627.0)


def report(
    counts: dict[int, int], missing: dict[int, dict[str, bool]] | None = None, stamp: str = ""
) -> dict[str, object]:
    """A JSON report of one communicator."""
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    lost = missing or {}

    def place(rank: int) -> dict[str, object]:
        return {
            "rank": rank,
            "host": f"10.0.0.{rank // 4}",
            "pid": 500 + rank,
            "cuda_dev": rank % 4,
            "nvml_dev": 0,
        }

    return {
        "nccl_version": "2.28.9",
        **({"timestamp": stamp} if stamp else {}),
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xabc",
                "secondary_hash": "0x1:0x2",
                "size": len(counts) + len(lost),
                "ranks_count": len(counts),
                "missing_ranks_count": len(lost),
                "ranks": [
                    {**place(rank), "status": status, "collective_counts": {"AllReduce": count, "Broadcast": 1}}
                    for rank, count in counts.items()
                ],
                "missing_ranks": [{**place(rank), "status": flags} for rank, flags in lost.items()],
            }
        ],
        "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
    }


DEAD = {"unresponsive": True, "considered_dead": True}


def test_json_report_gives_ranks_and_missing_ranks() -> None:
    """Counts, host, pid and the flags of missing ranks come through."""
    (one,) = communicators(read(json.dumps(report({0: 5, 1: 5, 2: 4}, {3: DEAD}), indent=2)))
    assert (one.hash, one.secondary_hash, one.size) == ("0xabc", "0x1:0x2", 4)
    assert [rank.counts.get("AllReduce") for rank in one.ranks] == [5, 5, 4, None]
    assert (one.ranks[3].dead, one.ranks[3].unresponsive, one.ranks[3].missing, one.ranks[3].pid) == (
        True,
        True,
        True,
        503,
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            '0\n          "status": {\n            "unresponsive"',
            '0,\n          "status": {\n            "unresponsive"',
        ),
        ("true,\n          }", "true\n          }"),
        ("{{", "{"),
        ("}}}", "}"),
    ],
)
def test_malformed_json_is_recovered(wrong: str, right: str) -> None:
    """The missing comma of NCCL 2.28.9, trailing commas and braces too many cost no rank."""
    text = json.dumps(report({0: 5, 1: 5, 2: 4}, {3: DEAD}), indent=2)
    good = communicators(read(text))
    if wrong == "{{":
        broken = text.replace('{\n          "rank": 3', '{{\n          "rank": 3')
    elif wrong == "}}}":
        place = text.index("}", text.index('"considered_dead"'))
        broken = text[:place] + "}}}" + text[place + 1 :]
    else:
        broken = text.replace(right, wrong) if right in text else text.replace("true\n", "true,\n")
    assert broken != text
    assert communicators(read(broken)) == good


def test_json_recovers_communicator_by_communicator() -> None:
    """A communicator cut in two costs neither its neighbours nor the reason why."""
    first, second = (json.dumps(report({0: 5, 1: 5}), indent=1) for _ in range(2))
    records = read(first.replace('"hash": "0xabc"', '"hash": 5') + "\n" + second + "\n" + first[:300])
    good = communicators(records)
    assert [len(one.ranks) for one in good][:1] == [2]
    assert [record.outcome for record in records if isinstance(record, Unread)] == ["damaged"]


def test_json_monitor_event_gives_the_dead_process() -> None:
    """A lifecycle event is a dead process; other events are not."""
    peer = {"host": "10.0.0.2", "pid": 507, "cuda_devs": [1, 2], "nvml_devs": [1, 2]}
    dead = {"timestamp": "2026-11-19 13:07:07", "group": "LIFECYCLE", "event": "PEER_DEAD", "peer": peer, "details": ""}
    other = {**dead, "event": "PEER_RECOVERED"}
    records = read(json.dumps(other, indent=2) + "\n" + json.dumps(dead, indent=2))
    assert [(one.host, one.pid, one.gpus) for one in records if isinstance(one, RasPeerDead)] == [
        ("10.0.0.2", 507, (1, 2))
    ]


@pytest.mark.parametrize(
    "text",
    [
        DOCUMENTED.replace("  26 ranks have launched up to operation 6650\n", ""),
        '{"communicators_count": 1, "communicators": [' + '{"hash":{' * 50_000,
        TEXT[:700],
        DOCUMENTED * 50,
    ],
)
def test_damaged_reports_never_raise(text: str) -> None:
    """Deep nesting, truncation and repetition give records or an explanation."""
    assert read(text)


# --- the analyzer ---


def topology(nodes: bool = True) -> Topology:
    """Eight ranks on two nodes, with a world group and two groups of four."""
    ranks = tuple(range(8))
    groups = (
        ProcessGroup("0", "0", "default_pg", "world", ranks),
        ProcessGroup("1", "1", "", "dp", (0, 2, 4, 6)),
        ProcessGroup("2", "2", "", "dp", (1, 3, 5, 7)),
    )
    return Topology(ranks, {rank: f"10.0.0.{rank // 4}" for rank in ranks} if nodes else {}, groups)


def findings(*records: Record, shape: Topology | None = None) -> list[Finding]:
    """Analyze these records."""
    return list(analyze(Window(records=records), shape or topology(), Knowledge()))


def world(
    counts: dict[int, int], missing: dict[int, dict[str, bool]] | None = None, at: float = 0.0
) -> RasCommunicator:
    """A world communicator as read from JSON."""
    (one,) = communicators(read(json.dumps(report(counts, missing))))
    return RasCommunicator(
        **{name: getattr(one, name) for name in one.__struct_fields__} | {"at": at, "source": f"ras:{at}"}
    )


def suspects(found: list[Finding]) -> set[int]:
    """All suspect ranks."""
    return {rank for finding in found for suspect in finding.suspects for rank in suspect.ranks}


def test_nothing_and_ok_give_nothing() -> None:
    """An empty window, a healthy report and an OK row during a hang accuse and acquit nobody."""
    assert findings() == []
    assert findings(world(dict.fromkeys(range(8), 9))) == []
    assert findings(RasCommunicator(size=8, status="RUNNING", errors="OK")) == []


def test_dead_rank_is_named() -> None:
    """A rank considered dead is a strong suspect, missing ones are weaker than unresponsive ones."""
    strengths = []
    for flags in ({}, {"unresponsive": True}, DEAD):
        (found,) = findings(world(dict.fromkeys(range(7), 9), {7: flags}))
        assert (found.fault_class, found.suspects[0].ranks, found.cause) == ("process_gone", (7,), "machine")
        strengths.append(found.suspects[0].strength)
    assert strengths == sorted(strengths)
    assert strengths[0] < strengths[1] < strengths[2]


def test_subgroup_rank_is_translated_by_its_host() -> None:
    """Rank 3 of a communicator of four on two hosts is that member of the only group that fits; else by host and pid."""
    members = [
        RasRank(rank=index, host=f"10.0.0.{rank // 4}", pid=500 + rank) for index, rank in enumerate((0, 2, 4, 6))
    ]
    lost = RasRank(rank=3, host="10.0.0.1", pid=506, missing=True, dead=True)
    one = RasCommunicator(hash="0x1", size=4, ranks=(*members[:3], lost))
    (ambiguous,) = findings(one)
    assert suspects([ambiguous]) == set()
    assert ambiguous.suspects[0].node == "10.0.0.1"
    known = FlightRecorderDump(rank=6, pid=506, node="10.0.0.1")
    (exact,) = findings(one, known)
    assert suspects([exact]) == {6}
    by_member = FlightRecorderDump(rank=0, pid=500, node="10.0.0.0")
    assert suspects(findings(one, by_member)) == {6}


def test_most_of_a_communicator_missing_blames_nobody() -> None:
    """Where most ranks do not answer, the collection failed or the job is over."""
    assert findings(world({0: 9, 1: 9}, dict.fromkeys(range(2, 8), DEAD))) == []


def test_peer_dead_event_is_resolved_by_host_and_pid() -> None:
    """A dead process is its rank where a record ties its pid to one, else its node."""
    dead = RasPeerDead(host="10.0.0.1", pid=506)
    assert suspects(findings(dead, FlightRecorderDump(rank=6, pid=506, node="10.0.0.1"))) == {6}
    (unknown,) = findings(dead)
    assert (unknown.suspects[0].kind, unknown.suspects[0].node, unknown.suspects[0].ranks) == ("node", "10.0.0.1", ())


def test_a_lag_in_one_poll_is_weak_and_a_frozen_lag_is_strong() -> None:
    """One poll of uneven counts is normal; counts that stand still in two polls name the laggard; moving ones nobody."""
    counts = dict.fromkeys(range(8), 64) | {5: 60}
    (weak,) = findings(world(counts))
    assert (weak.family, weak.fault_class, suspects([weak])) == ("waits", "never_entered", {5})
    (strong,) = findings(world(counts, at=1.0), world(counts, at=11.0))
    assert suspects([strong]) == {5}
    assert weak.suspects[0].strength < 0.5 < strong.suspects[0].strength
    moved = {rank: count + 10 for rank, count in counts.items()}
    assert findings(world(counts, at=1.0), world(moved, at=11.0)) == []


def test_the_minority_ahead_is_not_blamed() -> None:
    """Two ranks one operation ahead of six say nothing: the six are most, and the two are not behind."""
    assert findings(world(dict.fromkeys(range(8), 640) | {2: 641, 3: 641})) == []


def test_order_of_records_does_not_matter() -> None:
    """Findings depend on what was recorded, not on the order of arrival."""
    polls = [world(dict.fromkeys(range(8), 64) | {5: 60}, at=float(at)) for at in (1, 11)]
    dead = RasPeerDead(host="10.0.0.1", pid=506)
    assert findings(*polls, dead) == findings(dead, *reversed(polls))
