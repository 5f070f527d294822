"""What every analyzer promises, whatever it looks at: pure, indifferent to order and names, and unhurt by bad input."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
import pytest

from analyzers import diagnosis
from analyzers.diagnosis import every_analyzer
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict, to_json
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats import Input, text_evidence
from collectors.records import (
    FLIGHT_RECORDER_COLUMNS,
    STEP_COLUMNS,
    WHOLE_TEXT,
    AnyRecord,
    CollectiveTimings,
    FlightRecorderDump,
    Frame,
    Group,
    KernelEvent,
    LogEvent,
    Members,
    OpTimings,
    Placement,
    ProcessState,
    Profile,
    RasCommunicator,
    RasPeerDead,
    RasRank,
    Record,
    Ring,
    StackDump,
    StackShare,
    Steps,
    Thread,
    Unread,
)
from service.packaged_knowledge import load
from simulation.execution import Job, execute
from simulation.faults import Fault
from simulation.programs import Shape
from simulation.recorder import EPOCH_NS, Recording, dumps
from simulation.traces.collective_traces import CollectiveJob
from simulation.traces.op_traces import OpJob
from tests.support.collective_cases import timings
from tests.support.gray_fleet import GrayFleet, on
from tests.support.live_records import columns, minute
from tests.support.op_traces import simulated
from tests.support.role_readings import GENERATES, scene
from tests.support.straggler_logs import MegatronJob

NODES = ("gpu-b7", "gpu-a1", "gpu-d4", "gpu-c9")

Bundle = tuple[Record, ...]


def node_of(rank: int) -> str:
    """Two ranks a node."""
    return NODES[rank // 2]


def _stack(rank: int, *, stuck: bool, at: float) -> StackDump:
    where = Frame("check_loss_scale", "/srv/train.py", 21)
    waits = Frame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 3000)
    frames = (where if stuck else waits, Frame("train", "/srv/train.py", 50))
    thread = Thread(frames=frames, main=True, name="MainThread", owns_gil=stuck, active=stuck)
    source = f"stacks/rank_{rank}.json"
    return StackDump(
        source=source, rank=rank, pid=100 + rank, at=at, tool="py-spy", threads=(thread,), node=node_of(rank)
    )


def _process(rank: int, state: str) -> ProcessState:
    known = {"source": f"ps:{rank + 2}", "node": node_of(rank), "pid": 100 + rank, "elapsed_seconds": 90.0}
    return ProcessState(**known, state=state, command="python train.py")  # type: ignore[arg-type]


def _kernel(rank: int, code: int, at: float) -> KernelEvent:
    known = {"node": node_of(rank), "pci": f"0000:{rank % 2 + 1:02x}:00", "source": f"{node_of(rank)}/kern.log:{code}"}
    return KernelEvent(**known, event="xid", code=code, at=at, text=f"Xid {code}", pid=100 + rank)  # type: ignore[arg-type]


def _logged(rank: int, at: float, *, own: bool) -> LogEvent:
    message = "list index out of range" if own else "Connection closed by peer [10.0.0.7]:27558"
    kind = "IndexError" if own else "RuntimeError"
    known = {"source": f"logs/rank{rank}.log:9", "rank": rank, "node": node_of(rank), "at": at, "event": "traceback"}
    return LogEvent(**known, exception=kind, message=message, text=f"{kind}: {message}")  # type: ignore[arg-type]


def _ras(size: int, behind: int) -> RasCommunicator:
    rows = tuple(
        RasRank(
            rank=rank, host=node_of(rank), pid=100 + rank, gpu=rank % 2, counts={"AllReduce": 60 + 4 * (rank != behind)}
        )
        for rank in range(size)
    )
    return RasCommunicator(
        source="ras.txt", hash="1bdb83b038775869", size=size, status="RUNNING", errors="MISMATCH", ranks=rows
    )


def _dumped(*faults: Fault, late_s: float = 90.0) -> tuple[Bundle, float]:
    trace = execute(Job.of(Shape(tp=2, pp=2, dp=2), faults), faults)
    at_ns = trace.idle_at + int(late_s * 1e9)
    found = tuple(
        msgspec.structs.replace(one, node=node_of(one.rank or 0)) for one in dumps(trace, Recording((at_ns,) * 8))
    )
    return found, (EPOCH_NS + at_ns) / 1e9


def _placed() -> Placement:
    return Placement(source="hosts.txt", ranks=Members.of(range(8)), nodes=tuple(node_of(rank) for rank in range(8)))


def _trace() -> Iterator[OpTimings]:
    def slow(stage: int, replica: int, _step: int) -> float:
        return 1.5 if (stage, replica) == (0, 2) else 1.0

    for record in simulated(OpJob(stages=2, replicas=4, microbatches=2, steps=4, worker=slow)).records():
        yield msgspec.structs.replace(record, node=node_of(record.rank or 0))


def _timed() -> Iterator[CollectiveTimings]:
    job = CollectiveJob(tensor=2, replicas=4, steps=12, compute=lambda rank, _step: 1.6 if rank == 5 else 1.0)
    for record in timings(job):
        rank = (record.pid or 0) - 4000
        yield msgspec.structs.replace(record, rank=rank, node=node_of(rank))


def _reported() -> Iterator[Record]:
    text = MegatronJob(ranks=8, slow={5: 1.4}).log().encode()
    return text_evidence.read(Input("rank0.log", io.BytesIO(text), text))


PASTED = (
    "Since this morning checkpoints are not saved any more. The quota of the project's directory was reached on the parallel "
    "file system, and the disk of the server that exports it over NFS has no free space left; writing a file of the dataset "
    "fails with an input/output error, too."
)


def _profiled(rank: int, at: float) -> Profile:
    stacks = (StackShare(frames=(Frame(function="forward", file="train.py", line=31),), samples=90),)
    return Profile(source="agent", node=node_of(rank), rank=rank, at=at, seconds=10.0, samples=100, stacks=stacks)


@cache
def bundles() -> Mapping[str, Bundle]:
    """Jobs of eight ranks on four nodes, with every kind of record among them."""
    hang, at = _dumped(Fault("never_entered", 5, 90))
    deadlock, _ = _dumped(Fault("operation", 2, 91))
    stacks = tuple(_stack(rank, stuck=rank == 5, at=at) for rank in range(8))
    table = tuple(_process(rank, "T" if rank == 5 else "S") for rank in range(8))
    kernel = (_kernel(4, 79, at - 60), *(_kernel(rank, 45, at - 50) for rank in range(8)), _kernel(1, 31, at - 3000))
    log = tuple(_logged(rank, at + (rank != 3), own=rank == 3) for rank in range(8))
    damaged = (Unread(source="dumps/_dump_9", reason="the file is empty", outcome="empty"),)
    return {
        "hang": (*hang, _placed()),
        "hang and all else": (*hang, _placed(), *stacks, *table, *kernel, _ras(8, 5), *damaged),
        "without placement": tuple(msgspec.structs.replace(one, node=None) for one in (*hang, *stacks)),
        "wrong operation": (*deadlock, _placed()),
        "stacks": (*stacks, _placed()),
        "profiles": (*(_profiled(rank, at) for rank in range(8)), _placed()),
        "processes": (*table, *stacks),
        "hardware": (*kernel, _placed()),
        "crash": (*log, _placed()),
        "live": tuple(one for node in range(4) for one in minute(node_of(2 * node), [2 * node, 2 * node + 1], at)),
        "numeric": (
            Steps(
                source="train.log", told_by="plain", count=2, columns=columns(STEP_COLUMNS, step=[41, 42], nan=[0, 1])
            ),
            _placed(),
        ),
        "roles": tuple(scene({("rollout", "3"): {**GENERATES, "still_from": 300.0, "answers": True}})),
        "slow": (*_trace(), _placed()),
        "communication": (*_timed(), _placed()),
        "stragglers": (*_reported(), _placed()),
        "gray": (*GrayFleet(nodes=4, gpus=4, names=NODES, change=on(1, 2, width=8)).records(), _placed()),
        "text": (LogEvent(source="standard input", event=WHOLE_TEXT, message=PASTED),),
        "ras": (_ras(8, 5), RasPeerDead(source="ras.json", host=node_of(5), pid=105, gpus=(1,)), _placed()),
    }


ANALYZERS = tuple(every_analyzer())
BUNDLES = tuple(bundles())
over_all = pytest.mark.parametrize("name", ANALYZERS)
in_each = pytest.mark.parametrize("case", BUNDLES)


@cache
def knowledge() -> Knowledge:
    """The packaged knowledge, read once."""
    return load()


def claimed(name: str, records: Sequence[Record]) -> list[Finding]:
    """What one analyzer makes of these records."""
    window = Window.build(records)
    return list(every_analyzer()[name](window, infer(window), knowledge()))


def judged(records: Sequence[Record]) -> Verdict:
    """The verdict on these records."""
    window = Window.build(records)
    return judge(window, infer(window), knowledge())


def _wire(records: Sequence[Record]) -> bytes:
    return b"\n".join(repr(record).encode() for record in records)


def test_all_are_met() -> None:
    """The registry is what it is thought to be, and each analyzer has a bundle on which it claims something."""
    assert set(ANALYZERS) == {
        "crash",
        "gray",
        "hang",
        "hardware",
        "numeric",
        "process",
        "ras",
        "roles",
        "slow",
        "stacks",
        "text_class",
    }
    for name in ANALYZERS:
        assert any(claimed(name, records) for records in bundles().values()), name


@over_all
def test_an_analyzer_claims_nothing_without_the_records_it_reads(name: str) -> None:
    """What READS does not name decides nothing: the analyzer is not even imported where none of its kinds is there."""
    reads = diagnosis.registry()[name].reads
    for records in bundles().values():
        others = [record for record in records if record.__struct_config__.tag not in reads]
        assert claimed(name, others) == []


@over_all
def test_an_empty_window_gives_nothing(name: str) -> None:
    """Nothing was read: nothing is claimed."""
    assert claimed(name, ()) == []


@over_all
@in_each
def test_the_order_of_records_does_not_matter(name: str, case: str) -> None:
    """The same claims come out, in the same order, however the records arrive."""
    records = list(bundles()[case])
    expected = claimed(name, records)
    for seed in range(3):
        random.Random(seed).shuffle(records)
        assert claimed(name, records) == expected


@over_all
@in_each
def test_input_is_not_mutated_and_claims_are_deterministic(name: str, case: str) -> None:
    """Two runs over the same objects agree, and leave records and topology as they were."""
    records = bundles()[case]
    window = Window.build(records)
    topology = infer(window)
    before = (_wire(window.records), repr(topology))
    first = list(every_analyzer()[name](window, topology, knowledge()))
    assert list(every_analyzer()[name](window, topology, knowledge())) == first
    assert (_wire(window.records), repr(topology)) == before


def _renamed(value: object, names: Mapping[str, str]) -> object:
    """The same record, built anew, with other node names wherever one stands."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, tuple):
        return tuple(_renamed(one, names) for one in value)
    if isinstance(value, msgspec.Struct):
        fields = {name: _renamed(getattr(value, name), names) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


@in_each
@pytest.mark.parametrize("names", [("w", "x", "y", "z"), ("z", "y", "x", "w")], ids=["one order", "the other"])
def test_renaming_nodes_renames_the_verdict(case: str, names: tuple[str, ...]) -> None:
    """Judging a job with other node names is the same as replacing the names in the verdict, byte for byte."""
    renaming = dict(zip(NODES, (f"host-{name}{name}" for name in names), strict=True))
    records = [record for one in bundles()[case] if isinstance(record := _renamed(one, renaming), Record)]
    expected = to_json(judged(bundles()[case])).decode()
    assert to_json(judged(records)).decode() == _renamed(expected, renaming)


@in_each
def test_missing_records_never_crash(case: str) -> None:
    """Whatever part of the evidence is lost, every analyzer answers; none is recorded as failed."""
    records = bundles()[case]
    for seed in range(25):
        draws = random.Random(seed)
        kept = [record for record in records if draws.random() < draws.choice((0.2, 0.5, 0.9))]
        verdict = judged(kept)
        assert not [item.what for item in verdict.missing if "failed (" in item.what], (seed, verdict.missing)


def _spoilt(record: Record, draws: random.Random) -> Record:
    """A record as a broken writer might have left it: fields gone, columns short, missing, or full of noise."""
    changes: dict[str, object] = {}
    for field in msgspec.structs.fields(type(record)):
        if draws.random() < 0.25 and not field.required:
            changes[field.name] = None if field.name in _OPTIONAL else _default(field)
    if isinstance(record, FlightRecorderDump):
        changes["columns"] = {
            name: _noise(data, draws) for name, data in record.columns.items() if draws.random() < 0.9
        }
        changes["pg_status"] = {name: _noise(data, draws) for name, data in record.pg_status.items()}
        changes["strings"] = record.strings[: draws.randrange(len(record.strings) + 1)] if record.strings else ()
        changes["groups"] = (*record.groups[:2], Group("x"), Group("", "", Members.of([4000, -1])))
        changes["count"] = draws.choice((record.count, 0, record.count + 3))
    if isinstance(record, Ring | OpTimings | CollectiveTimings):
        changes["columns"] = {name: _noise(data, draws) for name, data in record.columns.items()}
    if isinstance(record, OpTimings):
        changes["coordinates"] = draws.choice((record.coordinates, {}, {"pp": -7}, {"dp": 1 << 40, "x": 0}))
    if isinstance(record, Ring):
        changes["groups"] = (*record.groups[:2], Group("x"), Group("", "", Members.of([4000, -1])))
    for name in ("rank", "pid"):
        if hasattr(record, name) and draws.random() < 0.2:
            changes[name] = draws.choice((None, -1, 0, 7, 99)) if name == "rank" else draws.choice((0, -1, 105))
    try:
        return msgspec.structs.replace(record, **changes)
    except ValueError:  # more rows than any column has: such a record is decoded nowhere
        return msgspec.structs.replace(record, **changes | {"count": 0})


_OPTIONAL = frozenset(
    {"at", "node", "rank", "pid", "job", "attempt", "pci", "code", "exception", "message", "exit_code"}
)


def _plain(field: msgspec.structs.FieldInfo) -> bool:
    return field.default is not msgspec.NODEFAULT


def _default(field: msgspec.structs.FieldInfo) -> object:
    made = field.default_factory
    return field.default if _plain(field) else made() if callable(made) else ()


def _noise(data: bytes, draws: random.Random) -> bytes:
    choice = draws.random()
    if choice < 0.7:
        return data
    if choice < 0.8:
        return data[: draws.randrange(len(data) + 1)]
    return draws.randbytes(len(data))


@in_each
def test_odd_records_never_crash(case: str) -> None:
    """Records without rank, time or columns, of wrong lengths, or full of noise cost no analyzer its answer."""
    for seed in range(16):
        draws = random.Random(seed)
        records = [_spoilt(record, draws) if draws.random() < 0.5 else record for record in bundles()[case]]
        verdict = judged(records)
        assert not [item.what for item in verdict.missing if "failed (" in item.what], (seed, verdict.missing)


def test_a_kind_that_nobody_knows_is_passed_over() -> None:
    """A record of a later version's kind changes nothing but the count of what was read."""

    class Weather(Record, frozen=True, kw_only=True, tag="weather"):
        degrees: float = 0.0

    records = bundles()["hang"]
    verdict = judged((*records, Weather(source="sky", degrees=21.0)))
    expected = judged(records)
    assert verdict.coverage.sources == {**expected.coverage.sources, "weather": 1}
    assert msgspec.structs.replace(verdict, coverage=expected.coverage) == expected


def test_every_kind_of_record_is_in_a_bundle() -> None:
    """The promises above are tried on every kind of record that there is."""
    met = {type(record) for records in bundles().values() for record in records}
    assert met == set(AnyRecord.__args__)


def test_columns_are_what_the_noise_is_made_for() -> None:
    """A dump of the bundles has every column, so that losing one is tried for each."""
    found = next(record for record in bundles()["hang"] if isinstance(record, FlightRecorderDump))
    assert set(found.columns) == set(FLIGHT_RECORDER_COLUMNS)
