"""Few bytes on the wire never fill the engine's memory: evidence is bounded by node, job and engine, and what goes is said."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analyzers.incidents.evidence import KEPT_BYTES, Evidence, select_records
from analyzers.incidents.messages import EngineTick, Judge, Judged, Received
from analyzers.incidents.shedding import SPARE
from analyzers.incidents.state import EngineState, EvidenceLimits
from analyzers.incidents.step import step
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut, Incident
from collectors.records import (
    FlightRecorderDump,
    Group,
    KernelEvent,
    LogEvent,
    Members,
    Placement,
    ProcessState,
    Record,
    block,
)
from service.api.inspection import inspect
from service.engine.judge_processes import JudgeFailure, JudgeProcesses
from service.engine.supervision import _variables
from service.settings import Settings
from tests.support.floods import FLOODS, NODE

AT, JOB, MEGABYTE = 1_795_230_847.0, "llama", 1 << 20
SMALL = EvidenceLimits(2 * MEGABYTE, 3 * MEGABYTE, 4 * MEGABYTE)


def reported(state: EngineState, node: str, *records: Record) -> None:
    """Give the engine a batch of a node."""
    number = state.sequence + 1
    at = AT + number
    step(state, Received(sequence=number, received_at=at, node=node, records=records, sent_at=at), at)


def large(number: int, node: str, size: int = 50_000) -> KernelEvent:
    """Return an event that takes so many bytes, of a key of its own."""
    return KernelEvent(event=f"e{number}", text="x" * size, node=node)


def placed(rank: int, node: str) -> Placement:
    """Return where a rank runs."""
    return Placement(job=JOB, attempt=1, node=node, ranks=Members.of([rank]), nodes=(node,), world_size=4, at=AT)


def test_a_node_has_no_more_than_its_bound() -> None:
    """A node that floods loses its own oldest records, and no other's."""
    state = EngineState(Knowledge(), limits=SMALL)
    reported(state, "n1", large(0, "n1"))
    for number in range(100):
        reported(state, NODE, large(number, NODE))

    assert state.evidence[NODE].size_bytes <= SMALL.node_bytes
    assert state.evidence["n1"].size_bytes > 50_000
    assert state.shed_records > 50
    assert state.evidence[NODE].shed > 50


def test_the_engine_has_no_more_than_its_bound() -> None:
    """Where many nodes have much, those that have most and are in no incident give first."""
    state = EngineState(Knowledge(), limits=SMALL)
    state.incidents["inc-1"] = Incident(
        id="inc-1", kind="hang", job=JOB, attempt=1, opened_at=AT, onset_at=AT, symptoms=(), after=0, nodes=("n0",)
    )
    for number in range(20):
        reported(state, "n0", large(number, "n0"))
    reported(state, "quiet", large(0, "quiet"))
    for node in range(1, 9):
        for number in range(20):
            reported(state, f"n{node}", large(number, f"n{node}"))

    assert state.evidence_bytes == sum(one.size_bytes for one in state.evidence.values()) <= SMALL.engine_bytes
    assert state.evidence["n0"].shed == 0
    assert state.evidence["quiet"].shed == 0
    assert all(state.evidence[f"n{node}"].shed for node in range(1, 8))


def test_a_job_has_no_more_than_its_bound() -> None:
    """All nodes of one job together are bounded, at every tick."""
    state = EngineState(Knowledge(), limits=EvidenceLimits(2 * MEGABYTE, 3 * MEGABYTE, 64 * MEGABYTE))
    for rank in range(4):
        reported(state, f"n{rank}", placed(rank, f"n{rank}"))
        for number in range(30):
            reported(state, f"n{rank}", large(number, f"n{rank}"))
    step(state, EngineTick(), AT + 400.0)

    assert sum(state.evidence[f"n{rank}"].size_bytes for rank in range(4)) <= SPARE * 3 * MEGABYTE


def test_what_was_shed_a_replay_leaves_out_too() -> None:
    """The cut names what the engine had given up: from the whole log the same records are selected."""
    bounded, whole = Evidence(MEGABYTE), Evidence()
    for number in range(1, 60):
        batch = (large(number % 7, "n1"), ProcessState(pid=number % 5, node="n1", at=AT + number), placed(0, "n1"))
        bounded.add(number, batch)
        whole.add(number, batch)
    cut = Cut(after=0, through=59, at=AT, shed={"n1": bounded.shed})

    assert bounded.shed > 0
    kept = [list(select_records({"n1": one}, ["n1"], (), cut, None, None)) for one in (bounded, whole)]
    assert kept[0] == kept[1] != []


