"""What the events of one rank's trace are: steps, operations, kernels, communication, the loader, the optimizer.

Names as torch.profiler writes them: ``ProfilerStep#7``, ``Optimizer.step#AdamW.step``, ``enumerate(DataLoader)#….__next__``,
``autograd::engine::evaluate_function: …``, ``gloo:all_reduce``, ``nccl:all_reduce``, ``c10d::allreduce_``,
``record_param_comms``; kernels of NCCL, RCCL, DeepEP, userbuffers and custom all-reduces by their own. Older versions call the
categories ``Operator``, ``Kernel`` and ``Memcpy``.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeGuard

from collectors.formats.traces.kineto.spans import Span, Spans

MOST_SPANS = 1_000_000  # 200 bytes each, once sorted
MOST_STEPS = 100_000
MOST_THREADS = 1_024
LATEST = 1e18  # microseconds

Thread = Hashable
_STEP = re.compile(r"ProfilerStep#(\d{1,15})$")
_LOADER = "enumerate(DataLoader)#"
_OPTIMIZER = "Optimizer.step#"
_ENGINE = "autograd::engine::evaluate_function"
_FORWARD = re.compile(r"(?:DistributedDataParallel|FullyShardedDataParallel|FSDP\w*)[.:]\w*forward")
_HOST_COMMUNICATION = re.compile(r"(?:gloo|nccl|ucc|mpi|xccl|hccl|c10d|_?c10d_functional|symm_mem):|record_param_comms")
_DEVICE_COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|hccl|nvshmem|deep_?ep|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|sendrecv"
    "|userbuffers",
    re.IGNORECASE,
)
_LAUNCHES = ("nccl:", "xccl:", "hccl:")
_ALL_TO_ALL = re.compile(r"all_?to_?all|deep_?ep", re.IGNORECASE)
_EXPERTS = re.compile(r"moe|expert|grouped_?(?:gemm|mm)|gemm_?grouped", re.IGNORECASE)
_TRANSFER = re.compile(r"(?<![a-z])(?:send|recv)|sendrecv", re.IGNORECASE)


def _by_thread() -> defaultdict[Thread, Spans]:
    return defaultdict(Spans)


@dataclass(slots=True)
class KinetoSpans:
    """Spans by what they are; those of the host by thread. ``over``: events beyond the bounds."""

    steps: dict[int, tuple[Thread, Span]] = field(default_factory=dict)
    device_steps: dict[int, Span] = field(default_factory=dict)
    operations: defaultdict[Thread, Spans] = field(default_factory=_by_thread)
    backward: defaultdict[Thread, Spans] = field(default_factory=_by_thread)
    forward: defaultdict[Thread, Spans] = field(default_factory=_by_thread)
    optimizer: defaultdict[Thread, Spans] = field(default_factory=_by_thread)
    loader: defaultdict[Thread, Spans] = field(default_factory=_by_thread)
    communication: defaultdict[Thread, Spans] = field(default_factory=_by_thread)
    kernels: Spans = field(default_factory=Spans)
    device_communication: Spans = field(default_factory=Spans)
    device_optimizer: Spans = field(default_factory=Spans)
    launches: bool = False  # of collectives, whose times on the host are no more than that
    transfers: bool = False
    all_to_all: bool = False
    experts: bool = False  # kernels of a mixture of them
    spans: int = 0
    over: int = 0

    def add(self, event: Any) -> None:
        """Add an event; what is none of a known kind, or has no time that can be, is passed over."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        category, name, begin, took = (event.get(key) for key in ("cat", "name", "ts", "dur"))
        if not (isinstance(name, str) and isinstance(category, str) and _is_number(begin) and _is_number(took)):
            return
        begin, end = float(begin), float(begin) + float(took)
        if not (abs(begin) < LATEST and begin < end < LATEST):
            return
        thread = f"{event.get('pid')}/{event.get('tid')}"[:100]
        match category.lower():
            case "cpu_op" | "operator" | "user_annotation":
                if not self._annotation(name, thread, begin, end) and category != "user_annotation":
                    self._operation(name, thread, begin, end)
            case "kernel" | "gpu_memcpy" | "gpu_memset" | "memcpy" | "memset":
                self._kernel(name, event.get("args"), begin, end)
            case "gpu_user_annotation":
                if name.startswith(_OPTIMIZER):
                    self._keep(self.device_optimizer, begin, end)
                elif (step := _STEP.match(name)) and len(self.device_steps) < MOST_STEPS:
                    old = self.device_steps.get(int(step[1]), (begin, end))
                    self.device_steps[int(step[1])] = (min(old[0], begin), max(old[1], end))

    def _annotation(self, name: str, thread: Thread, begin: float, end: float) -> bool:
        """Keep what its name explains, and return whether it does; older profilers call an annotation an operator."""
        if step := _STEP.match(name):
            if len(self.steps) < MOST_STEPS:
                self.steps.setdefault(int(step[1]), (thread, (begin, end)))
            else:
                self.over += 1
            return True
        for known, kept in (
            (name.startswith(_LOADER), self.loader),
            (name.startswith(_OPTIMIZER), self.optimizer),
            (_FORWARD.match(name), self.forward),
            (_HOST_COMMUNICATION.match(name), self.communication),
        ):
            if known:
                self._keep_by(kept, thread, begin, end)
                if kept is self.communication:
                    self.launches |= name.startswith(_LAUNCHES)
                    self._communicates(name)
                return True
        return False

    def _operation(self, name: str, thread: Thread, begin: float, end: float) -> None:
        self._keep_by(self.operations, thread, begin, end)
        if name.startswith(_ENGINE):
            self._keep_by(self.backward, thread, begin, end)

    def _kernel(self, name: str, args: Any, begin: float, end: float) -> None:
        called = args.get("Collective name") if isinstance(args, dict) else None
        if isinstance(called, str) or _DEVICE_COMMUNICATION.search(name):
            self._communicates(called if isinstance(called, str) else name)
            self._keep(self.device_communication, begin, end)
        else:
            self.experts = self.experts or _is_of_experts(name)
            self._keep(self.kernels, begin, end)

    def _communicates(self, name: str) -> None:
        if _ALL_TO_ALL.search(name):
            self.all_to_all = True
        elif _TRANSFER.search(name):
            self.transfers = True

    def _keep_by(self, kept: defaultdict[Thread, Spans], thread: Thread, begin: float, end: float) -> None:
        if thread in kept or len(kept) < MOST_THREADS:
            self._keep(kept[thread], begin, end)
        else:
            self.over += 1

    def _keep(self, kept: Spans, begin: float, end: float) -> None:
        if self.spans >= MOST_SPANS:
            self.over += 1
        else:
            self.spans += kept.add(begin, end)


@lru_cache(4_096)
def _is_of_experts(kernel: str) -> bool:
    return _EXPERTS.search(kernel) is not None


def _is_number(value: Any) -> TypeGuard[float]:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LATEST and math.isfinite(value)
    )
