"""The metrics that DLRover's xpu_timer exports: which ranks' devices have work that does not end.

From ``curl http://NODE:18889/metrics``, one text a node. ``XPU_TIMER_COMMON_HANG`` is 1 where a kernel or collective of the rank
has been on its device for longer than xpu_timer's timeout, which is what a watchdog of the process reports in a log; a rank whose
gauge is 0 waits for none. [xpu_timer/README.md] Latencies and rates are not read: each is a mean of unlike shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from collectors.formats import Input, reader
from collectors.formats.series_table import SERIES_LIMIT, not_read, sample_of
from collectors.formats.text_lines import lines as text_lines
from collectors.records import LogEvent, Members, Placement, Record
from collectors.records.record import MOST_RANKS

HANG = "XPU_TIMER_COMMON_HANG"
_UNSET = frozenset({"", "NOT_SET"})


@dataclass(slots=True)
class Gauge:
    """What one rank's gauge states; ``node`` is its pod or address, ``line`` its place in the text."""

    stands: bool
    line: int
    node: str | None
    job: str | None


@dataclass(slots=True)
class HangGauges:
    """The gauges of a text, by rank; ``damaged``: lines that are no series, ``over``: those beyond the bound."""

    ranks: dict[int, Gauge] = field(default_factory=dict)
    damaged: int = 0
    over: int = 0


def gather(lines: Iterable[tuple[int, str]]) -> HangGauges:
    """Read numbered lines; one that is damaged costs itself, another metric nothing."""
    gauges = HangGauges()
    for number, line in lines:
        if not line.startswith(HANG + "{"):
            continue
        if len(gauges.ranks) >= SERIES_LIMIT:
            gauges.over += 1
            continue
        try:
            sample = sample_of(line)
            rank = int(sample.labels["rank"])
            stands = {0.0: False, 1.0: True}[sample.value]
        except (ValueError, KeyError):
            gauges.damaged += 1
            continue
        if not 0 <= rank < MOST_RANKS:
            gauges.damaged += 1
            continue
        given = (sample.labels.get(name, "") for name in ("pod_name", "ip", "job_name"))
        pod, address, job = (None if value in _UNSET else value for value in given)
        gauges.ranks[rank] = Gauge(stands, number, pod or address, job)
    return gauges


def _sniff(head: bytes, _source: str) -> int:
    return 90 if b"\nXPU_TIMER_" in b"\n" + head else 0


@reader(
    "xpu_timer",
    made_by="curl http://NODE:18889/metrics",
    gives="the ranks on whose devices a kernel or collective does not end",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield where the ranks are, and a timeout for each whose gauge is 1, of the instant at which the file was written."""
    gauges = gather(text_lines(input.stream))
    placed = {rank: gauge.node for rank, gauge in sorted(gauges.ranks.items()) if gauge.node}
    if placed:
        nodes = tuple(node or "" for node in placed.values())
        yield Placement(source=input.source, at=input.at, ranks=Members.of(placed), nodes=nodes)
    yield from _events(input, gauges.ranks)
    yield from not_read(input, gauges.over, gauges.damaged)


def _events(input: Input, ranks: dict[int, Gauge]) -> Iterator[LogEvent]:
    """Yield a timeout for each rank whose gauge is 1, and, where there is one, which ranks have nothing outstanding."""
    standing = {rank: gauge for rank, gauge in sorted(ranks.items()) if gauge.stands}
    for rank, gauge in standing.items():
        yield LogEvent(
            source=f"{input.source}:{gauge.line}", at=input.at, job=gauge.job, rank=rank, node=gauge.node,
            event="watchdog_timeout", text=f"{HANG} is 1: its device has work that does not end",
        )  # fmt: skip
    idle = sorted(ranks.keys() - standing.keys())
    if standing and idle:
        text = f"{HANG} is 0: nothing is outstanding on its device, while {len(standing)} other ranks wait for theirs"
        yield LogEvent(
            source=f"{input.source}:{ranks[idle[-1]].line}", at=input.at, job=ranks[idle[0]].job, event="collective_behind",
            ranks=Members.of(idle), text=text,
        )  # fmt: skip
