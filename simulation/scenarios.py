"""A seed becomes a job, its faults and the way it was recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from collectors.records import Members, Placement, Record
from simulation.execution import Job, Trace, execute
from simulation.faults import Fault, FaultKind, next_collective
from simulation.programs import Groups, Kind, Operation, Program, Shape, build_groups
from simulation.recorder import Recording, dumps
from simulation.schedule import build_programs

ScenarioKind = Literal[FaultKind, "healthy", "healthy_twice", "pause"]
KINDS: tuple[ScenarioKind, ...] = (*get_args(FaultKind), "healthy", "healthy_twice", "pause")
HEALTHY: tuple[ScenarioKind, ...] = ("healthy", "healthy_twice", "pause")
PAIRABLE: tuple[FaultKind, ...] = ("never_entered", "device", "completion_lost")
RANKS_PER_NODE = 8
EXACT_ABOVE_RANKS = 256
RING = 200
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a seed decides before anything runs. ``recordings`` is filled in by ``play``."""

    seed: int
    kind: ScenarioKind
    shape: Shape
    faults: tuple[Fault, ...]
    recording: Recording
    placed: bool  # the records say which node hosts which rank


@dataclass(frozen=True, slots=True)
class Played:
    """A scenario that ran: its trace, and what was recorded, oldest snapshot first."""

    scenario: Scenario
    trace: Trace
    recordings: tuple[Recording, ...]

    def records(self) -> list[Record]:
        """Return what an analyzer gets to see."""
        found: list[Record] = [dump for recording in self.recordings for dump in dumps(self.trace, recording)]
        if self.scenario.placed:
            found.append(placement(self.scenario.shape.world))
        return found


def placement(world: int) -> Placement:
    """Place ranks on nodes in order, eight a node."""
    nodes = tuple(node_of(rank) for rank in range(world))
    return Placement(source="hosts.txt", ranks=Members.of(range(world)), nodes=nodes, world_size=world)


def node_of(rank: int) -> str:
    """Name the node that hosts a rank."""
    return f"node-{rank // RANKS_PER_NODE:04d}"


def draw(seed: int, most_ranks: int = 256, least_ranks: int = 8) -> Scenario:
    """Decide a scenario; kinds take turns, so that every run of consecutive seeds has all of them.

    Up to 256 ranks the size is drawn as well; a larger one is met exactly.
    """
    random = Random(seed * 1_000_003 + most_ranks)
    kind = KINDS[seed % len(KINDS)]
    while True:
        shape = _shape(random, kind, least_ranks, most_ranks)
        faults = _faults(random, kind, shape)
        if faults or kind in HEALTHY:
            break
    culprits = {fault.rank for fault in faults}
    without = frozenset(fault.rank for fault in faults if fault.kind == "gone")
    if kind not in HEALTHY and random.random() < 0.25:
        innocent = [rank for rank in range(shape.world) if rank not in culprits]
        without |= frozenset(random.sample(innocent, min(len(innocent), random.randint(1, 3))))
    recording = Recording(
        dumped_at_ns=(),
        version=random.choice(("2.4", "2.9", "2.10", "2.10")),
        timing=random.random() < 0.5,
        ring=RING,
        active_only=kind not in HEALTHY and random.random() < 0.3,
        stale=random.choice((0, 0, 0, 2)) if shape.tp > 1 and kind != "init" else 0,
        without=without,
        first_number=0 if kind == "init" else random.randrange(500, 90_000),
    )
    return Scenario(seed, kind, shape, faults, recording, random.random() < 0.5)


def _shape(random: Random, kind: ScenarioKind, least: int, most: int) -> Shape:
    while True:
        tp, pp, dp = random.choice((1, 2, 4, 8)), random.choice((1, 2, 2, 3, 4, 8)), 2 ** random.randrange(0, 12)
        if (least if most <= EXACT_ABOVE_RANKS else most) <= tp * pp * dp <= most:
            break
    experts = [size for size in (2, 4, 8, 16) if tp * dp % size == 0]
    shape = Shape(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=random.choice(experts) if experts and random.random() < 0.5 else 1,
        microbatches=random.choice((2, 4, 6)),
        layers=random.choice((1, 2)),
        steps=5 if kind in HEALTHY else 3,
        order=random.choice((("tp", "dp", "pp"), ("tp", "dp", "pp"), ("tp", "pp", "dp"))),
        style=random.choice(("megatron", "megatron", "mesh")),
        batched=random.random() < 0.5,
        sync_transfers=random.random() < 0.3,
        barrier=random.random() < 0.3,
        pace=random.uniform(10, 20) if kind in HEALTHY else random.uniform(0.5, 5),
        pause_ns=random.randrange(SECOND, 3 * SECOND) if kind == "pause" else 0,
    )
    if kind in HEALTHY or (most <= EXACT_ABOVE_RANKS and random.random() < 0.5):
        return shape
    return replace(shape, steps=_steps_to_fill_the_ring(shape))


