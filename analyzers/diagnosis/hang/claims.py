"""From the ends of the waits to findings: which class each end is, which ranks it names, and on what evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from analyzers.diagnosis.hang.desync import Disagreement
from analyzers.diagnosis.hang.rhythm import Rhythm
from analyzers.diagnosis.hang.roots import Paths, WaitEnd, chains
from analyzers.diagnosis.hang.waits import DumpCoverage, HangSituation, Node, Operation, Waits
from analyzers.diagnosis.hang.wording import (
    ALL_STARTED,
    CIRCLE,
    OPAQUE,
    SHARED,
    UNLISTED,
    UNRECORDED,
    UNTIMED,
    Words,
    listed,
    wait,
)
from analyzers.model.finding import Cause, Evidence, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window, silent_nodes

# How sure each kind of proof is, were it all there is. Uncalibrated: the order is what matters (docs/analyzers.md).
STRENGTH = {
    "never_entered": 0.95,
    "completion_lost": 0.97,
    "init": 0.9,
    "no_dump": 0.8,
    "not_excluded": 0.2,
    "device_stuck": 0.9,
    "desync": 0.9,
}
# No record states the number of ranks: an idle rank may wait for one that was not seen, or be one of many idle ones.
UNSIZED = 0.8
# Together with the ranks that left no dump, the idle ones would be too many for a fault of their own: as a set less
# likely guilty than not.
UNLIKELY = 0.45
# More independent roots than this share a cause that is not any of them (a switch, a file system, the code).
MOST_ROOT_RANKS, MOST_ROOT_NODES = 8, 4


@dataclass
class Claims:
    """Turns endings and mismatches of one situation into findings."""

    window: Window
    topology: Topology
    situation: HangSituation
    waits: Waits
    beat: Rhythm
    paths: Paths = field(init=False)
    words: Words = field(init=False)
    coverage: DumpCoverage = field(init=False)
    unlisted: bool = False  # a group waits for members that no dump lists
    explained: bool = False  # something else already explains the hang
    unsettled: bool = False  # ranks disagree, and the dumps at hand do not show which are odd

    def __post_init__(self) -> None:
        """Index the graph backwards once."""
        self.paths = Paths(self.waits)
        self.words = Words(self.window, self.topology, self.situation, self.waits)
        self.coverage = DumpCoverage(self.situation, self.topology)

    def desyncs(self, found: list[Disagreement]) -> Iterator[Finding]:
        """Blame the code where a rank calls something else than its group; never a machine."""
        for mismatch in found[:MOST_ROOT_RANKS]:
            silent = self._silent(mismatch)
            if not self._settled(mismatch):  # the majority of those seen may be the minority of all
                yield self._open("desync", tuple(mismatch.calls), silent)
                continue
            why = self.words.disagreement(mismatch)
            row = mismatch.row
            evidence = self.words.evidence(why, int(self.situation.progress.table["rank"][row]), mismatch.created_ns)
            suspect = Suspect(
                kind="code", strength=STRENGTH["desync"], why=why, ranks=mismatch.odd, evidence=(evidence,)
            )
            missing = (
                () if mismatch.decided else ("no majority: the code path of these ranks must be compared by hand",)
            )
            yield self._finding(
                "code", "desync", (suspect,), mismatch.odd, together=True, missing=missing, first=evidence
            )

    def _silent(self, mismatch: Disagreement) -> frozenset[int]:
        """Return the ranks without a whole dump that may have called too: members, or any where no dump lists those."""
        operation = Operation(mismatch.group, mismatch.sequence)
        unlisted = self.coverage.may_have_more_members(operation)
        silent = self.coverage.absent - set(mismatch.calls)
        return silent if unlisted else silent.intersection(self.situation.members[mismatch.group])

    def _settled(self, mismatch: Disagreement) -> bool:
        """Return whether the majority stays one, whatever the members without a dump called."""
        silent = self._silent(mismatch)
        return mismatch.lead > len(silent) or not silent

    def _part_of(self, mismatch: Disagreement) -> Collection[int]:
        """Return the ranks that a disagreement explains; all that called or may have, where it does not show which are odd."""
        return mismatch.odd if self._settled(mismatch) else self._silent(mismatch).union(mismatch.calls)

    def endings(self, found: list[WaitEnd], disagreements: list[Disagreement]) -> Iterator[Finding]:
        """Classify where the waits end, leaving out what a disagreement already explains."""
        explained = {Operation(m.group, m.sequence) for m in disagreements}
        odd = {rank for m in disagreements for rank in self._part_of(m)}
        left = [e for e in found if not (explained & set(e.operations)) and not (e.ranks and odd >= set(e.ranks))]
        waited_for = {node for targets in self.waits.after.values() for node in targets}
        singles = [e.ranks[0] for e in left if len(e.ranks) == 1 and e.ranks[0] in waited_for]
        if not singles and not disagreements and not any(e.cyclic for e in left) and not self.waits.stuck:
            singles = sorted(self.situation.progress.lost_counts)
        self.unsettled = any(not self._settled(mismatch) for mismatch in disagreements)
        self.explained = bool(disagreements) or any(e.cyclic or self.waits.stuck & set(e.operations) for e in left)
        stuck = [e for e in left if not e.ranks]
        self.unlisted = any(self.coverage.may_have_more_members(op) for e in stuck for op in e.operations[:1])
        yield from self._stuck_operations(stuck)
        yield from (self._cycle(ending) for ending in left if ending.cyclic)
        yield from self._ranks(singles)

    def _ranks(self, singles: list[int]) -> Iterator[Finding]:
        """Claim ranks that others wait for and that wait for none: shown by their own dump, or by its absence."""
        dumped = self.situation.progress.dumped
        shown = [rank for rank in singles if rank in dumped and rank not in self.waits.opaque]
        opaque = [rank for rank in singles if rank in self.waits.opaque]
        absent = [rank for rank in singles if rank not in dumped]
        if opaque:
            yield self._finding("unknown", "outside", (), tuple(opaque), missing=(OPAQUE.format(ranks=opaque),))
        unrecorded = bool(shown) and self._unrecorded_waits()
        idle = self._idle() if unrecorded else []
        unseen = self.coverage.absent.intersection(idle) - set(absent)
        if unrecorded and not self.topology.sized and (unseen or self.unlisted):
            # They may wait for ranks of which nothing is known, and those for ranks above the highest that was seen.
            yield self._open("never_entered", tuple(shown), unseen)
            return
        if unrecorded and len(singles) > 1:
            # They may wait for each other where nothing is recorded: one set, unless something else explains it.
            if not self.explained:
                yield self._set(idle, "never_entered", UNRECORDED.format(ranks=listed(idle)))
            return
        if shown:
            yield from self._shown(shown, beside=absent)
        if absent and self.coverage.too_few_to_blame(absent) and not self._on_one_silent_node(absent):
            yield self._open("no_dump", tuple(absent), absent)
        elif absent and not self._share_a_cause(shown):
            yield self._absent(absent, beside=bool(shown) or self.explained)

    def _on_one_silent_node(self, ranks: Collection[int]) -> bool:
        """Whether agents report all ranks but those of one node, which has fallen silent, and these are among them.

        Then no dump was lost: each that could be asked has answered.
        """
        silent = silent_nodes(self.window.records) if self.window.live else {}
        nodes = {self.topology.nodes.get(rank, "") for rank in self.coverage.absent}
        return len(nodes) == 1 and nodes <= silent.keys() and self.coverage.absent.issuperset(ranks)

    def _open(self, fault_class: str, ranks: tuple[int, ...], wanted: Collection[int]) -> Finding:
        """What the dumps at hand cannot decide: no suspects, and whose dumps would decide."""
        missing = (self.coverage.wanted(wanted),) if wanted else ()
        return self._finding("unknown", fault_class, (), ranks, missing=missing)

    def _shown(self, ranks: list[int], beside: list[int]) -> Iterator[Finding]:
        """Claim ranks whose dumps show them idle; those that left none (``beside``) may stand still for the same cause."""
        shared = self._share_a_cause(ranks)
        may_share = self.unsettled or self._share_a_cause([*ranks, *beside])
        if shared:
            yield self._finding("unknown", "outside", (), tuple(ranks), missing=(SHARED.format(count=len(ranks)),))
        elif may_share and self.coverage.mostly_absent(self.topology.ranks):
            yield self._open("never_entered", tuple(ranks), beside)
        else:
            most = UNLIKELY / len(ranks) if may_share else 1.0 if self.topology.sized else UNSIZED
            by_class: dict[str, list[int]] = {}
            for rank in ranks:
                by_class.setdefault(self._fault_class_of(rank), []).append(rank)
            for fault_class, members in by_class.items():
                suspects = tuple(self._suspect(rank, fault_class, most) for rank in members)
                yield self._finding("machine", fault_class, suspects, tuple(members), together=True)

    def _fault_class_of(self, rank: int) -> str:
        progress = self.situation.progress
        if progress.lost_counts.get(rank, 0):
            return "completion_lost"
        recorded = rank in progress.table["rank"] or rank in self.window.launched_before
        return "never_entered" if recorded else "init"

    def _absent(self, ranks: list[int], *, beside: bool) -> Finding:
        """The guilty rank is often the one with no dump; beside a proven culprit it merely cannot be excluded."""
        strength = min(STRENGTH["not_excluded"], UNLIKELY / len(ranks)) if beside else STRENGTH["no_dump"]
        suspects = tuple(
            Suspect(
                kind="rank",
                strength=round(strength, 4),
                why=f"{self.words.undumped(rank)}, and {self.words.waiters_of(self.words.waited(rank))}",
                ranks=(rank,),
                evidence=self.words.evidence_for(rank),
            )
            for rank in ranks
        )
        missing = (f"the stacks or process states of {wait(ranks)[0]}, which left no dump, would decide",)
        return self._finding(
            "machine", "no_dump", suspects, tuple(ranks), together=not beside and len(ranks) == 1, missing=missing
        )

    def _stuck_operations(self, found: list[WaitEnd]) -> Iterator[Finding]:
        """All reached it, none finished it: the device of one of them or the network between, undecided by itself."""
        for ending in found[:MOST_ROOT_RANKS]:
            operation = ending.operations[0]
            if operation not in self.waits.stuck:
                continue
            ranks = tuple(sorted(self.waits.waiting[operation]))
            if self.coverage.may_have_more_members(operation):
                unlisted = UNLISTED.format(operation=self.words.named(operation))
                yield self._finding("unknown", "device_or_network", (), ranks, missing=(unlisted,))
                continue
            late = self._not_started(operation)
            if late:
                suspects = tuple(self._late_device(rank, operation) for rank in late)
                yield self._finding("machine", "device_stuck", suspects, ranks, together=True)
            else:
                proof = self._all_started(operation)
                yield self._set(list(ranks), "device_or_network", ALL_STARTED if proof else UNTIMED, network=proof)

    def _states(self, operation: Operation) -> dict[int, int]:
        """Return the state of an operation for each rank that waits in it: 0 scheduled, 1 started."""
        table = self.situation.progress.table
        rows = [row for row in self.situation.progress.fronts if self.waits.operation_of.get(row) == operation]
        return {int(table["rank"][row]): int(table["state"][row]) for row in rows}

    def _not_started(self, operation: Operation) -> list[int]:
        """Where timing is on, the ranks whose device never started what its peers' devices are in."""
        states = self._states(operation)
        started = [rank for rank, state in states.items() if state == 1]
        late = sorted(rank for rank, state in states.items() if state == 0)
        return late if started and len(late) <= len(started) else []

    def _all_started(self, operation: Operation) -> bool:
        return all(state == 1 for state in self._states(operation).values())

    def _late_device(self, rank: int, operation: Operation) -> Suspect:
        why = f"the device of rank {rank} never started {self.words.named(operation)}, which its peers' devices are in"
        evidence = (self.words.evidence(why, rank, None),)
        return Suspect(kind="rank", strength=STRENGTH["device_stuck"], why=why, ranks=(rank,), evidence=evidence)

    def _cycle(self, ending: WaitEnd) -> Finding:
        """Ranks that wait for each other: two groups entered in opposite order is code; anything else is a set."""
        groups = {operation.group for operation in ending.operations if operation.source < 0}
        entered = ", ".join(self.words.named(operation) for operation in ending.operations[:4])
        if len(groups) > 1 and all(operation.source < 0 for operation in ending.operations):
            odd = self._odd_order(ending)
            why = f"ranks {listed(ending.ranks)} wait for each other: they entered {entered} in opposite order"
            why += f", rank {listed(odd)} unlike the rest" if len(odd) < len(ending.ranks) else ""
            evidence = (self.words.evidence(why, odd[0], None),)
            suspect = Suspect(kind="code", strength=0.9, why=why, ranks=odd, evidence=evidence)
            return self._finding("code", "deadlock", (suspect,), ending.ranks, together=True)
        return self._set(list(ending.ranks), "deadlock", CIRCLE.format(ranks=listed(ending.ranks), entered=entered))

    def _odd_order(self, ending: WaitEnd) -> tuple[int, ...]:
        """Return the ranks whose first wait is unlike the majority's; all of them where there is no majority."""
        table = self.situation.progress.table
        first = {}
        for rank in ending.ranks:
            row = self.situation.progress.oldest_row[rank]
            first[rank] = (
                table.groups[int(table["group"][row])].description or table.groups[int(table["group"][row])].name
            )
        counts = Counter(first.values()).most_common()
        if len(counts) > 1 and 2 * counts[0][1] > len(ending.ranks) and counts[0][1] > 1 + counts[1][1]:
            return tuple(rank for rank in ending.ranks if first[rank] != counts[0][0])
        return ending.ranks

    def _set(self, ranks: list[int], fault_class: str, missing: str, *, network: bool = False) -> Finding:
        """Claim that at least one of these is at fault: a set to probe, never to evict."""
        suspects = tuple(
            Suspect(
                kind="rank",
                strength=round(0.9 / len(ranks), 4),
                why=self._undecided(rank, len(ranks)),
                ranks=(rank,),
                evidence=self.words.evidence_for(rank),
            )
            for rank in ranks
        )
        cause: Cause = "network" if network else "machine" if fault_class == "never_entered" else "unknown"
        return self._finding(cause, fault_class, suspects, tuple(ranks), missing=(missing,))

    def _undecided(self, rank: int, count: int) -> str:
        if count == 1:
            return f"rank {rank} alone is in it, and has not finished it"
        waited = self.words.waited(rank)
        more = f": {self.words.waiters_of(waited)}" if waited else ""
        return f"rank {rank} is one of {count} that the dumps cannot distinguish{more}"

    def _suspect(self, rank: int, fault_class: str, most: float) -> Suspect:
        waited = self.words.waited(rank)
        others = self.words.waiters_of(waited) if waited else "no other rank stands out"
        if fault_class == "completion_lost":
            lost = self.situation.progress.lost_counts.get(rank, 0)
            why = f"rank {rank} lost track of {lost} operations that its peers finished, and launched nothing since; {others}"
        else:
            why = f"rank {rank} waits for no rank and never launched what its peers wait in; {others}"
        return Suspect(
            kind="rank",
            strength=round(min(STRENGTH[fault_class], most), 4),
            why=why,
            ranks=(rank,),
            evidence=self.words.evidence_for(rank),
        )

    def _finding(
        self,
        cause: Cause,
        fault_class: str,
        suspects: tuple[Suspect, ...],
        ranks: tuple[int, ...],
        *,
        together: bool = False,
        missing: tuple[str, ...] = (),
        first: Evidence | None = None,
    ) -> Finding:
        """Add what every finding of this analyzer has: victims, chains, onset, scope."""
        ends: list[Node] = [*ranks]
        following = self.paths.towards(ends)
        assumed = self.beat.why if self.beat.pulse == "unknown" else ""
        victims = tuple(sorted({node for node in following if isinstance(node, int)}.difference(ranks)))
        onset = self.beat.onset_ns / 1e9 if self.beat.onset_ns else None
        dated = [e for suspect in suspects for e in suspect.evidence if e.at is not None]
        first = first or min(dated, key=lambda e: (e.at or 0.0, e.text), default=None)
        return Finding(
            analyzer="hang",
            family="waits",
            symptom="hang",
            cause=cause,
            fault_class=fault_class,
            suspects=suspects,
            together=together,
            scope=frozenset(ranks) | frozenset(victims),
            onset=onset,
            first_symptom=first,
            victims=victims,
            chains=chains(following),
            assumes=assumed,
            missing=(*missing, assumed) if assumed else missing,
        )

    def _idle(self) -> list[int]:
        """Return the ranks that nothing shows to wait: without a whole dump, or with nothing outstanding in theirs."""
        waiting = self.situation.progress.oldest_row
        return [rank for rank in self.topology.ranks if rank not in waiting]

    def _unrecorded_waits(self) -> bool:
        """Gloo records no send or receive, but they count in ``op_id``: a rank that looks idle may wait in one."""
        table = self.situation.progress.table
        ahead = (table["op_id"] > table["collective_seq"]) & table.gloo & ~table.is_p2p
        return bool(ahead.any())

    def _share_a_cause(self, ranks: list[int]) -> bool:
        nodes = {self.topology.nodes.get(rank) for rank in ranks}
        if None not in nodes and len(nodes) <= 2 and len(set(self.topology.nodes.values())) > 2 * len(nodes):
            return False
        most = len(nodes) > MOST_ROOT_NODES if None not in nodes else len(ranks) > MOST_ROOT_RANKS
        return most or 2 * len(ranks) > max(len(self.topology.ranks), 2)
