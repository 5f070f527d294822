"""Records as agents send them: a minute of four nodes of an eight-rank job, every live kind among them."""

from __future__ import annotations

from array import array

from collectors.records import (
    RING_COLUMNS,
    STEP_COLUMNS,
    TIMING_COLUMNS,
    CollectiveTimings,
    CollectorReport,
    CommandResult,
    Coverage,
    Device,
    DeviceState,
    Members,
    Placement,
    ProcessState,
    Record,
    Ring,
    RoleState,
    Samples,
    Steps,
)

CODES = {"<i8": "q", "<i4": "i", "<i1": "b", "<f8": "d"}


def columns(types: dict[str, str], **values: list[float]) -> dict[str, bytes]:
    """Return columns of one length; those not given are zero."""
    count = len(next(iter(values.values())))
    given = {name: values.get(name, [0] * count) for name in types}
    return {name: array(CODES[types[name]], column).tobytes() for name, column in given.items()}


def samples(node: str, at: float, device: str = "GPU-5a") -> tuple[Samples, ...]:
    """Return two ticks of a gauge and a counter of one device."""
    known = {"node": node, "source": "gpu", "at": at, "monotonic_at": 500.0, "scope": "gpu", "devices": (device,)}
    ticks = {"ticks": array("d", [at, at + 10]).tobytes(), "monotonic_ticks": array("d", [500.0, 510.0]).tobytes()}
    power, replays = array("f", [310.5, 312.0]).tobytes(), array("q", [3, 3]).tobytes()
    return (
        Samples(**known, **ticks, metrics=("power_watts",), values=power),
        Samples(**known, **ticks, metrics=("pcie_replays_total",), type="<i8", values=replays),
    )


def minute(node: str, ranks: list[int], at: float) -> tuple[Record, ...]:
    """Return what the agent of one node of a healthy job sends in a minute: it accuses nobody."""
    report = CollectorReport(name="gpu", every_seconds=10.0, runs=6, records=12, seconds=0.03, longest_seconds=0.01)
    whose = {"node": node, "job": "llama-8b", "attempt": 1}
    placed = Placement(
        **whose, source="placement", at=at, ranks=Members.of(ranks), nodes=(node,) * len(ranks), world_size=8,
        pids=tuple(100 + rank for rank in ranks), local_ranks=tuple(range(len(ranks))), launcher="torchrun",
    )  # fmt: skip
    ended = columns(STEP_COLUMNS, step=[41, 42], at=[at - 2, at - 1], seconds=[1.0, 1.0], loss=[2.5, 2.4])
    timings = columns(TIMING_COLUMNS, operation=[0], sequence=[881], bytes=[1 << 20], seconds=[0.002], at=[at])
    entered = columns(RING_COLUMNS, group=[0], operation=[1], collective_seq=[881], entered_ns=[1], left_ns=[2])
    own: list[Record] = [
        *samples(node, at),
        Device(node=node, at=at, source="gpu", type="gpu", id="GPU-5a", index=0, pci="0000:9b:00", name="H200"),
        DeviceState(node=node, at=at, source="gpu", device="GPU-5a", state="ok", index=0, pci="0000:9b:00"),
        placed,
        Coverage(node=node, at=at, agent_version="0.1.0", started_at=at - 60, collectors=(report,)),
        CommandResult(node=node, at=at, command="c1", verb="stacks", records=len(ranks)),
        RoleState(
            **whose, source="roles", at=at, role="trainer", instance=str(ranks[0]), phase="train", phase_since=at - 9,
            epoch=1, weights=41, steps_total=41, renewed_at=at - 2, answers=True, state="serving",
        ),
    ]  # fmt: skip
    for rank in ranks:
        mine = {**whose, "rank": rank, "at": at}
        own += [
            ProcessState(**mine, source="process", pid=100 + rank, state="S", cpu_seconds=12.5, started_at=at - 90),
            Ring(**mine, source="ring", pid=100 + rank, strings=("0", "all_reduce"), count=1, columns=entered),
            Steps(**mine, source="steps", told_by="probe", count=2, columns=ended),
            CollectiveTimings(
                **mine, source="inspector", communicator="0x1", size=8, strings=("AllReduce",), count=1, columns=timings
            ),
        ]
    return tuple(own)