def _steps_to_fill_the_ring(shape: Shape) -> int:
    """Return so many steps that the recorder is full when the last but one is struck; a step more, to run ahead into."""
    step = build_programs(replace(shape, steps=1))[0]
    a_step = sum(operation.kind in (Kind.COLLECTIVE, Kind.TRANSFER) for operation in step.operations)
    return -(-RING // a_step) + 2


def _faults(random: Random, kind: ScenarioKind, shape: Shape) -> tuple[Fault, ...]:
    """Choose who fails where, in the last step but one; () where this shape has no such place."""
    if kind == "healthy" or kind == "healthy_twice" or kind == "pause":  # noqa: PLR1714  (narrows the type)
        return ()
    groups, programs = build_groups(shape), build_programs(shape)
    if kind == "outside":
        starts = [_struck_step(program) for program in programs]
        return tuple(Fault("outside", rank, starts[shape.coordinate(rank, "pp")]) for rank in range(shape.world))
    kinds: list[FaultKind] = [kind]
    if kind in PAIRABLE and random.random() < 0.35:
        kinds.append(random.choice(PAIRABLE))
    elif kind == "gone" and random.random() < 0.35:
        kinds.append("gone")
    chosen: list[Fault] = []
    for one in kinds:
        rank = random.choice([rank for rank in range(shape.world) if rank not in {fault.rank for fault in chosen}])
        program = programs[shape.coordinate(rank, "pp")]
        places = [i for i in range(len(program.operations)) if _fits(one, program, i, rank, groups)]
        if not places:
            return ()
        chosen.append(Fault(one, rank, places[0] if one == "init" else random.choice(places)))
    return tuple(chosen)


def _struck_step(program: Program) -> int:
    """Return where the last step but one begins: hosts may run ahead into the last one and no further."""
    step = program.operations[-1].step - 1
    return next(i for i, operation in enumerate(program.operations) if operation.step == step)


def _fits(kind: FaultKind, program: Program, index: int, rank: int, groups: Groups) -> bool:
    """Whether this fault can strike at this operation."""
    operation = program.operations[index]
    launches = operation.kind in (Kind.COLLECTIVE, Kind.TRANSFER)
    if kind == "init":
        return launches and _size(groups, rank, operation) > 1
    if operation.step != program.operations[-1].step - 1:
        return False
    if kind in ("never_entered", "gone", "completion_lost"):
        return launches or operation.name == "dataloader"
    if kind == "device":
        return operation.kind is Kind.COMPUTE
    if _size(groups, rank, operation) < 2 or not (launches if kind == "network" else operation.kind is Kind.COLLECTIVE):
        return False
    if kind == "size" and operation.name == "nccl:all_to_all":
        return False  # uneven sizes are its purpose
    second = next_collective(program, index)
    follower = program.operations[second] if second >= 0 else operation
    if kind == "skip":
        # Seen only where what follows in the same group looks different.
        later = (o for o in program.operations[index + 1 :] if o.kind is Kind.COLLECTIVE)
        same = next((o for o in later if o.dimension == operation.dimension), operation)
        return same.name != operation.name
    if kind == "deadlock":
        return _cross(groups, rank, operation, follower)
    return True


def _size(groups: Groups, rank: int, operation: Operation) -> int:
    return len(groups.members[groups.of[rank][operation.dimension]]) if operation.dimension else 0


def _cross(groups: Groups, rank: int, first: Operation, second: Operation) -> bool:
    """Whether two operations deadlock when one rank swaps them: another rank must be in both groups."""
    if first.dimension == second.dimension or not (first.blocking and second.blocking):
        return False
    one, two = (set(groups.members[groups.of[rank][o.dimension]]) for o in (first, second))
    return len(one & two) > 1


def _end_of_pause(trace: Trace) -> int:
    """Return when rank 0's host launched again after the pause before the middle step."""
    operations, middle = trace.job.programs[0].operations, trace.job.shape.steps // 2
    return min(
        at for at, operation in zip(trace.created[0], operations, strict=True) if operation.step == middle and at > 0
    )


def play(scenario: Scenario) -> Played:
    """Run a scenario and decide when its ranks are dumped: within half a second of one another."""
    random = Random(scenario.seed)
    trace = execute(Job.of(scenario.shape, scenario.faults), scenario.faults)
    skew = [random.randrange(SECOND // 2) for _ in range(scenario.shape.world)]
    if scenario.kind in HEALTHY:
        first = int(trace.idle_at * random.uniform(0.4, 0.6))
        if scenario.kind == "pause":
            first = _end_of_pause(trace) - random.randrange(SECOND // 2, scenario.shape.pause_ns)
        instants = [first] + [first + int(trace.idle_at * 0.2)] * (scenario.kind == "healthy_twice")
    else:
        instants = [trace.idle_at + random.randrange(20 * SECOND, 300 * SECOND)]
    recordings = tuple(
        replace(scenario.recording, dumped_at_ns=tuple(instant + late for late in skew)) for instant in instants
    )
    return Played(scenario, trace, recordings)
