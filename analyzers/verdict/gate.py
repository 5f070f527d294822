"""Whether a rank that holds the others up may be evicted by now: it was looked at twice and has not moved.

One look cannot tell a rank that is stuck from one that is slow. Nobody can look twice at a job that is gone: what its files
prove is all the proof there will be, and nothing here holds it back but a pause.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.model.fault_classes import has
from analyzers.model.frames import normal
from analyzers.model.processes import in_files
from analyzers.model.standings import WAITING, Look
from analyzers.model.window import last_activity_ns
from analyzers.verdict.correlate import Root
from analyzers.verdict.pauses import Pauses
from analyzers.verdict.witness import Witness

LOOKS_AFTER_SECONDS = (0.0, 10.0, 60.0, 120.0, 180.0, 300.0)
"""When the agents are asked, after the opening of an incident; then every five minutes."""
APART_SECONDS = 5.0  # two looks: an answer holds two stacks of its own, three seconds apart
ROUND_SECONDS = 8.0  # dumps of one look: a recorder may take five to answer
TWICE_SECONDS = 2.0  # two states of a process that are no one moment's
FROZEN, MOVING, UNSEEN = "frozen", "moving", "unseen"


def next_look(looks: int | None) -> str:
    """Say when somebody looks again."""
    if looks is None:
        return "look again if it lasts"
    if looks + 1 >= len(LOOKS_AFTER_SECONDS):
        return f"it is looked at again every {LOOKS_AFTER_SECONDS[-1]:g} s"
    return f"it is looked at again {LOOKS_AFTER_SECONDS[max(looks, 1)]:g} s after the first look"


@dataclass
class Restraint:
    """Says of a root why its machine may not be evicted yet."""

    witness: Witness
    pauses: Pauses
    looks: int | None

    def __call__(self, root: Root) -> str | None:
        """Return the reason, None where there is none; a machine goes by the surest of its ranks."""
        for rank in sorted(root.ranks) if root.families != {"hardware"} else ():
            if len(nodes := self.witness.placed.get(rank, ())) > 1:
                return f"{' and '.join(sorted(nodes)[:4])} each say that rank {rank} is theirs: one of them tells of another's"
        if root.finding.symptom != "hang" or "hardware" in root.families:
            return None
        reasons = [self._against(rank, root) for rank in sorted(root.ranks)]
        return None if not reasons or None in reasons else reasons[0]

    def _against(self, rank: int, root: Root) -> str | None:
        state = self._by_state(rank)
        if state is not None:
            return state or None
        pause = self.pauses.seen(self.witness.looks(rank), self.witness.rows(rank), self.witness.helpers(rank))
        if pause is not None:
            return (
                f"rank {rank} is {pause.words} ({pause.where}): a pause, however long, proves nothing against a machine"
            )
        return None if self.looks is None else self._by_looks(rank, root)

    def _by_state(self, rank: int) -> str | None:
        """Judge by the state of the process: "" if it settles that it may be evicted, None if it settles nothing."""
        rows = self.witness.rows(rank)
        if not rows or rows[-1].state not in {"T", "X", "Z"}:
            return None
        if self.looks is not None and rows[-1].state == "X" and rows[-1].exit_code is None and rows[-1].signal is None:
            return f"nobody saw how the process of rank {rank} ended: it may have done its work"
        first = next(row.at or 0.0 for row in rows if row.state == rows[-1].state)
        twice = rows[-1].state != "T" or (rows[-1].at or 0.0) - first >= TWICE_SECONDS
        if self.looks is None or twice or self.looks > 1:
            return ""
        return f"the process of rank {rank} was seen stopped once: {next_look(self.looks)}"

    def _by_looks(self, rank: int, root: Root) -> str | None:
        since = self.witness.silent_since(rank)
        if since is not None:
            return (
                f"nothing came from the node of rank {rank} of late: an agent that is silent proves nothing against it"
            )
        if (self.looks or 0) < 2:
            return f"rank {rank} was seen once: {next_look(self.looks)}, and that decides whether it moves"
        if has(root.finding.fault_class, "while_absent"):
            return None if self.witness.absent(rank) else f"the process of rank {rank} ended within seconds of others"
        if self._record_is_old(rank):
            return f"the flight recorder of rank {rank} is older than the others': what it lacks may have come since"
        if has(root.finding.fault_class, "may_start") and "process" not in root.families:
            return f"rank {rank} has never launched anything: it may still be starting, look at what it does"
        if (
            root.finding.analyzer == "ras"
            and self.witness.looks(rank)
            and self.witness.looks(rank)[-1].duty.name in WAITING
        ):
            return f"only NCCL RAS says that rank {rank} is behind: by its own stack it waits as the others do"
        if self._waits_for_files(rank):
            return f"rank {rank} waits for files: its file system may be slow for all who ask it"
        motion, why = self.motion(rank)
        return None if motion == FROZEN else why

    def _record_is_old(self, rank: int) -> bool:
        """Whether a rank's dump was taken a round before the newest: its peers may have gone on in between."""
        at = {dump.rank: dump.at for dump in self.witness.window.dumps if dump.at is not None}
        return rank in at and (at[rank] or 0.0) < max(filter(None, at.values()), default=0.0) - ROUND_SECONDS

    def _waits_for_files(self, rank: int) -> bool:
        rows, looks = self.witness.rows(rank), self.witness.looks(rank)
        own = (bool(rows) and in_files(rows[-1])) or any(in_files(row) for row in self.witness.helpers(rank))
        return own or (bool(looks) and looks[-1].duty.name == "storage")

    def motion(self, rank: int) -> tuple[str, str]:
        """Compare a rank's newest look with the one of a round before: (frozen, moving or unseen, a sentence)."""
        rows = self.witness.rows(rank)
        if len(rows) > 1 and rows[-1].state == rows[-2].state == "D":
            return FROZEN, f"the process of rank {rank} is uninterruptible in two tables"
        looks = self.witness.looks(rank)
        if not looks or looks[-1].dump.at is None:
            return UNSEEN, f"there is no stack of rank {rank}: a compile looks the same from outside, look at it"
        newest_at = looks[-1].dump.at
        pairs = [
            look for look in looks if self._of_the_hang(look) and (look.dump.at or 0.0) <= newest_at - APART_SECONDS
        ]
        if not pairs:
            return UNSEEN, f"there is one look only at rank {rank}: {next_look(self.looks)}"
        before = pairs[-1]
        if (launched := self._launched_after(rank, before)) is not None:
            return MOVING, f"rank {rank} moves: it has launched something {launched:.0f} s after its first look"
        if self._same_place(before, looks[-1], rank):
            return FROZEN, f"rank {rank} stands in the same place in two looks"
        return MOVING, f"rank {rank} moves: in two looks it was in different places, so it is slow and not stuck"

    def _of_the_hang(self, look: Look) -> bool:
        onset = self.witness.onset
        return onset is None or (look.dump.at or 0.0) >= onset - 1.0

    def _launched_after(self, rank: int, look: Look) -> float | None:
        """Return how long after a look a rank is known to have launched something, None where it has not."""
        newest = max((last_activity_ns(dump) for dump in self.witness.window.dumps if dump.rank == rank), default=-1)
        later = newest / 1e9 - (look.dump.at or 0.0)
        return later if later > 0.5 else None

    def _same_place(self, before: Look, now: Look, rank: int) -> bool:
        """Whether two looks found a thread in one function: the same calls, or one look met it in what that calls.

        Lines do not count: a loop that never ends goes through its own. The function in which the others wait is the
        training loop itself, and to be met in that twice is no standstill.
        """
        one, other = ([normal(frame) for frame in reversed(look.frames)] for look in (before, now))
        if one == other:
            return True
        if before.duty.name in WAITING and now.duty.name in WAITING:
            return True
        shared = min(len(one), len(other))
        return (
            bool(shared) and one[:shared] == other[:shared] and one[shared - 1] not in self.witness.peers_frames([rank])
        )
