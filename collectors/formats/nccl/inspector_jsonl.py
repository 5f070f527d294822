"""NCCL Inspector's log: one JSON object an operation, written by the profiler plugin of each process."""

from __future__ import annotations

from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.nccl.inspector_timings import MOST_COMMUNICATORS, MOST_ROWS, gather
from collectors.formats.text_lines import lines
from collectors.records import Record, Unread


def _sniff(head: bytes, source: str) -> int:
    del source
    ours = b'"coll_perf"' in head or b'"p2p_perf"' in head
    return 95 if ours and b'"header"' in head and head.lstrip()[:1] == b"{" else 0


@reader(
    "inspector_jsonl",
    made_by="NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1",
    gives="the time and bandwidth of each collective of each rank, by communicator and sequence",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield the operations of each communicator of each process in the file."""
    gathered = gather(text for _, text in lines(input.stream))
    for each in gathered.communicators:
        yield from each.records(source=input.source, node=each.host or input.node, rank=input.rank)
    if gathered.over:
        reason = f"{gathered.over:,} operations are not read: {MOST_ROWS:,} or {MOST_COMMUNICATORS:,} communicators are the most"
        yield Unread(source=input.source, reason=reason, outcome="limit")
    if gathered.damaged:
        reason = f"{gathered.damaged:,} lines are no operation of NCCL Inspector"
        yield Unread(source=input.source, reason=reason, outcome="damaged")
