"""The first day's batch is read forever: every kind of record, as an agent of today writes it."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import get_args

from collectors.records import (
    OP_COLUMNS,
    RING_COLUMNS,
    STEP_COLUMNS,
    STRAGGLER_COLUMNS,
    TIMING_COLUMNS,
    AnyRecord,
    CollectiveTimings,
    CollectorReport,
    CommandResult,
    Coverage,
    Device,
    DeviceState,
    Frame,
    Group,
    Members,
    OpTimings,
    Placement,
    ProcessState,
    Profile,
    Record,
    Ring,
    RoleState,
    Samples,
    StackShare,
    Steps,
    StragglerReports,
    block,
)
from tests.collectors.records.test_block import one_of_each

GOLDEN = Path(__file__).parents[2] / "golden"
# A later kind has a batch of its own.
NAMES = ("batch", "role_states", "op_timings", "straggler_reports", "profile")
BATCH, ROLE_STATES, OPERATIONS, STRAGGLERS, PROFILES = (GOLDEN / f"{name}_v1.fhb" for name in NAMES)
CODES = {"<i8": "q", "<i4": "i", "<i1": "b", "<f8": "d"}


def columns(types: dict[str, str], *names: str) -> dict[str, bytes]:
    """Two values for each of these columns."""
    return {name: array(CODES[types[name]], [1, 2]).tobytes() for name in names}


def live_records() -> list[Record]:
    """Every kind that only agents make, with what its first day's fields hold."""
    world = Members.of(range(8))
    whose = {"node": "gpu-0413", "boot_id": "0b7c", "at": 1758581240.25, "monotonic_at": 9000.5}
    rank = {"job": "llama", "attempt": 2, "rank": 3, "role": "trainer"}
    return [
        Samples(
            **whose, source="gpu", scope="gpu", devices=("GPU-1",), metrics=("power_watts", "temperature_celsius"),
            ticks=array("d", [1758581240.25, 1758581250.25]).tobytes(),
            monotonic_ticks=array("d", [9000.5, 9010.5]).tobytes(),
            values=array("f", [301.5, 302.5, 61.0, 62.0]).tobytes(),
        ),
        Samples(**whose, scope="pressure", type="<i8", devices=("",), metrics=("x_total",), values=b"\0" * 8),
        Device(**whose, type="gpu", id="GPU-1", index=0, pci="0000:9b:00", name="H200", serial="7", attributes={"a": "b"}),
        DeviceState(**whose, device="GPU-1", state="lost", index=0, pci="0000:9b:00", text="GPU is lost"),
        Ring(
            **whose, **rank, pid=7, backend="gloo", groups=(Group("0", "default_pg", world),), strings=("0", "all_reduce"),
            count=2, columns=columns(RING_COLUMNS, "group", "collective_seq", "entered_ns", "left_ns"), overwritten=4,
        ),
        Steps(**whose, **rank, told_by="megatron", count=2, columns=columns(STEP_COLUMNS, "step", "at", "seconds", "loss")),
        CollectiveTimings(
            **whose, **rank, communicator="0x1", size=8, communicator_rank=3, strings=("AllReduce",), count=2,
            columns=columns(TIMING_COLUMNS, "operation", "sequence", "bytes", "seconds"),
        ),
        Coverage(
            **whose, agent_version="0.1.0", started_at=1758581000.0, dropped_batches=1, dropped_records=9,
            dropped_from=1758581000.0, dropped_until=1758581010.0,
            collectors=(CollectorReport(name="gpu", every_seconds=10.0, runs=6, nothing=1, failures=2, error="no"),),
        ),
        CommandResult(**whose, command="c1", verb="stacks", outcome="denied", text="no"),
        Placement(
            **whose, job="llama", attempt=2, ranks=world, nodes=("gpu-0413",) * 8, pids=tuple(range(100, 108)), world_size=8,
            local_ranks=tuple(range(8)), launcher="torchrun", labels={"SLURM_JOB_ID": "1"},
        ),
        ProcessState(**whose, **rank, pid=100, state="X", signal=9, started_at=1758581000.0, cpu_seconds=4.5),
    ]  # fmt: skip


