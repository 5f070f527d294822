"""Which node hosts which rank of a job, by the nodes' own word: none speaks for a rank that another hosts.

A node claims the ranks whose processes it reports, and belongs to a job by what it hosts of it, not by what it says of it.
The first claim holds until its node gives the rank up: by a newer placement without it, or by 90 s without a sign of life.
Even then only a job that has begun anew as a whole may have moved: one that goes on has not lent a rank to a stranger.

    the job runs in attempt 3 ──► half of its nodes claim attempt 4 ──► the job runs in attempt 4
                                  none of them shows life for 90 s

A declared rank map of the running attempt goes before the order of claims: a rank is where it was declared, once that node
claims it. Where a node runs other ranks than were declared for it, the map is wrong about it and keeps no rank for it.

A node that hosted nothing of the job takes part from its start, or where it is expected: it runs one of as many ranks as the
hosts state, the owner has declared it, or a process of the job's own directory of roles is there. What joins later under another
role or without a number is *unconfirmed*: it belongs to the job once one of these confirms it, and until then says nothing of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from math import inf

from analyzers.incidents.rank_maps import (
    LONGEST_ROLE,
    MOST_CLAIMED,
    Attempt,
    HostClaim,
    RankMap,
    Seat,
    Start,
    number_of,
    processes_of,
)
from analyzers.incidents.room import Room
from collectors.records import (
    CollectiveTimings,
    FlightRecorderDump,
    Placement,
    ProcessState,
    Profile,
    Record,
    Ring,
    RoleState,
    StackDump,
    Steps,
)
from collectors.records.identity import PLACED, places, plain, size_of

HELD_SECONDS = 90.0  # placements come every minute, states of processes every ten seconds
LONE_SECONDS = 900.0  # for which fewer than half as many nodes do not take the place of those that a job has lost
MOST_CLAIMANTS = 1 << 15  # nodes of one job
LIVING = (ProcessState, Ring, StackDump, Profile, FlightRecorderDump, Steps, CollectiveTimings)
ENDED = frozenset("XZ")
NO_NODES: frozenset[str] = frozenset()


class Hosting:
    """One job: its attempts, and the hosts of their ranks."""

    def __init__(self, room: Room | None = None) -> None:
        """``room``: for ranks that nodes claim, shared by all jobs."""
        self.room = room if room is not None else Room()
        self.attempt: Attempt = None  # that runs
        self.maps: dict[Attempt, RankMap] = {}
        self.claims: dict[str, HostClaim] = {}
        self.admitted: list[str] = []  # nodes that have got ranks of the running attempt; the reader empties it
        self._before: frozenset[str] = frozenset()  # hosts of the attempt before: no stranger takes a rank from them
        self._is_strange = False  # the running attempt was begun without any of them, or a declared node
        self._contested: set[str] = set()  # nodes that claim more than they host
        self._unconfirmed: set[str] = set()  # of them those that are in no job by their own word alone
        self._named: dict[str, set[str]] = defaultdict(set)  # nodes with claims by their names without domains
        self._declared: tuple[int, Mapping[int, str]] = (0, {})
        self._expected: frozenset[str] = frozenset()  # the names in it
        self._vouched: set[str] = set()  # nodes without domains that the job's own directory of roles names
        self._known: dict[Attempt, tuple[float, frozenset[str]]] = {}  # when an earlier engine knew which hosts

    def declare(self, attempt: int, nodes: Iterable[str], at: float) -> None:
        """Take over the scheduler's word: the node of rank 0, of rank 1, and so on, in an attempt; no nodes take it back."""
        self._declared = attempt, {rank: plain(node) for rank, node in enumerate(nodes)}
        self._expected = frozenset(self._declared[1].values())
        if self.attempt in self.maps:
            self._admit_contested(at)

    def vouch(self, nodes: Iterable[str], at: float) -> None:
        """Take over the word of the job's directory of roles: processes of the job run on these nodes."""
        before = len(self._vouched)
        self._vouched.update(islice(map(plain, nodes), max(0, MOST_CLAIMANTS - before)))
        if len(self._vouched) > before and self.attempt in self.maps:
            self._admit_contested(at)

    def know(self, attempt: Attempt, nodes: Iterable[str], at: float) -> None:
        """Take over who hosted an attempt at an instant: an engine reads the log from the middle of a job's life."""
        self._known[attempt] = at, frozenset(nodes)

    def note_step(self, node: str, attempt: Attempt, at: float) -> None:
        """Note that a node reports steps of an attempt."""
        if self.is_host(node, attempt):
            self.maps[attempt].start.note_step(at)

    def unconfirmed(self, attempt: Attempt) -> list[str]:
        """Return the nodes that have joined the running attempt since its start, and that nothing confirms."""
        return sorted(self._unconfirmed) if attempt == self.attempt else []

    def take(self, node: str, records: Iterable[Record], at: float) -> None:
        """Apply what a node reports of this job. ``at``: of receipt."""
        for record in records:
            if isinstance(record, Placement):
                self._place(node, record, at)
            elif isinstance(record, LIVING) and record.rank is not None and _lives(record):
                self._see(node, record, record.rank, at)
            if isinstance(record, Steps):
                self.note_step(node, record.attempt, at)

    def is_host(self, node: str, attempt: Attempt) -> bool:
        """Whether a node hosts, or has hosted, a rank of an attempt."""
        return attempt in self.maps and node in self.maps[attempt].on

    def is_hearsay(self, record: Record, node: str, attempt: Attempt) -> bool:
        """Whether a record of a node is about a rank, or an instance of a role by its number, that only others host."""
        rank = record.number if isinstance(record, RoleState) else record.rank
        if rank is None or attempt not in self.maps:
            return False
        role = record.role or ""
        entries = [
            host for held, host in self.maps[attempt].by_rank.get(rank, ()) if not (role and held and role != held)
        ]
        return bool(entries) and all(host != node for host in entries)

    def refused(self, node: str, attempt: Attempt) -> frozenset[Seat]:
        """Return the ranks that a node claims of an attempt and does not host; of what it claims beside, those of others."""
        claim, ranks = self.claims.get(node), self.maps.get(attempt)
        if claim is None or ranks is None:
            return frozenset()
        found = {seat for seat in claim.beside(attempt) if ranks.is_of_another(node, seat)}
        if node in self._contested and claim.attempt == attempt:
            found |= claim.seats.keys() - ranks.on.get(node, set())
        return frozenset(found)

    def forget(self, before_at: float, attempts: Iterable[Attempt]) -> None:
        """Drop the nodes that have shown no life since then, and the attempts that are not among these."""
        for node in [name for name, claim in self.claims.items() if claim.seen_at < before_at]:
            del self.claims[node]
            self._named[plain(node)].discard(node)
            self._contested.discard(node)
            self._unconfirmed.discard(node)
        self._named = defaultdict(set, {name: nodes for name, nodes in self._named.items() if nodes})
        kept = {*attempts, self.attempt}
        self.maps = {attempt: ranks for attempt, ranks in self.maps.items() if attempt in kept}

    # --- claims

    def _claim(self, node: str, attempt: Attempt, at: float) -> HostClaim | None:
        """Return a node's claim; None for a word about another attempt than it runs."""
        known = self.claims.get(node)
        if known is not None and known.attempt == attempt:
            return known
        if known is None and len(self.claims) >= MOST_CLAIMANTS:
            return None
        later = known is None or number_of(attempt) > number_of(known.attempt)
        if not later and known is not None and at - known.seen_at <= HELD_SECONDS:
            return None  # a leftover of an earlier attempt; a job that was begun from the start counts from 0 again
        self.claims[node] = made = HostClaim(attempt, at, at, at)
        self._named[plain(node)].add(node)
        self._contested.discard(node)
        self._unconfirmed.discard(node)
        return made

    def _place(self, node: str, placement: Placement, at: float) -> None:
        if (claim := self._claim(node, placement.attempt, at)) is None:
            if placement.attempt is None and node in self.claims:
                self.claims[node].note_unnumbered(processes_of(placement))
            return
        placement = self.room.cut(node, processes_of(placement), len(claim.seats))
        seats = {(rank, role): place for place, role, rank in places(placement) if rank >= 0}
        of_role: dict[str, list[int]] = defaultdict(list)
        for (_, role), place in seats.items():
            of_role[role].append(place)
        sizes = {role: size_of(placement, found) for role, found in of_role.items()}
        before, claim.placement, claim.seen_at = claim.placement, placement, at
        if before is not None and not set(before.pids).issuperset(placement.pids):
            claim.renewed_at = at
            self._begin_again(at)
        same = seats.keys() == claim.seats.keys() and before is not None and claim.sizes == sizes
        if same and claim.attempt == self.attempt and node not in self._contested:
            return
        dropped, claim.sizes = claim.seats.keys() - seats.keys(), sizes
        claim.hold(seats)
        self._settle(node, claim, dropped, at)

    def _see(self, node: str, record: Record, rank: int, at: float) -> None:
        claim = self._claim(node, record.attempt, at)
        if claim is None:
            return
        seat = rank, (record.role or "")[:LONGEST_ROLE]
        if seat in claim.seats or (not record.role and rank in claim.ranks):
            claim.seen_at = at
            if claim.attempt == self.attempt and node not in self._contested:
                return
        elif claim.placement is not None and not isinstance(record, ProcessState):
            return  # files of others may be in reach; what the node runs, its placement lists
        elif rank < 0 or len(claim.seats) >= MOST_CLAIMED or not self.room.take(node, 1):
            return
        else:
            claim.add(seat)
        self._settle(node, claim, (), at)

    # --- hosts

    def _settle(self, node: str, claim: HostClaim, dropped: Iterable[Seat], at: float) -> None:
        """Decide what a changed claim comes to, and what others claim that it has left."""
        if claim.attempt != self.attempt or not self.maps:
            self._advance(claim, at)
        if claim.attempt != self.attempt:
            if (earlier := self.maps.get(claim.attempt)) is not None:
                claim.hold(seat for seat in claim.seats if seat in earlier.on.get(node, ()))
            return
        ranks, sizes = self.maps[self.attempt], self._sizes()
        for seat in dropped:
            ranks.drop(node, seat)
        self._admit(node, claim, ranks, at)
        if dropped or self._sizes() != sizes:
            self._admit_contested(at, but=node)

    def _advance(self, claim: HostClaim, at: float) -> None:
        """Begin the attempt that a claim names, where the job has."""
        members = self.maps[self.attempt].on.keys() if self.attempt in self.maps else set()
        claims = [self.claims[node] for node in members if node in self.claims]
        moved = Counter(one.attempt for one in claims if one.attempt != self.attempt).most_common(1)
        if moved and 2 * moved[0][1] >= len(claims):
            self._begin(moved[0][0], at)
        elif self._is_strange and self._goes_on_before(claim.attempt, len(members)):
            self._begin(claim.attempt, at)
        else:
            newcomers = sum(one.attempt == claim.attempt for one in self.claims.values())
            patience = HELD_SECONDS if 2 * newcomers >= len(members) else LONE_SECONDS
            if not claims or at - max(claim.since, *(one.seen_at for one in claims)) > patience:
                self._begin(claim.attempt, at)

    def _goes_on_before(self, attempt: Attempt, hosts: int) -> bool:
        """Whether the nodes of the attempt before a stranger's have begun another one, as many as half of the stranger's."""
        back = [name for name, one in self.claims.items() if one.attempt == attempt and self._is_of_before(name)]
        return bool(back) and 2 * len(back) >= hosts

    def _is_of_before(self, node: str) -> bool:
        return node in self._before or plain(node) in self._expected

    def _begin(self, attempt: Attempt, at: float) -> None:
        """Let an attempt run: the nodes of the one before come first, for a stranger may have claimed it earlier."""
        if not self._is_strange and self.attempt in self.maps:
            self._before = frozenset(self.maps[self.attempt].on)
        before = self._before
        self.attempt, ranks = attempt, self.maps.setdefault(attempt, RankMap())
        ranks.start = Start(at, has_roles=ranks.start.has_roles)
        ranks.left.clear()
        claims = [(name not in before, one.since, name) for name, one in self.claims.items() if one.attempt == attempt]
        self._is_strange = bool(before) and not any(self._is_of_before(name) for _, _, name in claims)
        self._contested.clear()
        self._unconfirmed.clear()
        for _, _, name in sorted(claims):
            self._admit(name, self.claims[name], ranks, at)

    def _begin_again(self, at: float) -> None:
        """Let an attempt start anew whose processes are others on most of its nodes."""
        if (ranks := self.maps.get(self.attempt)) is not None:
            hosts = [self.claims[node] for node, held in ranks.on.items() if held and node in self.claims]
            if 2 * sum(one.renewed_at > ranks.start.began_at for one in hosts) > len(hosts):
                ranks.start = Start(at, has_roles=ranks.start.has_roles)

    def _admit_contested(self, at: float, but: str = "") -> None:
        """Give the nodes that claim more than they host what they may have now."""
        for node in sorted(self._contested - {but}):
            if node in self.claims:
                self._admit(node, self.claims[node], self.maps[self.attempt], at)

    def _admit(self, node: str, claim: HostClaim, ranks: RankMap, at: float) -> None:
        """Give a node the ranks that it claims and that are free."""
        own, sizes, lost = ranks.on.get(node, set()), self._sizes(), dict[str, bool]()
        is_member = self._is_member(node, ranks, sizes, at)
        left = added = late = False
        for seat in claim.seats:
            if seat in own:
                continue
            rank, role = seat
            if not is_member and (rank >= PLACED or role not in sizes):
                left = late = True
                continue
            rivals = ranks.rivals(node, rank, role)
            if not is_member and not rivals and (last := ranks.last_host(seat)) is not None:
                rivals = [last]
            if not self._may(node, seat, sizes.get(role), at) or not (
                self._is_declared(node, seat, rivals)
                or all(self._has_lost(rival, node, claim, lost, at) for rival in rivals)
            ):
                left = True
                continue
            for rival in rivals:
                ranks.take_from(rival, rank, role)
                self._contested.add(rival)
            ranks.add(node, seat)
            added = True
        if left:
            self._contested.add(node)
        else:
            self._contested.discard(node)
        (self._unconfirmed.add if late and not ranks.on.get(node) else self._unconfirmed.discard)(node)
        if added:
            self.admitted.append(node)

    def _is_member(self, node: str, ranks: RankMap, sizes: Mapping[str, int], at: float) -> bool:
        """Whether a node belongs to a job whatever it runs of it: it hosted some, takes part from the start, or is named."""
        if node in ranks.on or node in self._before:
            return True
        name = plain(node)
        if name in self._vouched or name in self._expected:
            return not any(ranks.on.get(other) for other in self._named.get(name, ()) if other != node)
        known_at, known = self._known.get(self.attempt, (-inf, NO_NODES))
        if node in known:
            return True
        return known_at < ranks.start.began_at and ranks.start.lasts(at, sizes)

    def _may(self, node: str, seat: Seat, size: int | None, at: float) -> bool:
        """Whether a rank is one of the job's, and not declared to be with another node that runs just what was declared."""
        if size is not None and size <= seat[0] < PLACED:
            return False
        declared = self._declared_node(seat)
        return declared in (None, plain(node)) or not any(
            self._runs_as_declared(self.claims[other], declared, at) for other in self._named.get(declared or "", ())
        )

    def _runs_as_declared(self, claim: HostClaim, name: str | None, at: float) -> bool:
        alive = claim.attempt == self.attempt and at - claim.seen_at <= HELD_SECONDS
        return alive and bool(claim.seats) and all(self._declared_node(seat) == name for seat in claim.seats)

    def _is_declared(self, node: str, seat: Seat, rivals: Iterable[str]) -> bool:
        """Whether a rank is declared to be with a node; of two that bear its name in two domains, with neither."""
        declared = self._declared_node(seat)
        return declared == plain(node) and all(plain(rival) != declared for rival in rivals)

    def _declared_node(self, seat: Seat) -> str | None:
        """Return where a rank is declared to be; None: it is not, or its number is one of several roles, and the map has none."""
        (rank, role), (attempt, nodes) = seat, self._declared
        if attempt != (self.attempt or 0):  # None: agents saw no number
            return None
        hosts = self.maps[self.attempt].by_rank.get(rank, ()) if self.attempt in self.maps else ()
        return None if role and any(held and held != role for held, _ in hosts) else nodes.get(rank)

    def _has_lost(self, rival: str, node: str, claim: HostClaim, known: dict[str, bool], at: float) -> bool:
        """Whether a host may have lost its ranks: it shows no life, and nor do the others, but for what began after that."""
        if rival not in known and node in self._before and rival not in self._before:
            known[rival] = True
        if rival not in known:
            held = self.claims.get(rival)
            seen_at = held.seen_at if held is not None and held.attempt == self.attempt else 0.0
            silent_seconds = at - max(seen_at, claim.since)
            if silent_seconds > HELD_SECONDS:
                known[rival] = self._began_anew(seen_at, rival, node, silent_seconds, at)
        return known.setdefault(rival, False)

    def _began_anew(self, since: float, rival: str, node: str, silent_seconds: float, at: float) -> bool:
        hosts = [name for name, held in self.maps[self.attempt].on.items() if held]
        claims = [self.claims[name] for name in hosts if name in self.claims and name not in (rival, node)]
        alive = [one for one in claims if one.attempt == self.attempt and at - one.seen_at <= HELD_SECONDS]
        if alive:
            return 2 * sum(one.renewed_at > since for one in alive) >= len(alive)
        newcomers = (self._contested | {node}) - {rival}
        return 2 * len(newcomers) >= len(hosts) or silent_seconds > LONE_SECONDS

    def _sizes(self) -> dict[str, int]:
        """Return of each role the number of ranks that most of its hosts state."""
        on = self.maps[self.attempt].on if self.attempt in self.maps else {}
        stated: dict[str, Counter[int]] = defaultdict(Counter)
        for node, held in on.items():
            claim = self.claims.get(node) if held else None
            for role, size in claim.sizes.items() if claim is not None else ():
                if size:
                    stated[role][size] += 1
        return {role: counted.most_common(1)[0][0] for role, counted in stated.items()}

    @property
    def world_size(self) -> int | None:
        """Return the number of ranks of the running attempt: of all roles together, where they share numbers."""
        sizes = self._sizes()
        ranks = self.maps[self.attempt].by_rank if self.attempt in self.maps else {}
        shared = any(len({role for role, _ in entries if role}) > 1 for entries in ranks.values())
        return (sum(sizes.values()) if shared else max(sizes.values(), default=0)) or None


def _lives(record: Record) -> bool:
    if isinstance(record, ProcessState):
        gone = record.state in ENDED or record.exit_code is not None or record.signal is not None
        return record.parent_pid is None and not gone
    return not (isinstance(record, Ring) and record.ended)
