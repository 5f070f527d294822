"""A step's few parts, each as one operation: forward, backward, optimizer, communication, the loader.

Where a trace has kernels, a part's time is the union of them: host times measure launches there. Where it has none, the host
computes, and its own time is the step less the loader and communication; without communication in the trace a gap may be
a wait, and only what operations take counts. Communication that hides behind computation is no part of a step.

What a step did in pieces is put together, in the order of the pieces' first begins. So the parts of a step fill it; what a
device idled is a gap before them, and is compared with the gaps of other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectors.formats.traces.kineto.gathered import KinetoSpans, Thread
from collectors.formats.traces.kineto.spans import Cover, Span, Spans, minus, union

FORWARD, BACKWARD, OPTIMIZER = "forward-compute", "backward-compute", "optimizer-compute"
KERNELS, OPTIMIZER_KERNELS = "kernels-compute", "optimizer-kernels"
LOADER = "data-loader"
SHORTEST = 1e-9  # seconds, of a part that a step lacks and others have
MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True)
class Part:
    """An operation of a step. ``started``: seconds of the rank's own clock."""

    step: int
    name: str
    started: float
    seconds: float


def parts(gathered: KinetoSpans) -> Iterator[Part]:
    """Yield the parts of every step, in order."""
    communication = _named(gathered)
    if gathered.kernels.ends:
        yield from _of_device(gathered, communication)
    else:
        yield from _of_host(gathered, communication)


def _named(gathered: KinetoSpans) -> str:
    """Return a name for communication, with what it consists of: what it shows of the ranks' duties is judged elsewhere."""
    kinds = {"all-to-all": gathered.all_to_all, "send-recv": gathered.transfers, "experts": gathered.experts}
    return "-".join(["comm", *(name for name, known in kinds.items() if known)])


def _of_host(gathered: KinetoSpans, communication: str) -> Iterator[Part]:
    main = next(iter(gathered.steps.values()))[0]
    loads = _merged(gathered.loader, main)
    blocking = minus(_merged(gathered.communication, main), loads)
    threads = {main, *gathered.backward}
    busy = union(*(_merged(gathered.operations, thread) for thread in threads))
    elsewhere = union(*(_merged(gathered.communication, thread) for thread in gathered.communication if thread != main))
    waits = union(blocking, minus(minus(elsewhere, busy), loads))
    own = minus(busy, union(loads, blocking))
    not_own = Cover(union(loads, waits))
    computes, waiting, loading = Cover(own), Cover(waits), Cover(loads)
    marks = _marks(gathered, main, threads, loads)
    at = 0
    for step, (begin, end) in _windows(gathered):
        phases: dict[str, list[Span]] = {}
        phase, since = FORWARD, begin
        while at < len(marks) and marks[at][0] <= begin:
            at += 1
        while at < len(marks) and marks[at][0] < end:
            time, following = marks[at]
            phases.setdefault(phase, []).append((since, time))
            # A collective's work after the last backward operation belongs to it, until the optimizer or a forward begins.
            phase, since = following, time
            at += 1
        phases.setdefault(phase, []).append((since, end))
        found = {
            name: sum(computes.within(*one) if not waits else one[1] - one[0] - not_own.within(*one) for one in spans)
            for name, spans in phases.items()
        }
        begun = {name: spans[0][0] for name, spans in phases.items()}
        found[LOADER], found[communication] = loading.within(begin, end), waiting.within(begin, end)
        begun[LOADER] = loading.first(begin, end) or begin
        begun[communication] = waiting.first(begin, end) or end
        yield from _in_order(step, begin, found, begun, always=communication if waits else "")


def _marks(gathered: KinetoSpans, main: Thread, threads: set[Thread], loads: list[Span]) -> list[tuple[float, str]]:
    """Return when which phase begins."""
    optimizer = _merged(gathered.optimizer, main)
    found = [(begin, BACKWARD) for thread in threads for begin, _ in _merged(gathered.backward, thread)]
    found += [(begin, FORWARD) for begin, _ in (*_merged(gathered.forward, main), *loads)]
    found += [(begin, OPTIMIZER) for begin, _ in optimizer] + [(end, FORWARD) for _, end in optimizer]
    return sorted(found)


def _of_device(gathered: KinetoSpans, communication: str) -> Iterator[Part]:
    main = next(iter(gathered.steps.values()))[0]
    kernels, optimizer = gathered.kernels.merged(), gathered.device_optimizer.merged()
    sends = gathered.device_communication.merged()
    busy = union(kernels, sends)
    of_optimizer = Cover(minus(kernels, minus(kernels, optimizer)))
    computes, waiting = Cover(kernels), Cover(minus(sends, kernels))
    loading, any_work = Cover(minus(_merged(gathered.loader, main), busy)), Cover(busy)
    for step, (begin, end) in _device_windows(gathered):
        stepped, loads = of_optimizer.within(begin, end), loading.within(begin, end)
        found = {
            KERNELS: computes.within(begin, end) - stepped,
            OPTIMIZER_KERNELS: stepped,
            LOADER: loads,
            communication: waiting.within(begin, end),
        }
        first = computes.first(begin, end)
        begun = {
            KERNELS: begin if first is None else first,
            OPTIMIZER_KERNELS: of_optimizer.first(begin, end) or end,
            LOADER: loading.first(begin, end) or begin,
            communication: waiting.first(begin, end) or end,
        }
        idle = max(end - begin - any_work.within(begin, end) - loads, 0.0)
        yield from _in_order(step, begin + idle, found, begun, always=communication if sends else "")


def _in_order(
    step: int, begin: float, found: dict[str, float], begun: dict[str, float], *, always: str
) -> Iterator[Part]:  # fmt: skip
    at = begin * MICROSECOND
    for name in sorted(found, key=lambda name: (begun[name], name != LOADER)):
        seconds = max(found[name] * MICROSECOND, SHORTEST if name == always else 0.0)
        if seconds > 0:
            yield Part(step, name, at, seconds)
            at += seconds


def _windows(gathered: KinetoSpans) -> list[tuple[int, Span]]:
    return sorted(((step, span) for step, (_, span) in gathered.steps.items()), key=lambda one: one[1])


def _device_windows(gathered: KinetoSpans) -> list[tuple[int, Span]]:
    """Return when the device ran each step: by its own annotations where it has them, for it runs behind the host."""
    host = _windows(gathered)
    if not all(step in gathered.device_steps for step, _ in host):
        return host
    own = sorted(((step, gathered.device_steps[step]) for step, _ in host), key=lambda one: one[1])
    ends = [after[1][0] for after in own[1:]] + [own[-1][1][1]]
    return [(step, (begin, end)) for (step, (begin, _)), end in zip(own, ends, strict=True) if begin < end]


def _merged(by_thread: dict[Thread, Spans], thread: Thread) -> list[Span]:
    return by_thread[thread].merged() if thread in by_thread else []
