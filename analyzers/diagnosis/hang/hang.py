"""Hangs: which ranks wait for which across groups and stages, and where the waits end.

Each rank's oldest outstanding operations are followed to the ranks that have not reached them, and from those on, until
the waits end in ranks that wait for none (``roots.py``), in an operation that all reached and none finished, or in a
circle. What the members call at the same sequence number is compared first (``desync.py``), and whether it is a hang at
all (``rhythm.py``). C4D's four syndromes and MegaScale's "the hung machine logs nothing" are cases of this.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.diagnosis.hang.claims import Claims
from analyzers.diagnosis.hang.desync import mismatches
from analyzers.diagnosis.hang.fronts import progress
from analyzers.diagnosis.hang.rhythm import DATED_BY_ITSELF, Rhythm, rhythm
from analyzers.diagnosis.hang.roots import endings
from analyzers.diagnosis.hang.waits import build, situate
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import StackDump

STACKS_MISSING = "stacks of all ranks (py-spy dump --json --nonblocking) would show where they are"
STACKS_ALONE = "the kernel log, and the state of processes and storage, would show what stacks alone do not"


def analyze(window: Window, topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Claim what the waits end in, one finding a class."""
    if not window.dumps:
        return
    made = progress(window.recorder)
    beat = rhythm(window, made)
    if beat.why == DATED_BY_ITSELF and window.records_of(StackDump):
        return  # stacks are read while it stands still, and decide without it
    if beat.pulse in ("running", "undecided"):
        yield _no_hang(beat)
        return
    if not made.outstanding.any() and not made.lost.any():
        yield _nothing_outstanding(window, beat)
        return
    situation = situate(made, topology)
    waits = build(situation)
    claims = Claims(window, topology, situation, waits, beat)
    disagreements = mismatches(made)
    yield from claims.desyncs(disagreements)
    yield from claims.endings(endings(waits), disagreements)


def _no_hang(beat: Rhythm) -> Finding:
    """Report a running job, or one that a single dump cannot judge: no rank is named either way."""
    running = beat.pulse == "running"
    return Finding(
        analyzer="hang",
        family="waits",
        symptom="healthy" if running else "unknown",
        cause="none" if running else "unknown",
        fault_class="running" if running else "undecided",
        evidence=(Evidence(text=beat.why),),
        missing=() if running else ("a second set of dumps, or of rings, 30 s later would show whether the job moves",),
    )


def _nothing_outstanding(window: Window, beat: Rhythm) -> Finding:
    """Report that no rank waits in a recorded collective: the recorder does not see the wait."""
    empty = not len(window.recorder) and not window.launched_before
    dumped = {dump.rank for dump in window.dumps}
    shown = bool(dumped) and dumped <= {stack.rank for stack in window.records_of(StackDump)}
    return Finding(
        analyzer="hang",
        family="waits",
        symptom="hang",
        cause="unknown",
        fault_class="init" if empty else "outside",
        onset=beat.onset_ns / 1e9 if beat.onset_ns else None,
        evidence=(
            Evidence(
                text="no rank has an unfinished collective in its flight recorder"
                + (
                    ": no communicator ever formed"
                    if empty
                    else "; the wait is in a store, storage, a compile or a kernel"
                )
            ),
        ),
        missing=(STACKS_ALONE if shown else STACKS_MISSING,),
    )
