"""Which kind of slowness a trace shows first, then who, or that no machine is at fault.

    one worker      longer than its peers, in every step, and nothing shows more work: its machine
    several         many at once, or one of two: abstained
    a stage         longer than the others on every replica: the model is split unevenly, no machine is at fault
    the data        operations on some microbatches are longer in all stages: sequence lengths, a hot expert
    latent          a worker slower than its peers that the job does not wait for: reported, never evicted
    unlike          workers that differ steadily, none apart from the others: machines of several kinds

How much each costs the job comes from its steps played again without it (``costs``); the costliest is first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analyzers.diagnosis.slow import communication, situation
from analyzers.diagnosis.slow.kinds import findings, unmeasured
from analyzers.diagnosis.slow.op_table import recorded_twice, tabulate
from analyzers.diagnosis.slow.sampling import sampled
from analyzers.diagnosis.slow.step_logs import slower_steps
from analyzers.diagnosis.slow.straggler_claims import reported_stragglers
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import CollectiveTimings, OpTimings, Steps, StragglerReports, Unread

MOST_ROWS = 20_000_000


def analyze(window: Window, topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Report the kinds of slowness of traces, of timings of communication, and of steps."""
    yield from _of_traces(window, topology)
    if window.onset is None or not window.live:  # how long operations took before a job stood still is no reason for it
        yield from _of_communication(window)
    reported = list(reported_stragglers(window.records_of(StragglerReports), topology.nodes))
    yield from reported
    if not window.live and "op_timings" not in window.kinds:  # of a running job the engine judges them as they come
        for found in slower_steps(window.records_of(Steps)):
            yield replace(found, missing=()) if any(one.suspects for one in reported) else found


def _of_communication(window: Window) -> Iterator[Finding]:
    records = window.records_of(CollectiveTimings)
    if (rows := sum(record.count for record in records)) > MOST_ROWS:
        yield unmeasured(
            f"there are timings of {rows:,} collectives and {MOST_ROWS:,} are compared: give fewer of them"
        )
    elif rows:
        yield from communication.claims(records)


def _of_traces(window: Window, topology: Topology) -> Iterator[Finding]:
    records = window.records_of(OpTimings)
    if not any(record.count for record in records):
        return
    if twice := recorded_twice(records):
        yield unmeasured(f"{twice}: traces of two runs are not compared: give those of one")
        return
    some = sampled(records)
    if some.operations > MOST_ROWS:
        yield unmeasured(
            f"the traces have {some.operations:,} operations in their steps and {MOST_ROWS:,} are compared: "
            "give fewer steps or ranks"
        )
        return
    table = replace(tabulate(records, some.steps), all_steps=some.all_steps)
    seen = situation.measure(table, topology)
    if seen is None:
        yield unmeasured("no operation of the traces is compute, by its name: forward-compute and the like are known")
        return
    cut = sorted({one.source for one in window.records_of(Unread)} & {record.source for record in records})
    for found in findings(replace(seen, on_gpus=window.has_gpus() is not False)):
        if cut and found.symptom == "healthy":  # what is slow may be in the part that is lost
            yield replace(unmeasured(f"the whole of {cut[0]}, of which a part was not read"), evidence=found.evidence)
        else:
            yield found
