"""Roles that count their ranks from 0 each, as trainers and rollouts do: which role a record is of.

Two processes are one rank only where they are of one role. Where two roles share numbers each role is judged by itself, on
its own records and on those of the nodes that it runs on. Elsewhere numbers are unique in the job, whatever roles there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from collectors.records import FlightRecorderDump, Placement, RasCommunicator, Record, RoleState, Unread
from collectors.records.identity import PLACED, only, places, size_of

_ROLE = attrgetter("role")
_KEYS_FROM = (1 << 30) - 1


@dataclass
class Seats:
    """Which roles and processes the records of an attempt know."""

    ranks: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # role → its ranks
    nodes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # node → roles
    pids: dict[tuple[str, int], str] = field(default_factory=dict)  # node, pid → role

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> Seats:
        """Collect them from placements and from records that state role and rank."""
        seats = cls()
        for record in records:
            if isinstance(record, Placement):
                seats._place(record)
            elif record.role and record.rank is not None and not isinstance(record, RoleState):
                seats.ranks[record.role].add(record.rank)
                seats._on(record.node, record.role)
        return seats

    @property
    def share_numbers(self) -> bool:
        """Whether two roles have a rank of one number, or a number comes from a place."""
        every = [rank for ranks in self.ranks.values() for rank in ranks]
        return (len(self.ranks) > 1 and len(set(every)) < len(every)) or max(every, default=0) >= PLACED

    def role_of(self, record: Record) -> str | None:
        """Return the role of a record that is about one process; None where it is about none that is known."""
        if record.role in self.ranks:
            return record.role
        if (pid := self._by_pid(record)) is not None:
            return pid
        if record.rank is None:
            return None
        having = [role for role, ranks in self.ranks.items() if record.rank in ranks]
        return having[0] if len(having) == 1 else ""

    def _place(self, placement: Placement) -> None:
        stated = bool(placement.roles or placement.role or placement.pids)
        for place, role, rank in places(placement) if stated else ():
            node = placement.nodes[place] if place < len(placement.nodes) else None
            self.ranks[role].add(rank)
            self._on(node, role)
            if node is not None and place < len(placement.pids):
                self.pids[node, placement.pids[place]] = role

    def _on(self, node: str | None, role: str) -> None:
        if node is not None:
            self.nodes[node].add(role)

    def _by_pid(self, record: Record) -> str | None:
        pids = [getattr(record, "pid", None), getattr(record, "parent_pid", None)]
        pids += [one.pid for one in record.ranks] if isinstance(record, RasCommunicator) else []
        known = (self.pids.get((record.node or "", pid)) for pid in pids if pid is not None)
        return next((role for role in known if role is not None), None)


def by_role(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Split the records of a job whose roles share numbers by role; empty for every other job.

    What is about no process, a kernel event for example, is of every role on its node. What has no node either is of the
    empty role, as are processes without one.
    """
    if not any(map(_ROLE, records)) and not any(isinstance(one, Placement) and one.roles for one in records):
        return {}
    seats = Seats.from_records(records)
    if not seats.share_numbers and not _apart(records, seats):
        return {}
    found: dict[str, list[Record]] = {role: [] for role in sorted({"", *seats.ranks})}
    for record in records:
        for role, part in _parts(record, seats):
            found[role].append(part)
    return {role: part for role, part in found.items() if role or not all(isinstance(one, Unread) for one in part)}


def _apart(records: Iterable[Record], seats: Seats) -> bool:
    """Whether a job has roles of numbers of their own that nothing joins: readings of roles, and no group across them."""
    roles = {rank: role for role, ranks in seats.ranks.items() for rank in ranks if role}
    if len(set(roles.values())) < 2 or "" in seats.ranks or not any(isinstance(one, RoleState) for one in records):
        return False
    dumps = (record for record in records if isinstance(record, FlightRecorderDump))
    members = {group.members for dump in dumps for group in dump.groups if group.members is not None}
    return all(len({roles.get(rank) for rank in one.ranks()}) < 2 for one in members)


def _parts(record: Record, seats: Seats) -> Iterator[tuple[str, Record]]:
    if isinstance(record, Placement):
        stated: Mapping[str, list[int]] = defaultdict(list)
        for place, role, rank in places(record):
            having = [name for name, ranks in seats.ranks.items() if rank in ranks] if not role else [role]
            stated[having[0] if len(having) == 1 else ""].append(place)
        for role, kept in stated.items():
            yield role, only(record, kept, role=role or None, world_size=size_of(record, kept))
    elif (whose := seats.role_of(record)) is not None:
        yield whose, record
    else:
        for role in sorted(seats.nodes.get(record.node or "", ())) or ("",):
            yield role, record


class Numbering:
    """A number for each process of a job that is seen live: its rank, or another where a role before it has that rank.

    So all that is kept by rank is kept by process. ``name`` and ``of`` lead back.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._seats: dict[int, tuple[str, int]] = {}
        self._roles: set[str] = set()
        self.shares = False  # whether two roles have a rank of one number

    def number(self, role: str | None, rank: int) -> int:
        """Return the number of a process; of one whose role is not stated, that of the first with this rank."""
        seat = (role or "", rank)
        found = self._numbers.get(seat)
        if found is not None:
            return found
        if not role and rank in self._seats:
            return rank
        found = rank if rank not in self._seats else _KEYS_FROM - len(self._numbers)
        self._numbers[seat], self._seats[found] = found, seat
        self._roles |= {role} if role else set()
        self.shares = self.shares or found != rank
        return found

    def known(self, role: str, rank: int) -> int | None:
        """Return the number of a process of which something was seen; None: nothing was."""
        return self._numbers.get((role, rank))

    def of(self, number: int) -> tuple[str, int]:
        """Return role and rank of a number."""
        return self._seats.get(number, ("", number))

    @property
    def several(self) -> bool:
        """Whether the job has more than one role."""
        return len(self._roles) > 1
