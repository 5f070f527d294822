"""What the dumps of a run determine, stated with knowledge of the whole run.

A hypothesis is a set of ranks whose own failure explains every wait that the dumps show; a question is decided when
there is exactly one smallest hypothesis. From the run itself that means:

- A culprit whose own unfinished operations already wait, rank by rank, for another culprit is masked: the other one alone
  explains all. If they wait, rank by rank, for the culprit itself, the circle explains as much.
- A culprit that stopped on its host is seen when a surviving dump waits for an operation that it never launched.
- A stuck device is seen only with timing: its peers ``started`` what it did not. Otherwise all members may be meant.
- Lost completions are seen when a peer shows that an operation ended which the culprit holds for unfinished.
- A mismatch has a minority only among three or more; two members are both meant.
- A rank without a dump, for which another rank waits directly, can never be excluded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulation.execution import NEVER
from simulation.faults import Fault
from simulation.scenarios import HEALTHY, Played
from simulation.snapshot import Snapshot

ANY = frozenset({"machine", "network", "code", "unknown", "platform"})
NO_RANKS: frozenset[int] = frozenset()
MASKED = "masked by another culprit"


@dataclass(frozen=True, slots=True)
class ExpectedAnswer:
    """``ranks``: the culprits that an answer must contain; ``decided``: it must name them and no innocent rank.

    ``guilty``: every rank that failed, masked or not. ``evictable``: whose machine may be replaced. ``instead``: innocent
    ranks without a dump that would explain all that is shown, so that the dumps themselves point at them.
    """

    ranks: frozenset[int]
    decided: bool
    reason: str
    guilty: frozenset[int]
    evictable: frozenset[int]
    causes: frozenset[str]
    instead: frozenset[int] = NO_RANKS


def judge(played: Played) -> ExpectedAnswer:
    """Say what the recorded dumps determine."""
    truth, missing = _judge(played), played.recordings[-1].without
    innocent = missing - {fault.rank for fault in played.scenario.faults}
    if truth.decided or not innocent:
        return truth
    snapshot = Snapshot(played.trace, played.recordings[-1])
    found = frozenset().union(*(_instead(snapshot, rank) for rank in truth.ranks))
    return replace(truth, instead=found & innocent)


def _instead(snapshot: Snapshot, culprit: int) -> frozenset[int]:
    """Return the ranks without a dump that explain what is shown as well as the culprit: it seems to wait for them."""
    missing = snapshot.recording.without
    if culprit in missing:
        return NO_RANKS
    beside = {peer for index in snapshot.unfinished(culprit) for peer, _ in snapshot.counterparts(culprit, index)}
    return snapshot.missing_and_awaited() if (beside | snapshot.reach(culprit)) & missing else NO_RANKS


def _judge(played: Played) -> ExpectedAnswer:
    kind, faults = played.scenario.kind, played.scenario.faults
    if kind in HEALTHY:
        return ExpectedAnswer(NO_RANKS, True, "healthy", NO_RANKS, NO_RANKS, frozenset({"none", "unknown"}))
    if kind == "outside":
        return ExpectedAnswer(
            NO_RANKS, True, "nothing is outstanding", NO_RANKS, NO_RANKS, frozenset({"storage", "unknown", "none"})
        )
    snapshot = Snapshot(played.trace, played.recordings[-1])
    if kind == "network":
        fault = faults[0]
        members = frozenset({fault.rank}.union(peer for peer, _ in snapshot.counterparts(fault.rank, fault.index)))
        return ExpectedAnswer(members, False, "every member entered, nothing ended", members, NO_RANKS, ANY)
    if kind in ("operation", "size", "skip", "deadlock"):
        return _mismatch(snapshot, faults[0])
    guilty = frozenset(fault.rank for fault in faults)
    doubts = {fault.rank: _doubt(snapshot, fault, guilty) for fault in faults}
    free = frozenset(rank for rank, doubt in doubts.items() if doubt != MASKED)
    open_doubts = sorted({doubts[rank] for rank in free} - {""}) if free else ["each masks the other"]
    reason = "; ".join(open_doubts)
    return ExpectedAnswer(free, not reason, reason, guilty, guilty, ANY if reason else frozenset({"machine"}))


def _doubt(snapshot: Snapshot, fault: Fault, guilty: frozenset[int]) -> str:
    """Return why the dumps do not determine this culprit, "" where they do."""
    culprit = fault.rank
    if fault.kind == "gone":
        awaited = snapshot.missing_and_awaited()
        if culprit not in snapshot.missing_and_absent():
            return MASKED  # no rank waits for it yet
        return "" if awaited == {culprit} else "several ranks without a dump are awaited"
    reach = snapshot.reach(culprit)
    if reach & (guilty - {culprit}):
        return MASKED
    if snapshot.missing_and_awaited():
        return "a rank without a dump is awaited too"
    if culprit in reach:
        return "waits form a circle through it"
    if fault.kind == "device":
        return _device_doubt(snapshot, culprit)
    if not snapshot.missed_by(culprit):
        return "no surviving dump waits for it"
    lost = _lost(snapshot, culprit)
    return "" if not lost or snapshot.end_is_shown(culprit, lost[0]) else "no dump shows that its operations ended"


def _device_doubt(snapshot: Snapshot, culprit: int) -> str:
    if not snapshot.unfinished(culprit) and snapshot.missed_by(culprit):
        return ""  # its host waits for its own device: it looks like a host that stopped
    if snapshot.recording.timing and snapshot.missed_by(culprit, started=True):
        return ""
    return "without timing any member may be meant"


def _lost(snapshot: Snapshot, culprit: int) -> list[int]:
    """Return the operations that ended and that the culprit's watchdog still holds for unfinished."""
    trace = snapshot.trace
    start = trace.lost_from.get(culprit, len(trace.done[culprit]))
    return [index for index in range(start, len(trace.done[culprit])) if trace.done[culprit][index] != NEVER]


def _mismatch(snapshot: Snapshot, fault: Fault) -> ExpectedAnswer:
    """A rank runs another program than its peers: the dumps must show its operation beside two that agree."""
    culprit, code = frozenset({fault.rank}), frozenset({"code"})
    if fault.kind == "deadlock":
        return ExpectedAnswer(culprit, False, "waits form a circle", culprit, NO_RANKS, code)
    stage = snapshot.job.stages[snapshot.job.programs[fault.rank].stage]
    key = (stage.operations[fault.index].dimension, None, stage.nth[fault.index])
    place = snapshot.job.programs[fault.rank].places.get(key, -1)
    if not snapshot.launched(fault.rank, place):
        return ExpectedAnswer(culprit, False, "its peers wait for it and it for them", culprit, NO_RANKS, ANY)
    peers = list(snapshot.counterparts(fault.rank, place))
    if len(peers) == 1 and peers[0][0] not in snapshot.recording.without:
        return ExpectedAnswer(culprit | {peers[0][0]}, False, "two members disagree", culprit, NO_RANKS, code)
    shown = sum(peer not in snapshot.recording.without and snapshot.launched(peer, at) for peer, at in peers)
    if snapshot.missing_and_awaited():
        return ExpectedAnswer(culprit, False, "a rank without a dump is awaited too", culprit, NO_RANKS, ANY)
    if shown < 2 or fault.rank in snapshot.recording.without:
        return ExpectedAnswer(culprit, False, "too few dumps show the operation", culprit, NO_RANKS, ANY)
    return ExpectedAnswer(culprit, True, "", culprit, NO_RANKS, code)
