"""The words of rank programs: operations in host order, the job's shape, its process groups.

Ranks of a stage run the same program, so that 16,384 ranks cost as many programs as there are stages; a rank's groups
bind the program to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple


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
