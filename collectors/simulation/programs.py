"""What each rank of a Megatron-style job launches, in host order: a program a stage, bound to a rank by its groups.

Ranks of a stage run the same program, so that 16,384 ranks cost as many programs as there are stages. The schedule is
1F1B without interleaving; the point-to-point order of even and odd stages, and the world group that carries one
direction where there are two stages, are Megatron-LM's (pipeline_parallel/p2p_communication.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple

MICROSECOND = 1_000
MILLISECOND = 1_000_000


class Kind(IntEnum):
    """What an operation does to its host and its device."""

    COMPUTE = 0  # a kernel on the compute stream
    COLLECTIVE = 1  # on the communicator's stream; where it blocks, the compute stream waits for it
    TRANSFER = 2  # send or receive, one or several; a coalesced batch ends when all of its parts have
    WAIT = 3  # the compute stream waits for an earlier asynchronous operation
    SYNC = 4  # the host waits for its compute stream: loss.item(), a token count, torch.cuda.synchronize()
    HOST = 5  # the host works: the data loader, Python


class Part(NamedTuple):
    """One send or receive, to the stage ``offset`` away."""

    send: bool
    offset: int


class Operation(NamedTuple):
    """One line of a program. ``duration_ns`` is the kernel's, or the host's own."""

    kind: Kind
    dimension: str = ""
    name: str = ""
    sizes_in: str = "[]"
    sizes_out: str = "[]"
    dtype: str = "BFloat16"
    blocking: bool = True
    duration_ns: int = 0
    parts: tuple[Part, ...] = ()
    coalesced: bool = False
    target: int = -1  # WAIT: index of the operation waited for
    step: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """The job: parallel sizes and habits. ``order`` names the dimensions, fastest first."""

    tp: int = 2
    pp: int = 2
    dp: int = 2
    ep: int = 1  # expert-parallel size within a stage's tp × dp ranks; 1: a dense model
    microbatches: int = 4
    layers: int = 2
    steps: int = 3
    order: tuple[str, str, str] = ("tp", "dp", "pp")
    style: Literal["megatron", "mesh"] = "megatron"
    batched: bool = True  # batch_isend_irecv, or single sends and receives
    sync_transfers: bool = False  # torch.cuda.synchronize() after each batch, as older Megatron does
    barrier: bool = False
    pace: float = 1.0  # how much longer than a few milliseconds a layer computes
    pause_ns: int = 0  # every host stops so long before the middle step: a checkpoint

    @property
    def world(self) -> int:
        """Return how many ranks there are."""
        return self.tp * self.pp * self.dp

    def stride(self, dimension: str) -> int:
        """Return how far apart neighbours in a dimension are."""
        stride = 1
        for name in self.order[: self.order.index(dimension)]:
            stride *= int(getattr(self, name))
        return stride

    def coordinate(self, rank: int, dimension: str) -> int:
        """Return a rank's place in a dimension."""
        return rank // self.stride(dimension) % int(getattr(self, dimension))