def test_every_kind_is_in_the_batch() -> None:
    """The batch has a record of each kind there is, so that none can be retyped unnoticed."""
    kinds = {
        type(record)
        for path in (BATCH, ROLE_STATES, OPERATIONS, STRAGGLERS, PROFILES)
        for record in block.decode(path.read_bytes())
    }

    assert kinds == set(get_args(AnyRecord))


def test_the_first_day_s_batch_is_read_forever() -> None:
    """The packed batch of the first day decodes to the same records in every later version."""
    decoded = block.decode_counting(BATCH.read_bytes())

    assert decoded.records == one_of_each() + live_records()
    assert decoded.skipped == {}


def role_states() -> list[Record]:
    """What four sources say of the roles of a job, with what the first day's fields hold."""
    rollout = {
        "node": "gpu-0413",
        "job": "rl-math",
        "attempt": 2,
        "role": "rollout",
        "instance": "3",
        "at": 1758581240.25,
    }
    return [
        RoleState(
            **rollout, source="directory", pid=4242, epoch=12, phase="generate", phase_since=1758581200.5, weights=41,
            renewed_at=1758581238.0, state="serving",
        ),
        RoleState(
            **rollout, source="http://10.0.0.7:8000/metrics", requests_running=8, requests_waiting=2, tokens_total=90210,
            last_token_at=1758581239.5, answers=True,
        ),
        RoleState(
            source="probe", role="trainer", instance="0", rank=0, phase="wait", waiting_for="queue:experience",
            waiting_since=1758581210.0, steps_total=41,
        ),
        RoleState(source="train.log:812", role="queue", instance="experience", queue_depth=0),
    ]  # fmt: skip


def test_the_first_day_s_role_states_are_read_forever() -> None:
    """A reading of a role decodes to the same record in every later version."""
    assert block.decode_counting(ROLE_STATES.read_bytes()).records == role_states()


def operations() -> list[Record]:
    """A rank's part of a trace of operations."""
    return [
        OpTimings(
            source="trace.parquet", rank=3, node="gpu-0413", told_by="op_trace", coordinates={"pp": 1, "dp": 0},
            device_model="H200", strings=("forward-compute", "forward-send"), count=2,
            columns=columns(OP_COLUMNS, "operation", "step", "started", "duration", "microbatch", "chunk", "work"),
        ),
    ]  # fmt: skip


def test_the_first_operations_are_read_forever() -> None:
    """As above, of the kind that traces give."""
    assert block.decode(OPERATIONS.read_bytes()) == operations()


def stragglers() -> list[Record]:
    """What a detector inside a job reported of two ranks."""
    return [
        StragglerReports(
            source="rank0.log", node="gpu-0413", told_by="megatron", world_size=64, sizes={"tp": 8, "pp": 2}, reports=3, listed=4,
            strings=("seconds", "gpu-0413"), count=2,
            columns=columns(STRAGGLER_COLUMNS, "report", "at", "rank", "node", "quantity", "value"),
        ),
    ]  # fmt: skip


def test_the_first_reports_of_stragglers_are_read_forever() -> None:
    """As above, of the kind that detectors inside a job give."""
    assert block.decode(STRAGGLERS.read_bytes()) == stragglers()


def profiles() -> list[Record]:
    """Where a sampling profiler found the main thread of a rank."""
    stack = StackShare(
        frames=(Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2810), Frame("train", "train.py")),
        samples=96,
    )
    whose = {"node": "gpu-0413", "job": "llama", "attempt": 2, "rank": 3, "role": "trainer", "at": 1758581240.25}
    return [Profile(**whose, source="profile/100", pid=100, seconds=10.0, samples=118, stacks=(stack,))]


def test_the_first_profile_is_read_forever() -> None:
    """As above, of the kind that a sampling profiler gives."""
    assert block.decode(PROFILES.read_bytes()) == profiles()
