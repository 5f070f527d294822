"""``--hosts`` and ``--ranks-per-node``: where each rank runs, as one placement record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectors.records import Placement, Record

MOST_BYTES = 16_777_216  # a hosts file
# What a mistyped file is called; taken for one host it would put every rank there, and that host would be evicted.
_FILE_NAMES = (".txt", ".list", ".lst", ".csv", ".log", ".conf", ".cfg", "hosts", "hostfile", "nodefile", "nodelist")


@dataclass(frozen=True, slots=True)
class Hosts:
    """What the options state. ``names``: one host a rank (a file without ranks per node) or one a node (otherwise)."""

    names: tuple[str, ...] = ()
    ranks_per_node: int | None = None
    a_line_a_rank: bool = False
    source: str = ""

    @classmethod
    def given(cls, text: str | None, ranks_per_node: int | None) -> Hosts:
        """Read the options; ValueError states what is wrong with them."""
        if text is None:
            return cls((), ranks_per_node, False, "--ranks-per-node")
        path = Path(text)
        if path.is_file():
            return cls(_lines(path, ranks_per_node), ranks_per_node, ranks_per_node is None, f"--hosts {text}")
        if "/" in text or text.lower().endswith(_FILE_NAMES):
            raise ValueError(f"--hosts {text} is neither a file nor a hostlist: write a file's path or gpu-[0001-0004]")
        return cls(_unfolded(text), ranks_per_node, False, f"--hosts {text}")

    def placement(self, records: Sequence[Record]) -> Iterable[Placement]:
        """Return the placement record that follows, or nothing where the options were left out."""
        from analyzers.model.topology import stated_world_size
        from collectors.records import Members, Placement

        if not self.names and self.ranks_per_node is None:
            return ()
        nodes = self._nodes(records)
        size = len(nodes) if self._are_all(len(nodes), stated_world_size(records)) else None
        return (Placement(source=self.source, ranks=Members.of(range(len(nodes))), nodes=nodes, world_size=size),)

    def _are_all(self, ranks: int, stated: int | None) -> bool:
        """Whether the names place every rank of the job: as many as the records state, or else as the hosts hold."""
        hold = len(self.names) if self.a_line_a_rank else len(self.names) * (self.ranks_per_node or 0)
        return bool(self.names) and ranks == (hold if stated is None else stated)

    def _nodes(self, records: Sequence[Record]) -> tuple[str, ...]:
        from analyzers.model.topology import stated_world_size

        stated = stated_world_size(records)
        ranks = range(stated or _ranks_seen(records))
        if self.a_line_a_rank:
            if len(ranks) > len(self.names):
                raise ValueError(
                    f"{self.source} names the hosts of {len(self.names)} ranks, the files show {len(ranks)}: write one line "
                    "a rank, or give --ranks-per-node where a line is a node"
                )
            return self.names
        size = self.ranks_per_node or self._ranks_a_host(len(ranks), known=stated is not None)
        if self.names and len(ranks) > size * len(self.names):
            raise ValueError(
                f"{self.source}: {len(self.names)} hosts of {size} ranks hold {size * len(self.names)} ranks, the files show "
                f"{len(ranks)}: name the other hosts or correct --ranks-per-node"
            )
        if self.names:
            return tuple(self.names[rank // size] for rank in ranks)
        # A host that a file name gave away for one rank of the block is the host of the whole block.
        blocks = {rank // size: name for rank, name in sorted(_known_nodes(records).items(), reverse=True)}
        return tuple(blocks.get(rank // size, f"node-{rank // size}") for rank in ranks)

    def _ranks_a_host(self, ranks: int, *, known: bool) -> int:
        if ranks % len(self.names):
            raise ValueError(
                f"{self.source}: {ranks} ranks do not divide into {len(self.names)} hosts: give --ranks-per-node too"
            )
        if len(self.names) > 1 and not known:
            # The highest rank that was seen need not be the last: a wrong division would evict a wrong node.
            raise ValueError(
                f"{self.source}: the files do not state how many ranks the job has, so they cannot be divided among "
                f"{len(self.names)} hosts: give --ranks-per-node too"
            )
        return max(1, ranks // len(self.names))


def without_short_files(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records, and in place of a hosts file with fewer lines than the job has ranks why it is not used.

    Its lines are nodes, or it is not whole: read as one line a rank it would have an innocent node evicted.
    """
    from collectors.records import Placement, Unread

    files = [record for record in records if isinstance(record, Placement) and not record.pids and record.node is None]
    others = [record for record in records if not isinstance(record, Placement) or record.pids]
    ranks = _ranks_seen(others) if files else 0
    for record in records:
        if isinstance(record, Placement) and record in files and len(record.nodes) < ranks:
            yield Unread(
                source=record.source,
                reason=f"it places {len(record.nodes)} ranks on {len(set(record.nodes))} hosts, the other files show {ranks} "
                "ranks: write one line a rank, or slots=N after each host",
            )
        else:
            yield record


def _unfolded(hostlist: str) -> tuple[str, ...]:
    from collectors.formats import Damaged, hosts

    try:
        names = tuple(hosts.expand(hostlist))
        if wrong := next((name for name in names if not hosts.NAME.fullmatch(name)), None):
            raise Damaged(f"{wrong[:80]!r} is no host name")
        return names
    except Damaged as problem:
        raise ValueError(f"--hosts {hostlist[:80]}: {problem}: write it like gpu-[0001-0004,0007]") from None


def _lines(path: Path, ranks_per_node: int | None) -> tuple[str, ...]:
    """Read the file as one in the folder is read: the host of each rank; with ranks per node, each host once a line."""
    from collectors.formats import Damaged, hosts

    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as problem:
        raise ValueError(f"--hosts {path} cannot be read ({problem.strerror}): correct the path") from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"--hosts {path} is larger than {MOST_BYTES:,} bytes: it takes one host a line")
    try:
        return hosts.placement(data.decode("utf-8", "replace"), ranks_per_node and 1).nodes
    except Damaged as problem:
        raise ValueError(f"--hosts {path}: {problem}") from None


def _ranks_seen(records: Iterable[Record]) -> int:
    """Return how many ranks the records show at least: the highest one that wrote or is a member of a group, plus one."""
    from collectors.records import FlightRecorderDump

    highest = -1
    seen: set[int] = set()
    for record in records:
        highest = max(highest, -1 if record.rank is None else record.rank)
        for group in record.groups if isinstance(record, FlightRecorderDump) else ():
            # Equal members are one object, so that a world group that 16,384 dumps repeat is looked at once.
            if group.members is not None and id(group.members) not in seen:
                seen.add(id(group.members))
                highest = max(highest, *group.members.ranks(), -1)
    return highest + 1


def _known_nodes(records: Iterable[Record]) -> dict[int, str]:
    return {record.rank: record.node for record in records if record.rank is not None and record.node}