DESCRIPTIONS = {
    "megatron": {
        "world": "default_pg",
        "dp": "DATA_PARALLEL_GROUP_WITH_CP",
        "mp": "MODEL_PARALLEL_GROUP",
        "tp": "TENSOR_MODEL_PARALLEL_GROUP",
        "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
        "embedding": "EMBEDDING_GROUP",
        "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    },
    "mesh": {
        "world": "default_pg",
        "dp": "mesh_dp",
        "mp": "mesh_tp_pp",
        "tp": "mesh_tp",
        "pp": "mesh_pp",
        "embedding": "undefined",
        "ep": "mesh_ep",
    },
}


@dataclass(frozen=True, slots=True)
class Groups:
    """Every process group: ``members[i]`` are group i's ranks, ``of[rank][dimension]`` is the rank's group."""

    members: tuple[tuple[int, ...], ...]
    dimension: tuple[str, ...]
    of: tuple[dict[str, int], ...]

    def name(self, group: int) -> str:
        """Return the name that PyTorch gives it: a running number."""
        return str(group)


def build_groups(shape: Shape) -> Groups:
    """Lay out the groups as Megatron does, world first."""
    members: list[tuple[int, ...]] = []
    dimension: list[str] = []
    of: list[dict[str, int]] = [{} for _ in range(shape.world)]
    for name in DESCRIPTIONS["megatron"]:
        blocks: dict[tuple[int, ...], list[int]] = {}
        for rank in range(shape.world):
            key = _block(shape, rank, name)
            if key is not None:
                blocks.setdefault(key, []).append(rank)
        for ranks in blocks.values():
            for rank in ranks:
                of[rank][name] = len(members)
            members.append(tuple(ranks))
            dimension.append(name)
    return Groups(tuple(members), tuple(dimension), tuple(of))


def _block(shape: Shape, rank: int, name: str) -> tuple[int, ...] | None:
    tp, dp, pp = (shape.coordinate(rank, dimension) for dimension in ("tp", "dp", "pp"))
    if name == "embedding" and pp not in (0, shape.pp - 1):
        return None
    if name == "ep":
        return (pp, (dp * shape.tp + tp) // shape.ep)
    keys = {"world": (), "dp": (tp, pp), "mp": (dp,), "tp": (dp, pp), "pp": (tp, dp), "embedding": (tp, dp)}
    return keys[name]


@dataclass(slots=True)
class Program:
    """A stage's operations, counted: ``nth[i]`` collectives of the same dimension came before operation i.

    ``places`` finds the n-th collective of a dimension, and the n-th send or receive of an ordered pair.
    """

    stage: int
    operations: list[Operation] = field(default_factory=list)
    nth: list[int] = field(default_factory=list)
    part_nth: dict[int, tuple[int, ...]] = field(default_factory=dict)
    places: dict[tuple[str, Part | None, int], int] = field(default_factory=dict)

    def number(self) -> Program:
        """Count operations per group and per ordered pair; call again after an edit."""
        seen: dict[str, int] = {}
        pairs: dict[tuple[str, Part], int] = {}
        self.nth, self.part_nth, self.places = [], {}, {}
        for index, operation in enumerate(self.operations):
            count = seen.get(operation.dimension, 0)
            self.nth.append(count)
            if operation.kind is Kind.COLLECTIVE:
                seen[operation.dimension] = count + 1
                self.places[operation.dimension, None, count] = index
            elif operation.kind is Kind.TRANSFER:
                numbers = []
                for part in operation.parts:
                    key = (operation.dimension, part)
                    numbers.append(pairs.get(key, 0))
                    pairs[key] = numbers[-1] + 1
                    self.places[operation.dimension, part, numbers[-1]] = index
                self.part_nth[index] = tuple(numbers)
        return self


class _Writer:
    """Appends a stage's operations; keeps the handles that are still to be waited for."""

    def __init__(self, shape: Shape, stage: int) -> None:
        self.shape, self.stage, self.step = shape, stage, 0
        self.program = Program(stage)
        self.handles: list[int] = []
        self.hidden = 1024 + 512 * (shape.tp > 1)

    def add(self, operation: Operation) -> int:
        self.program.operations.append(operation._replace(step=self.step))
        return len(self.program.operations) - 1

    def compute(self, milliseconds: float) -> None:
        self.add(Operation(Kind.COMPUTE, duration_ns=int(milliseconds * self.shape.pace * MILLISECOND)))

    def collective(
        self, dimension: str, name: str, sizes: tuple[int, int], *, blocking: bool = True, dtype: str = "BFloat16"
    ) -> int:
        if dimension in ("tp", "dp", "ep") and getattr(self.shape, dimension) == 1:
            return -1
        into, out = (f"[[{size},1,{self.hidden}]]" if size > 64 else f"[[{size}]]" for size in sizes)
        return self.add(Operation(Kind.COLLECTIVE, dimension, f"nccl:{name}", into, out, dtype, blocking, 300_000))

    def wait(self, handle: int) -> None:
        if handle >= 0:
            self.add(Operation(Kind.WAIT, target=handle))

    def sync(self) -> None:
        self.add(Operation(Kind.SYNC))

    def transfer(self, *parts: Part) -> None:
        """Exchange with the neighbouring stages; parts that point outside the pipeline vanish."""
        inside = tuple(part for part in parts if 0 <= self.stage + part.offset < self.shape.pp)
        if not inside:
            return
        if self.shape.batched:
            self.wait(self._send("pp", inside, coalesced=True))
            if self.shape.sync_transfers:
                self.sync()
            return
        even = self.stage % 2 == 0
        handles = [self._send(self._carrier(part, even=even), (part,)) for part in _in_turn(inside, even=even)]
        for handle in handles:
            self.wait(handle)

    def _carrier(self, part: Part, *, even: bool) -> str:
        # Two stages: the world group carries what odd stages send, so that both directions can overlap. [Megatron-LM]
        return "world" if self.shape.pp == 2 and part.send != even else "pp"

    def _send(self, dimension: str, parts: tuple[Part, ...], *, coalesced: bool = False) -> int:
        sizes = f"[[2048,1,{self.hidden}]]"
        return self.add(
            Operation(Kind.TRANSFER, dimension, "", sizes, sizes, "BFloat16", False, 500_000, parts, coalesced)
        )

    def layer(self, milliseconds: float) -> None:
        """Tensor-parallel gather and scatter around a block; experts exchange tokens where there are experts."""
        self.compute(milliseconds)
        self.collective("tp", "_all_gather_base", (2048, 2048 * self.shape.tp))
        self.compute(milliseconds)
        self.collective("tp", "_reduce_scatter_base", (2048 * self.shape.tp, 2048))
        if self.shape.ep > 1:
            self.collective("ep", "_all_gather_base", (16, 16 * self.shape.ep), dtype="Long")
            self.sync()  # the host reads how many tokens each expert gets
            self.collective("ep", "all_to_all", (2048, 0))
            self.compute(milliseconds)
            self.collective("ep", "all_to_all", (0, 2048))

    def forward(self) -> None:
        """One microbatch forward: the ends of the pipeline load data and broadcast it."""
        first, last = self.stage == 0, self.stage == self.shape.pp - 1
        if first or last:
            self.add(Operation(Kind.HOST, name="dataloader", duration_ns=200 * MICROSECOND))
            for _ in range(2):
                self.collective("tp", "broadcast", (32, 32), dtype="Long")
        for _ in range(self.shape.layers):
            self.layer(1.5)
        if last:
            self.collective("tp", "all_reduce", (8, 8), dtype="Float")

    def backward(self, *, reduce_gradients: bool) -> None:
        """One microbatch backward; the last one reduces gradient buckets on a stream of their own."""
        for _ in range(self.shape.layers):
            self.layer(3.0)
            if reduce_gradients:
                sizes = (4096 * self.shape.dp, 4096)
                self.handles.append(self.collective("dp", "_reduce_scatter_base", sizes, blocking=False, dtype="Float"))


def _in_turn(parts: tuple[Part, ...], *, even: bool) -> list[Part]:
    # Even stages send first where odd stages receive first, or both would wait. [Megatron-LM]
    sends_first = (Part(True, 1), Part(False, -1), Part(True, -1), Part(False, 1))
    receives_first = (Part(False, -1), Part(True, 1), Part(False, 1), Part(True, -1))
    return sorted(parts, key=(sends_first if even else receives_first).index)


def stage_program(shape: Shape, stage: int) -> Program:
    """Write the program of one pipeline stage for all steps."""
    writer = _Writer(shape, stage)
    for step in range(shape.steps):
        writer.step = step
        _one_step(writer)
    return writer.program.number()


def _one_step(writer: _Writer) -> None:
    shape = writer.shape
    pause = shape.pause_ns if writer.step == shape.steps // 2 else 0
    writer.add(Operation(Kind.HOST, name="step", duration_ns=100 * MICROSECOND + pause))
    next_in, next_out = Part(False, 1), Part(True, 1)
    previous_in, previous_out = Part(False, -1), Part(True, -1)
    warm = min(shape.pp - writer.stage - 1, shape.microbatches)
    steady = shape.microbatches - warm
    for _ in range(warm):
        writer.transfer(previous_in)
        writer.forward()
        writer.transfer(next_out)
    if steady:
        writer.transfer(previous_in)
    for index in range(steady):
        writer.forward()
        writer.transfer(next_out, next_in)
        writer.backward(reduce_gradients=index == steady - 1 and not warm)
        writer.transfer(previous_out, *(() if index == steady - 1 else (previous_in,)))
    for index in range(warm):
        writer.transfer(next_in)
        writer.backward(reduce_gradients=index == warm - 1)
        writer.transfer(previous_out)
    _finish(writer)


def _finish(writer: _Writer) -> None:
    """Close a step: gradients, embeddings, the norm, the optimizer, the parameters."""
    shape = writer.shape
    for handle in writer.handles:
        writer.wait(handle)
    writer.handles.clear()
    if shape.pp > 1 and writer.stage in (0, shape.pp - 1):
        writer.collective("embedding", "all_reduce", (4096, 4096), dtype="Float")
    writer.collective("mp", "all_reduce", (1, 1), dtype="Float")
    writer.sync()  # the host reads the gradient norm
    writer.compute(4.0)
    writer.collective("dp", "_all_gather_base", (4096, 4096 * shape.dp))
    if shape.barrier:
        writer.collective("world", "all_reduce", (1, 1), dtype="Float")
        writer.sync()


def build_programs(shape: Shape) -> list[Program]:
    """Write every stage's program."""
    return [stage_program(shape, stage) for stage in range(shape.pp)]
