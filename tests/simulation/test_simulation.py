"""The simulator alone: its jobs run, its hangs are what they claim, its dumps are what the reader makes of its files."""

from __future__ import annotations

import io
from array import array
from collections import Counter
from pathlib import Path

import pytest

from collectors.formats import Input, registry
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump
from service.evaluation.proportions import interval
from simulation import oracle
from simulation.execution import NEVER, Job, execute
from simulation.faults import Fault
from simulation.files import NAMES, Format, encode
from simulation.programs import Kind, Shape
from simulation.recorder import Recording, dumps
from simulation.scenarios import HEALTHY, KINDS, draw, play
from tests.support.dump_files import write_files

SHAPES = (
    Shape(tp=2, pp=4, dp=2, ep=4),
    Shape(tp=2, pp=2, dp=2, batched=False),
    Shape(tp=1, pp=3, dp=2, batched=False, barrier=True),
    Shape(tp=4, pp=8, dp=1, microbatches=2, sync_transfers=True),
    Shape(tp=2, pp=2, dp=4, ep=8, order=("tp", "pp", "dp"), style="mesh"),
    Shape(tp=1, pp=1, dp=8),
)
TEXT_COLUMNS = ("group", "operation", "input_sizes", "output_sizes", "dtypes", "frames")
CODES = {"<i8": "q", "<i4": "i", "<i1": "b"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_job_without_a_fault_ends(shape: Shape) -> None:
    """Nothing waits for ever: every operation of every rank ends, after it was launched and reached."""
    trace = execute(Job.of(shape))

    for rank, program in enumerate(trace.job.programs):
        for index, operation in enumerate(program.operations):
            if operation.kind in (Kind.COLLECTIVE, Kind.TRANSFER):
                assert 0 < trace.created[rank][index] <= trace.ready[rank][index] < trace.done[rank][index]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_members_leave_a_collective_together(shape: Shape) -> None:
    """A collective ends at one instant on all members, and no earlier than its last member arrives."""
    trace = execute(Job.of(shape))

    for members, dimension in zip(trace.job.groups.members, trace.job.groups.dimension, strict=True):
        places = [
            [
                index
                for (name, part, _), index in trace.job.programs[rank].places.items()
                if name == dimension and not part
            ]
            for rank in members
        ]
        for operation in zip(*places, strict=True):
            ends = {trace.done[rank][index] for rank, index in zip(members, operation, strict=True)}
            arrivals = [trace.ready[rank][index] for rank, index in zip(members, operation, strict=True)]
            assert len(ends) == 1
            assert max(arrivals) < ends.pop()


def test_a_stopped_host_stops_everybody() -> None:
    """One rank that never launches a collective leaves no rank at the end of its program, and itself nothing started."""
    shape = Shape(tp=2, pp=2, dp=4)
    stage = Job.of(shape).stages[0]
    place = stage.places["tp", None, 20]
    trace = execute(Job.of(shape), [Fault("never_entered", 4, place)])

    assert trace.created[4][place] == NEVER
    assert all(NEVER in (trace.done[rank][i] for i in stage.places.values()) for rank in range(8))


def test_a_stuck_device_lets_its_host_run_ahead() -> None:
    """Behind a kernel that never ends the host launches operations which the device never reaches."""
    shape = Shape(tp=2, pp=1, dp=4)
    operations = Job.of(shape).stages[0].operations
    kernel = next(i for i, operation in enumerate(operations) if i > 40 and operation.kind is Kind.COMPUTE)
    trace = execute(Job.of(shape), [Fault("device", 3, kernel)])

    launched = [i for i in range(kernel, len(operations)) if trace.created[3][i] != NEVER]
    assert launched
    assert all(trace.ready[3][i] == NEVER for i in launched)
    assert trace.ready[2][launched[0]] != NEVER  # its tensor-parallel peer is in the collective that it is not


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in HEALTHY])
def test_every_fault_hangs_the_job(kind: str) -> None:
    """Each kind of fault keeps the job from ending; only `outside` leaves nothing outstanding."""
    for seed in range(KINDS.index(kind), KINDS.index(kind) + 3 * len(KINDS), len(KINDS)):
        trace = play(draw(seed, most_ranks=64)).trace
        columns = list(zip(trace.created, trace.done, strict=True))
        outstanding = sum(
            c != NEVER and d == NEVER for created, done in columns for c, d in zip(created, done, strict=True)
        )
        unlaunched = sum(
            trace.created[rank][index] == NEVER
            for rank, program in enumerate(trace.job.programs)
            for index in program.places.values()
        )
        assert unlaunched > 0
        assert (outstanding == 0) is (kind == "outside")


