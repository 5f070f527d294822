"""Whether a rank that holds the others up may be evicted now: two evidence rounds must have found it in the same place.

One round cannot distinguish a stuck rank from a slow one. For files there is no second round, and what they hold is all the
evidence there will be: waits prove who holds the others up, and evict a machine only where its device or process shows why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.model.fault_classes import has
from analyzers.model.frames import normal
from analyzers.model.processes import in_files
from analyzers.model.standings import WAITING, Observation
from analyzers.model.window import last_activity_ns
from analyzers.verdict.candidates import Candidate, shows_who_only
from analyzers.verdict.pauses import Pauses
from analyzers.verdict.witness import Witness
from collectors.records import ProcessState

ROUNDS_AFTER_SECONDS = (0.0, 10.0, 60.0, 120.0, 180.0, 300.0)
"""When the agents are asked, counted from the opening of an incident; afterwards every five minutes."""
APART_SECONDS = 5.0  # between two rounds; one answer already holds two stacks, three seconds apart
ROUND_SECONDS = 8.0  # dumps of one round: a recorder may take five seconds to answer
TWICE_SECONDS = 2.0  # two states of a process that are not of one moment
FROZEN, MOVING, UNSEEN = "frozen", "moving", "unseen"


def next_round(rounds: int | None) -> str:
    """Say when the next evidence round is."""
    if rounds is None:
        return "collect the evidence again if it lasts"
    if rounds + 1 >= len(ROUNDS_AFTER_SECONDS):
        return f"there is an evidence round every {ROUNDS_AFTER_SECONDS[-1]:g} s"
    return f"the next evidence round is {ROUNDS_AFTER_SECONDS[max(rounds, 1)]:g} s after the first"


@dataclass
class EvictionGate:
    """Gives the reason why a root's machine may not be evicted yet. ``rounds``: None for files."""

    witness: Witness
    pauses: Pauses
    rounds: int | None

    def __call__(self, root: Candidate) -> str | None:
        """Return the reason, None where there is none. One rank that may be evicted is enough for its machine."""
        for rank in sorted(root.ranks) if root.families != {"hardware"} else ():
            if len(nodes := self.witness.placed.get(rank, ())) > 1:
                named = " and ".join(sorted(nodes)[:4])
                return f"{named} each report rank {rank} as theirs: one of them reports a process of another node"
        if root.finding.symptom != "hang" or "hardware" in root.families:
            return None
        reasons = [self._against(rank, root) for rank in sorted(root.ranks)]
        return None if not reasons or None in reasons else reasons[0]

    def _against(self, rank: int, root: Candidate) -> str | None:
        state = self._by_state(rank)
        if state is not None:
            return state or None
        witness = self.witness
        pause = self.pauses.seen(witness.observations(rank), witness.rows(rank), witness.helpers(rank))
        if pause is not None:
            return (
                f"rank {rank} is {pause.words} ({pause.where}): a pause, however long, proves nothing against a machine"
            )
        if self._waits_for_files(rank):
            return f"rank {rank} waits for files: its file system may be slow for every client"
        if "uninterruptible" in root.agreeing and "process" not in root.families:
            return f"what holds rank {rank} in the kernel is not shown: its machine, or a file system of every client"
        return self._by_files(rank, root) if self.rounds is None else self._by_rounds(rank, root)

    def _by_files(self, rank: int, root: Candidate) -> str | None:
        by_waits = shows_who_only(root)
        if by_waits and any(has(name, "own_code") for name in root.agreeing):
            return f"rank {rank} is in its own code: that, its data or its machine may hold it there"
        motion, why = self.motion(rank)
        if motion == FROZEN:
            return None
        if root.finding.assumes or not by_waits:
            return root.finding.assumes or None
        held = f"the waits show that rank {rank} holds the others up, and not why"
        return why if motion == MOVING else f"{held}: two rounds of its stack, or the state of its process, would"

    def _by_state(self, rank: int) -> str | None:
        """Judge by the state of the process: "" if the rank may be evicted for it, None if it settles nothing."""
        rows = self.witness.rows(rank)
        if not rows or rows[-1].state not in {"T", "X", "Z"}:
            return None
        if self.rounds is not None and rows[-1].state == "X" and rows[-1].exit_code is None and rows[-1].signal is None:
            return f"no record shows how the process of rank {rank} ended: it may have finished its work"
        first = next(row.at or 0.0 for row in rows if row.state == rows[-1].state)
        twice = rows[-1].state != "T" or (rows[-1].at or 0.0) - first >= TWICE_SECONDS
        if self.rounds is None or twice or self.rounds > 1:
            return ""
        return f"the process of rank {rank} was seen stopped once: {next_round(self.rounds)}"

    def _by_rounds(self, rank: int, root: Candidate) -> str | None:
        observed = self.witness.observations(rank)
        if self.witness.silent_since(rank) is not None:
            return f"the node of rank {rank} has stopped sending: a silent agent proves nothing against it"
        if (self.rounds or 0) < 2:
            return f"rank {rank} was seen once: {next_round(self.rounds)}, and that decides whether it moves"
        if has(root.finding.fault_class, "while_absent"):
            return None if self.witness.absent(rank) else f"the process of rank {rank} ended within seconds of others"
        if self._record_is_old(rank):
            return f"the flight recorder of rank {rank} is older than the others': what it lacks may have come since"
        if has(root.finding.fault_class, "may_start") and "process" not in root.families:
            return f"rank {rank} has never launched anything: it may still be starting, check what it does"
        if root.finding.analyzer == "ras" and observed and observed[-1].duty.name in WAITING:
            return f"only NCCL RAS reports rank {rank} as behind: by its own stack it waits as the others do"
        motion, why = self.motion(rank)
        return None if motion == FROZEN else why

    def _record_is_old(self, rank: int) -> bool:
        """Whether a rank's dump was taken a round before the newest: its peers may have gone on in between."""
        at = {dump.rank: dump.at for dump in self.witness.window.dumps if dump.at is not None}
        if rank not in at or (at[rank] or 0.0) >= (self.witness.window.round_at or float("inf")):
            return False  # it is of the newest round, however late its peers answered that
        return (at[rank] or 0.0) < max(filter(None, at.values()), default=0.0) - ROUND_SECONDS

    def _waits_for_files(self, rank: int) -> bool:
        rows, observed = self.witness.rows(rank), self.witness.observations(rank)
        own = (bool(rows) and in_files(rows[-1])) or any(in_files(row) for row in self.witness.helpers(rank))
        return own or (bool(observed) and observed[-1].duty.name == "storage")

    def motion(self, rank: int) -> tuple[str, str]:
        """Compare a rank's newest stack with one of an earlier round: (frozen, moving or unseen, a sentence)."""
        rows = self.witness.rows(rank)
        observed = self.witness.observations(rank)
        if (
            len(rows) > 1
            and rows[-1].state == rows[-2].state == "D"
            and not self._moved_after(rows[-1], observed, rank)
        ):
            return FROZEN, f"the process of rank {rank} is uninterruptible in two tables"
        if not observed or observed[-1].dump.at is None:
            return UNSEEN, f"there is no stack of rank {rank}: without one a compile looks like a hang"
        newest_at = observed[-1].dump.at
        earlier = [
            one for one in observed if self._of_the_hang(one) and (one.dump.at or 0.0) <= newest_at - APART_SECONDS
        ]
        if not earlier:
            return UNSEEN, f"there is one stack only of rank {rank}: {next_round(self.rounds)}"
        before = earlier[-1]
        if (launched := self._launched_after(rank, before)) is not None:
            return MOVING, f"rank {rank} moves: it launched something {launched:.0f} s after its first stack"
        if self._same_place(before, observed[-1], rank):
            return FROZEN, f"rank {rank} stands in the same place in two rounds"
        return MOVING, f"rank {rank} moves: two rounds found it in different places, so it is slow and not stuck"

    def _moved_after(self, row: ProcessState, observed: Sequence[Observation], rank: int) -> bool:
        """Whether a stack that is newer than a row of the process table shows another place than the one before it."""
        if len(observed) < 2 or (observed[-1].dump.at or 0.0) <= (row.at or 0.0) + 1.0:
            return False
        return not self._same_place(observed[-2], observed[-1], rank)

    def _of_the_hang(self, one: Observation) -> bool:
        onset = self.witness.onset
        return onset is None or (one.dump.at or 0.0) >= onset - 1.0

    def _launched_after(self, rank: int, one: Observation) -> float | None:
        """Return how long after a stack a rank is known to have launched something, None where it has not."""
        newest = max((last_activity_ns(dump) for dump in self.witness.window.dumps if dump.rank == rank), default=-1)
        later = newest / 1e9 - (one.dump.at or 0.0)
        return later if later > 0.5 else None

    def _same_place(self, before: Observation, now: Observation, rank: int) -> bool:
        """Whether two stacks show a thread in one function: the same calls, or one stack is further down in them.

        Lines do not count: an endless loop goes through its own. The function in which the others wait is the training
        loop itself, and to be found in it twice is no standstill.
        """
        one, other = ([normal(frame) for frame in reversed(seen.frames)] for seen in (before, now))
        if one == other or (before.duty.name in WAITING and now.duty.name in WAITING):
            return True
        shared = min(len(one), len(other))
        return (
            bool(shared) and one[:shared] == other[:shared] and one[shared - 1] not in self.witness.peers_frames([rank])
        )
