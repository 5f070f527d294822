"""From the ends of the waits to findings: which class each end is, whom it names, and on what evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from analyzers.finding import Cause, Evidence, Finding, Suspect
from analyzers.hang.desync import Mismatch
from analyzers.hang.rhythm import Rhythm
from analyzers.hang.roots import Ending, Paths, chains
from analyzers.hang.waits import Node, Operation, Situation, Waits
from analyzers.topology import Topology
from analyzers.window import Window

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
# More independent roots than this share a cause that is not any of them (a switch, a file system, the code).
MOST_ROOT_RANKS, MOST_ROOT_NODES = 8, 4
MOST_EVIDENCE = 6


@dataclass
class Claims:
    """Turns endings and mismatches of one situation into findings."""

    window: Window
    topology: Topology
    situation: Situation
    waits: Waits
    beat: Rhythm
    paths: Paths = field(init=False)
    explained: bool = False  # something else already explains the hang

    def __post_init__(self) -> None:
        """Index the graph backwards once."""
        self.paths = Paths(self.waits)

    def desyncs(self, found: list[Mismatch]) -> Iterator[Finding]:
        """A rank that calls something else than its group is the code's doing; never a machine's."""
        for mismatch in found[:MOST_ROOT_RANKS]:
            why = self._disagreement(mismatch)
            row = mismatch.row
            evidence = self._evidence(why, int(self.situation.progress.table["rank"][row]), mismatch.created_ns)
            suspect = Suspect(
                kind="code", strength=STRENGTH["desync"], why=why, ranks=mismatch.odd, evidence=(evidence,)
            )
            missing = (
                () if mismatch.decided else ("no majority: the code path of these ranks must be compared by hand",)
            )
            yield self._finding(
                "code", "desync", (suspect,), mismatch.odd, together=True, missing=missing, first=evidence
            )

    def endings(self, found: list[Ending], disagreements: list[Mismatch]) -> Iterator[Finding]:
        """Classify where the waits end, leaving out what a disagreement already explains."""
        explained = {Operation(m.group, m.sequence) for m in disagreements}
        odd = {rank for m in disagreements for rank in m.odd}
        left = [e for e in found if not (explained & set(e.operations)) and not (e.ranks and odd >= set(e.ranks))]
        waited_for = {node for targets in self.waits.after.values() for node in targets}
        singles = [e.ranks[0] for e in left if len(e.ranks) == 1 and e.ranks[0] in waited_for]
        if not singles and not disagreements and not any(e.cyclic for e in left) and not self.waits.stuck:
            singles = sorted(self.situation.progress.lost_counts)
        self.explained = bool(disagreements) or any(e.cyclic or self.waits.stuck & set(e.operations) for e in left)
        yield from self._stuck_operations([e for e in left if not e.ranks])
        yield from (self._cycle(ending) for ending in left if ending.cyclic)
        yield from self._ranks(singles)

    def _ranks(self, singles: list[int]) -> Iterator[Finding]:
        """Ranks that others wait for and that wait for nobody: shown by their own dump, or known by its absence."""
        dumped = self.situation.progress.dumped
        shown = [rank for rank in singles if rank in dumped and rank not in self.waits.opaque]
        opaque = [rank for rank in singles if rank in self.waits.opaque]
        absent = [rank for rank in singles if rank not in dumped]
        if opaque:
            yield self._finding("unknown", "outside", (), tuple(opaque), missing=(_OPAQUE.format(ranks=opaque),))
        if shown and len(singles) > 1 and self._unrecorded_waits():
            # They may wait for each other where nothing is recorded: one set, unless something else explains it.
            if not self.explained:
                yield self._set(singles, "never_entered", _UNRECORDED.format(ranks=_listed(singles)))
            return
        if shown:
            yield from self._shown(shown)
        if absent:
            yield self._absent(absent, beside=bool(shown) or self.explained)

    def _shown(self, ranks: list[int]) -> Iterator[Finding]:
        if self._share_a_cause(ranks):
            yield self._finding("unknown", "outside", (), tuple(ranks), missing=(_SHARED.format(count=len(ranks)),))
        else:
            by_class: dict[str, list[int]] = {}
            for rank in ranks:
                by_class.setdefault(self._class_of(rank), []).append(rank)
            for fault_class, members in by_class.items():
                suspects = tuple(self._suspect(rank, fault_class) for rank in members)
                yield self._finding("machine", fault_class, suspects, tuple(members), together=True)

    def _class_of(self, rank: int) -> str:
        progress = self.situation.progress
        if progress.lost_counts.get(rank, 0):
            return "completion_lost"
        recorded = rank in progress.table["rank"] or rank in self.window.launched_before
        return "never_entered" if recorded else "init"

    def _absent(self, ranks: list[int], *, beside: bool) -> Finding:
        """The guilty rank is often the one with no dump; beside a proven culprit it merely cannot be excluded."""
        strength = STRENGTH["not_excluded"] if beside else STRENGTH["no_dump"]
        suspects = tuple(
            Suspect(
                kind="rank",
                strength=strength,
                why=f"{self._undumped(rank)}, and {self._told(self._waited(rank))}",
                ranks=(rank,),
                evidence=self._evidence_for(rank),
            )
            for rank in ranks
        )
        missing = (f"the stacks or process states of {_wait(ranks)[0]}, which left no dump, would decide",)
        return self._finding(
            "machine", "no_dump", suspects, tuple(ranks), together=not beside and len(ranks) == 1, missing=missing
        )

    def _undumped(self, rank: int) -> str:
        """Say what is missing of a rank; a whole node without dumps may be our own collection."""
        if rank in self.situation.progress.table.partial:
            return f"rank {rank} left no whole flight-recorder dump"
        node = self.topology.nodes.get(rank)
        beside = self.topology.ranks_on(node) if node else ()
        alone = len(beside) > 1 and all(other not in self.situation.progress.dumped for other in beside)
        more = f" (nor did any rank of {node}, which may be our own collection)" if alone else ""
        return f"rank {rank} left no flight-recorder dump{more}"

    def _stuck_operations(self, found: list[Ending]) -> Iterator[Finding]:
        """All reached it, none finished it: the device of one of them or the network between, undecided by itself."""
        for ending in found[:MOST_ROOT_RANKS]:
            operation = ending.operations[0]
            if operation not in self.waits.stuck:
                continue
            ranks = tuple(sorted(self.waits.waiting[operation]))
            late = self._not_started(operation, ranks)
            if late:
                suspects = tuple(self._late_device(rank, operation) for rank in late)
                yield self._finding("machine", "device_stuck", suspects, ranks, together=True)
            else:
                proof = self._all_started(operation, ranks)
                yield self._set(list(ranks), "device_or_network", _ALL_STARTED if proof else _UNTIMED, network=proof)

    def _states(self, operation: Operation, ranks: tuple[int, ...]) -> dict[int, int]:
        """Return each rank's state of an operation: 0 scheduled, 1 started."""
        table = self.situation.progress.table
        states = {}
        for row in self.situation.progress.fronts:
            rank = int(table["rank"][row])
            if rank in ranks and self.waits.operation_of.get(row) == operation:
                states[rank] = int(table["state"][row])
        return states

    def _not_started(self, operation: Operation, ranks: tuple[int, ...]) -> list[int]:
        """Where timing is on, the ranks whose device never started what its peers' devices are in."""
        states = self._states(operation, ranks)
        started = [rank for rank, state in states.items() if state == 1]
        late = sorted(rank for rank, state in states.items() if state == 0)
        return late if started and len(late) <= len(started) else []

    def _all_started(self, operation: Operation, ranks: tuple[int, ...]) -> bool:
        states = self._states(operation, ranks)
        return len(states) == len(ranks) and all(state == 1 for state in states.values())

    def _late_device(self, rank: int, operation: Operation) -> Suspect:
        why = f"the device of rank {rank} never started {self._named(operation)}, which its peers' devices are in"
        evidence = (self._evidence(why, rank, None),)
        return Suspect(kind="rank", strength=STRENGTH["device_stuck"], why=why, ranks=(rank,), evidence=evidence)

    def _cycle(self, ending: Ending) -> Finding:
        """Ranks that wait for each other: two groups entered in opposite order is code; anything else is a set."""
        groups = {operation.group for operation in ending.operations if operation.source < 0}
        entered = ", ".join(self._named(operation) for operation in ending.operations[:4])
        if len(groups) > 1 and all(operation.source < 0 for operation in ending.operations):
            odd = self._odd_order(ending)
            why = f"ranks {_listed(ending.ranks)} wait for each other: they entered {entered} in opposite order"
            why += f", rank {_listed(odd)} unlike the rest" if len(odd) < len(ending.ranks) else ""
            evidence = (self._evidence(why, odd[0], None),)
            suspect = Suspect(kind="code", strength=0.9, why=why, ranks=odd, evidence=evidence)
            return self._finding("code", "deadlock", (suspect,), ending.ranks, together=True)
        return self._set(list(ending.ranks), "deadlock", _CIRCLE.format(ranks=_listed(ending.ranks), entered=entered))

    def _odd_order(self, ending: Ending) -> tuple[int, ...]:
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
        """At least one of these, and the dumps cannot say which: a set to probe, never to evict."""
        suspects = tuple(
            Suspect(
                kind="rank",
                strength=round(0.9 / len(ranks), 4),
                why=f"rank {rank} is one of {len(ranks)} that the dumps cannot tell apart: {self._told(self._waited(rank))}",
                ranks=(rank,),
                evidence=self._evidence_for(rank),
            )
            for rank in ranks
        )
        cause: Cause = "network" if network else "machine" if fault_class == "never_entered" else "unknown"
        return self._finding(cause, fault_class, suspects, tuple(ranks), missing=(missing,))

    def _suspect(self, rank: int, fault_class: str) -> Suspect:
        waited = self._waited(rank)
        told = self._told(waited) if waited else "nobody else stands out"
        if fault_class == "completion_lost":
            lost = self.situation.progress.lost_counts.get(rank, 0)
            why = f"rank {rank} lost track of {lost} operations that its peers finished, and launched nothing since; {told}"
        else:
            why = f"rank {rank} waits for nobody and has launched nothing since; {told}"
        return Suspect(
            kind="rank",
            strength=STRENGTH[fault_class],
            why=why,
            ranks=(rank,),
            evidence=self._evidence_for(rank),
        )

    def _waited(self, rank: int) -> list[Operation]:
        """Return the operations that wait for a rank, the oldest first."""
        created = self.situation.progress.table["created_ns"]
        found = [op for op, absent in self.waits.absent.items() if rank in absent and rank in self.waits.after[op]]
        return sorted(found, key=lambda op: (int(created[self.waits.row_of[op]]), op))

    def _told(self, operations: list[Operation]) -> str:
        if not operations:
            return "others wait with it in the same operation"
        first, more = operations[0], len(operations) - 1
        waiting = sorted(self.waits.waiting[first])
        text = f"{' '.join(_wait(waiting))} for it in {self._named(first)}"
        return text + (f" and {more} more operation{'s' if more > 1 else ''}" if more else "")

    def _named(self, operation: Operation) -> str:
        table = self.situation.progress.table
        group = table.groups[operation.group]
        named = f"group {group.name}" + (f" ({group.description})" if group.description else "")
        row = self.waits.row_of[operation]
        if operation.source >= 0:
            return f"the transfer from rank {operation.source} to rank {operation.target} in {named}"
        return f"{table.operation(row)} {operation.sequence} of {named}"

    def _disagreement(self, mismatch: Mismatch) -> str:
        group = self.situation.progress.table.groups[mismatch.group]
        others = next((r for r in mismatch.calls if r not in mismatch.odd), None)
        odd = f"rank {_listed(mismatch.odd)} called {_called(mismatch.calls[mismatch.odd[0]])}"
        place = f"at collective {mismatch.sequence} of group {group.name}"
        if others is None:
            second = next(r for r in mismatch.odd if mismatch.calls[r] != mismatch.calls[mismatch.odd[0]])
            return (
                f"{place} rank {mismatch.odd[0]} called {_called(mismatch.calls[mismatch.odd[0]])} "
                f"and rank {second} called {_called(mismatch.calls[second])}"
            )
        ahead = ": it skipped one and is ahead" if mismatch.ahead else ""
        rest = len(mismatch.calls) - len(mismatch.odd)
        return f"{place} {odd} where the other {rest} called {_called(mismatch.calls[others])}{ahead}"

    def _evidence_for(self, rank: int) -> tuple[Evidence, ...]:
        found = []
        for operation in self._waited(rank)[:MOST_EVIDENCE]:
            waiter = min(self.waits.waiting[operation])
            created = int(self.situation.progress.table["created_ns"][self.waits.row_of[operation]])
            text = f"{' '.join(_wait(sorted(self.waits.waiting[operation])))} in {self._named(operation)}"
            found.append(self._evidence(text, waiter, created))
        return tuple(found)

    def _evidence(self, text: str, rank: int, created_ns: int | None) -> Evidence:
        at = created_ns / 1e9 if created_ns is not None and created_ns > 0 else None
        return Evidence(text=text, source=self.window.source_of.get(rank, ""), at=at, rank=rank)

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
        victims = tuple(sorted(node for node in following if isinstance(node, int) and node not in ranks))
        onset = self.beat.onset_ns / 1e9 if self.beat.onset_ns else None
        told = [e for suspect in suspects for e in suspect.evidence if e.at is not None]
        first = first or min(told, key=lambda e: (e.at or 0.0, e.text), default=None)
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
            missing=missing,
        )

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


