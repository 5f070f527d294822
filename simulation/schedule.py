"""What a pipeline stage of a Megatron-style job launches, step by step.

The schedule is 1F1B without interleaving; the point-to-point order of even and odd stages, and the world group that
carries one direction where there are two stages, are Megatron-LM's (pipeline_parallel/p2p_communication.py).
"""

from __future__ import annotations

from simulation.programs import Kind, Operation, Part, Program, Shape

MICROSECOND = 1_000
MILLISECOND = 1_000_000


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
