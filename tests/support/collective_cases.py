"""Verdicts on simulated timings of collectives, and the rule that a reader of such timings would try first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats.nccl.inspector_jsonl import gather
from collectors.records import CollectiveTimings
from service.packaged_knowledge import load
from simulation.traces.collective_traces import CollectiveJob


def timings(job: CollectiveJob) -> Iterator[CollectiveTimings]:
    """Yield the records of every rank's file."""
    for name, text in job.files():
        for communicator in gather(text.splitlines()).communicators:
            yield from communicator.records(source=name, node=communicator.host)


def verdict_of(job: CollectiveJob) -> Verdict:
    """Return the verdict on a job's files."""
    window = Window.build(timings(job))
    return judge(window, infer(window), load())


def process_of(job: CollectiveJob, rank: int) -> set[str]:
    """Return the names that a rank may have: its number where the records show it, else its process and host."""
    return {str(rank), f"process {4000 + rank} of {job.node(rank)}"}


def longest_collective(job: CollectiveJob) -> int:
    """Return the rank that a naive rule names: whose collectives are the longest, most often."""
    longest: Counter[int] = Counter()
    lines = job.lines()
    groups: dict[tuple[str, int], dict[int, float]] = {}
    for rank, written in lines.items():
        for line in (line for line in written if "coll_perf" in line):
            key = (line["header"]["id"], line["coll_perf"]["coll_sn"])
            groups.setdefault(key, {})[rank] = line["coll_perf"]["coll_exec_time_us"]
    longest.update(max(members, key=lambda rank: members[rank]) for members in groups.values())
    return longest.most_common(1)[0][0]