def test_two_culprits_may_be_drawn() -> None:
    """Some seeds have two culprits, and no seed has one rank fail twice."""
    counts = Counter()
    for seed in range(0, 8 * len(KINDS), len(KINDS)):
        faults = draw(seed).faults
        counts[len(faults)] += 1
        assert len({fault.rank for fault in faults}) == len(faults)
    assert counts[1]
    assert counts[2]


def test_the_same_seed_gives_the_same_dumps() -> None:
    """A seed decides everything: two runs record equal dumps."""
    assert play(draw(7)).records() == play(draw(7)).records()


def decoded(dump: FlightRecorderDump) -> dict[str, list[object]]:
    """Return a dump's columns with their texts instead of places in its string table."""
    columns: dict[str, list[object]] = {}
    for name, code in FLIGHT_RECORDER_COLUMNS.items():
        values = list(array(CODES[code], dump.columns[name]))
        columns[name] = (
            [dump.strings[value] if value >= 0 else "" for value in values] if name in TEXT_COLUMNS else values
        )
    return columns


@pytest.mark.parametrize("format", ["pickle", "json"])
@pytest.mark.parametrize("seed", [0, 1, 5, 8, 11])
def test_records_equal_their_files(seed: int, format: Format) -> None:
    """What the simulator hands over directly is what the readers make of the files that it writes."""
    reader = next(found for found in registry() if found.name == f"flight_recorder_{format}")
    for dump in play(draw(seed, most_ranks=32)).records():
        if not isinstance(dump, FlightRecorderDump):
            continue
        data = encode(dump, format)
        assert reader.sniff(data[:65536], "dump") > 50
        (read,) = reader.read(Input(dump.source, io.BytesIO(data), data[:65536], dump.rank, None, dump.at))
        assert isinstance(read, FlightRecorderDump)
        if dump.count or format == "pickle":
            assert decoded(read) == decoded(dump)
        assert (read.rank, read.groups, read.count) == (dump.rank, dump.groups, dump.count)
        assert (read.version, read.library_version) == (dump.version, dump.library_version)
        assert {name: bytes(data) for name, data in read.pg_status.items()} == dump.pg_status


def test_files_carry_the_instant_of_their_dump(tmp_path: Path) -> None:
    """A file's name holds its rank, and its modification time is when it was dumped."""
    records = [record for record in play(draw(0, most_ranks=16)).records() if isinstance(record, FlightRecorderDump)]
    for name in NAMES:
        paths = write_files(records, tmp_path / name[:5], name=name)
        assert [path.name.endswith(f"_{dump.rank}") for path, dump in zip(paths, records, strict=True)]
        assert all(abs(path.stat().st_mtime - (dump.at or 0)) < 1e-3 for path, dump in zip(paths, records, strict=True))


def test_timing_decides_what_is_started() -> None:
    """Without timing no entry is ever `started`; with it, what waits on a device is."""
    trace = execute(Job.of(Shape(tp=2, pp=1, dp=4)), [Fault("never_entered", 3, 60)])
    at = (trace.idle_at + 10**10,) * 8

    def states(*, timing: bool) -> set[int]:
        return {state for dump in dumps(trace, Recording(at, timing=timing)) for state in dump.columns["state"]}

    assert states(timing=False) == {0, 2}
    assert states(timing=True) == {0, 1, 2}


def test_a_coalesced_batch_is_watched_as_a_whole() -> None:
    """The parts of a batch stay scheduled even after the batch ended; the coalesced entry behind them completes."""
    trace = execute(Job.of(Shape(tp=1, pp=2, dp=4)))
    (dump, *_) = dumps(trace, Recording((trace.idle_at + 10**9,) * 8))
    columns = decoded(dump)
    states = Counter(zip((str(name)[:9] for name in columns["operation"]), columns["state"], strict=True))

    assert states["nccl:coal", 2]
    assert states["nccl:send", 0]
    assert not states["nccl:send", 2]


@pytest.mark.system
def test_the_oracle_knows_what_cannot_be_known() -> None:
    """A stuck device is decided with timing and open without; two members that disagree are both meant."""
    decided = {True: 0, False: 0}
    for seed in range(KINDS.index("device"), 14 * len(KINDS), len(KINDS)):
        played = play(draw(seed, most_ranks=32))
        if len(played.scenario.faults) == 1:
            truth = oracle.judge(played)
            decided[truth.decided] += 1
            assert truth.ranks == {played.scenario.faults[0].rank}
            assert played.scenario.recording.timing or not truth.decided
    assert min(decided.values()) > 0


def test_bounds_are_clopper_pearson() -> None:
    """The 95 % bounds agree with published values: 0 of 10, 10 of 10, 5 of 10, 438 of 440."""
    assert interval(0, 10) == (0.0, 0.3085)
    assert interval(10, 10) == (0.6915, 1.0)
    assert interval(5, 10) == (0.1871, 0.8129)
    assert interval(438, 440) == (0.9837, 0.9994)
