"""What the dumps of a run determine, said by somebody who saw the run.

A hypothesis is a set of ranks whose own failure explains every wait that the dumps show; a question is decided when
there is exactly one smallest hypothesis. From the run itself that means:

- A culprit whose own unfinished operations already wait, rank by rank, for another culprit is masked: the other one alone
  explains all. If they wait, rank by rank, for the culprit itself, the circle explains as much.
- A culprit that stopped on its host is seen when a surviving dump waits for an operation that it never launched.
- A stuck device is seen only with timing: its peers ``started`` what it did not. Otherwise all members may be meant.
- Lost completions are seen when a peer shows that an operation ended which the culprit holds for unfinished.
- A mismatch has a minority only among three or more; two members are both meant.
- A rank without a dump, for which somebody waits directly, can never be excluded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulation.execution import NEVER
from simulation.faults import Fault
from simulation.scenarios import HEALTHY, Played
from simulation.sight import Sight

ANY = frozenset({"machine", "network", "code", "unknown", "platform"})
NOBODY: frozenset[int] = frozenset()
MASKED = "masked by another culprit"


@dataclass(frozen=True, slots=True)
class Truth:
    """``ranks``: the culprits that an answer must contain; ``decided``: it must name them and nobody innocent.

    ``guilty``: everybody who failed, masked or not. ``evictable``: whose machine may be replaced. ``instead``: innocent
    ranks without a dump that would explain all that is shown, so that the dumps themselves point at them.
    """

    ranks: frozenset[int]
    decided: bool
    reason: str
    guilty: frozenset[int]
    evictable: frozenset[int]
    causes: frozenset[str]
    instead: frozenset[int] = NOBODY


def judge(played: Played) -> Truth:
    """Say what the recorded dumps determine."""
    truth, missing = _judge(played), played.recordings[-1].without
    innocent = missing - {fault.rank for fault in played.scenario.faults}
    if truth.decided or not innocent:
        return truth
    sight = Sight(played.trace, played.recordings[-1])
    found = frozenset().union(*(_instead(sight, rank) for rank in truth.ranks))
    return replace(truth, instead=found & innocent)


def _instead(sight: Sight, culprit: int) -> frozenset[int]:
    """Return the ranks without a dump that explain what is shown as well as the culprit: it seems to wait for them."""
    missing = sight.recording.without
    if culprit in missing:
        return NOBODY
    beside = {peer for index in sight.unfinished(culprit) for peer, _ in sight.counterparts(culprit, index)}
    return sight.missing_and_awaited() if (beside | sight.reach(culprit)) & missing else NOBODY


def _judge(played: Played) -> Truth:
    kind, faults = played.scenario.kind, played.scenario.faults
    if kind in HEALTHY:
        return Truth(NOBODY, True, "healthy", NOBODY, NOBODY, frozenset({"none", "unknown"}))
    if kind == "outside":
        return Truth(NOBODY, True, "nothing is outstanding", NOBODY, NOBODY, frozenset({"storage", "unknown", "none"}))
    sight = Sight(played.trace, played.recordings[-1])
    if kind == "network":
        fault = faults[0]
        members = frozenset({fault.rank}.union(peer for peer, _ in sight.counterparts(fault.rank, fault.index)))
        return Truth(members, False, "everybody entered, nothing ended", members, NOBODY, ANY)
    if kind in ("operation", "size", "skip", "deadlock"):
        return _mismatch(sight, faults[0])
    guilty = frozenset(fault.rank for fault in faults)
    doubts = {fault.rank: _doubt(sight, fault, guilty) for fault in faults}
    free = frozenset(rank for rank, doubt in doubts.items() if doubt != MASKED)
    open_doubts = sorted({doubts[rank] for rank in free} - {""}) if free else ["each masks the other"]
    reason = "; ".join(open_doubts)
    return Truth(free, not reason, reason, guilty, guilty, ANY if reason else frozenset({"machine"}))


def _doubt(sight: Sight, fault: Fault, guilty: frozenset[int]) -> str:
    """Return why the dumps do not determine this culprit, "" where they do."""
    culprit = fault.rank
    if fault.kind == "gone":
        awaited = sight.missing_and_awaited()
        if culprit not in sight.missing_and_absent():
            return MASKED  # nobody waits for it yet
        return "" if awaited == {culprit} else "several ranks without a dump are awaited"
    reach = sight.reach(culprit)
    if reach & (guilty - {culprit}):
        return MASKED
    if sight.missing_and_awaited():
        return "a rank without a dump is awaited too"
    if culprit in reach:
        return "waits form a circle through it"
    if fault.kind == "device":
        return _device_doubt(sight, culprit)
    if not sight.missed_by(culprit):
        return "no surviving dump waits for it"
    lost = _lost(sight, culprit)
    return "" if not lost or sight.end_is_shown(culprit, lost[0]) else "no dump shows that its operations ended"


def _device_doubt(sight: Sight, culprit: int) -> str:
    if not sight.unfinished(culprit) and sight.missed_by(culprit):
        return ""  # its host waits for its own device: it looks like a host that stopped
    if sight.recording.timing and sight.missed_by(culprit, started=True):
        return ""
    return "without timing any member may be meant"


def _lost(sight: Sight, culprit: int) -> list[int]:
    """Return the operations that ended and that the culprit's watchdog still holds for unfinished."""
    trace = sight.trace
    start = trace.lost_from.get(culprit, len(trace.done[culprit]))
    return [index for index in range(start, len(trace.done[culprit])) if trace.done[culprit][index] != NEVER]


def _mismatch(sight: Sight, fault: Fault) -> Truth:
    """A rank runs another program than its peers: the dumps must show its operation beside two that agree."""
    culprit, code = frozenset({fault.rank}), frozenset({"code"})
    if fault.kind == "deadlock":
        return Truth(culprit, False, "waits form a circle", culprit, NOBODY, code)
    stage = sight.job.stages[sight.job.programs[fault.rank].stage]
    key = (stage.operations[fault.index].dimension, None, stage.nth[fault.index])
    place = sight.job.programs[fault.rank].places.get(key, -1)
    if not sight.launched(fault.rank, place):
        return Truth(culprit, False, "its peers wait for it and it for them", culprit, NOBODY, ANY)
    peers = list(sight.counterparts(fault.rank, place))
    if len(peers) == 1 and peers[0][0] not in sight.recording.without:
        return Truth(culprit | {peers[0][0]}, False, "two members disagree", culprit, NOBODY, code)
    shown = sum(peer not in sight.recording.without and sight.launched(peer, at) for peer, at in peers)
    if sight.missing_and_awaited():
        return Truth(culprit, False, "a rank without a dump is awaited too", culprit, NOBODY, ANY)
    if shown < 2 or fault.rank in sight.recording.without:
        return Truth(culprit, False, "too few dumps show the operation", culprit, NOBODY, ANY)
    return Truth(culprit, True, "", culprit, NOBODY, code)