_UNRECORDED = "gloo records no send or receive: the stacks or process states of ranks {ranks} would tell who is stuck"
_UNTIMED = (
    "every member launched it: the devices' state would decide (TORCH_NCCL_ENABLE_TIMING=1, GPU metrics, link counters)"
)
_ALL_STARTED = "every member's device is in it: link counters or a second communicator over the same link would decide"
_OPAQUE = "ranks {ranks} wait in an operation whose peers the dump does not name: their stacks would decide"
_SHARED = (
    "{count} ranks stand still at once without waiting for anyone: what they share (storage, a switch, the code), "
    "and their stacks, would decide"
)
_CIRCLE = "ranks {ranks} wait for each other in {entered}: their stacks would tell which of them stands still"


def _listed(ranks: tuple[int, ...] | list[int], most: int = 8) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:most])
    return shown if len(ranks) <= most else f"{shown} and {len(ranks) - most} more"


def _wait(ranks: list[int]) -> tuple[str, str]:
    return (f"rank {ranks[0]}", "waits") if len(ranks) == 1 else (f"ranks {_listed(ranks)}", "wait")


def _called(calls: tuple[tuple[str, int, str], ...]) -> str:
    return " + ".join(
        name + (f" of {count} elements" if count >= 0 else "") + (f" {kind}" if kind else "")
        for name, count, kind in calls[:2]
    )