def test_packed_records_come_back_as_they_were() -> None:
    """Member lists stay the objects that they are, however many records share them, and are counted once a node."""
    world = Members.of(range(4_096))
    dumps = [FlightRecorderDump(rank=rank, node="n1", groups=(Group("0", "", world), Group("1"))) for rank in range(8)]
    evidence = Evidence()
    evidence.add(1, dumps)
    back = [record for _, _, record in evidence.since(0) if isinstance(record, FlightRecorderDump)]

    assert back == dumps
    assert all(dump.groups[0].members is world for dump in back)
    assert evidence.size_bytes < len(world.data) + 8 * (KEPT_BYTES + 400)
    evidence.forget(1)
    assert evidence.size_bytes == 0


def test_an_incident_s_context_is_bounded() -> None:
    """Devices and placements that a node invents by the thousand are not stored with every incident."""
    evidence = Evidence()
    evidence.add(1, [Placement(job=f"{number}", node="n1", source="y" * 60_000) for number in range(40)])

    assert 10 <= len(list(evidence.context(1))) <= 18


def test_a_log_line_without_end_costs_no_view_its_memory() -> None:
    """What detectors keep of a job's events is bounded in bytes, and still shows the newest."""
    state = EngineState(Knowledge())
    reported(state, "n1", placed(0, "n1"))
    for number in range(300):
        text = "x" * 60_000
        event = LogEvent(
            event="cuda_error", text=text, message=text, source=f"log:{number}", node="n1", job=JOB, attempt=1
        )
        reported(state, "n1", event)
    (view,) = state.jobs.values()

    assert sum(len(seen.event.text) for seen in view.logged.entries) < MEGABYTE
    assert view.logged.entries[-1].event.source == "log:299"


# Large texts among small values that stay, as records unpacked beside evidence; the first ones raise glibc's threshold.
_FREED = """
def wide(): return "a" * 65_500 + chr(0x1F600)
first = [wide() for _ in range(4)]
del first
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
before, large, small = resident(), [], []
for _ in range(400):
    large.append(wide())
    small.append(bytearray(2_000))
del large
print(resident() - before)
"""


@pytest.mark.system
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another library's threshold is not glibc's")
def test_the_engine_gives_freed_texts_back(tmp_path: Path) -> None:
    """What large records took leaves the engine's process with them; without its environment it would stay."""
    command = [sys.executable, "-c", _FREED]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    kept, left = (
        int(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
        for env in (plain, plain | _variables(Settings(data=tmp_path)))
    )

    assert left < 8 * MEGABYTE < 64 * MEGABYTE < kept


@pytest.mark.system
@pytest.mark.parametrize("kind", ["counts"])
def test_bodies_as_large_as_a_batch_may_be(kind: str) -> None:
    """Bodies of some kilobytes that unpack to the bound of a batch: what is kept of them is within the node's bound."""
    state = EngineState(Knowledge(), limits=SMALL)
    for turn in range(2):
        data = block.encode(FLOODS[kind](turn), pack=True)
        inspect(data, NODE, most_records=100_000, largest_bytes=64 << 20)
        reported(state, NODE, *block.decode(data))

    assert state.evidence_bytes <= SMALL.node_bytes
    assert state.failed == 0


@pytest.mark.system
def test_a_judgement_without_memory_costs_itself() -> None:
    """Records that need more memory than a judgement may take end its process: it abstains, and the next one is made."""
    judges = JudgeProcesses(Knowledge(), 60.0, 256 * MEGABYTE)
    count = 700_000
    dumps = [
        FlightRecorderDump(rank=rank, node="n1", count=count, columns={"record_id": bytes(8 * count)})
        for rank in range(9)
    ]
    try:
        judges.ask(Judge(incident="inc-1", cut=Cut(after=0, through=1, at=AT, looks=2), records=dumps))
        large, failed = _ended(judges)
        judges.ask(Judge(incident="inc-2", cut=Cut(after=0, through=1, at=AT, looks=2), records=()))
        small, _ = _ended(judges)
    finally:
        judges.close()

    assert failed
    assert (large.verdict.abstained, bool(large.verdict.missing)) == (True, True)
    assert (small.incident, "could not be judged" in str(small.verdict.missing)) == ("inc-2", False)


def _ended(judges: JudgeProcesses) -> tuple[Judged, list[JudgeFailure]]:
    failed: list[JudgeFailure] = []
    for _ in range(60_000):
        for one in judges.turn():
            if isinstance(one, Judged):
                return one, failed
            failed.append(one)
        time.sleep(0.005)
    raise AssertionError(f"no judgement ended: {failed}")
