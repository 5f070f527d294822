"""A hosts file gives the node of each rank: line N, rank N; or node names in Slurm's hostlist notation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Damaged, Input, reader
from collectors.formats.text_lines import lines
from collectors.records import Members, Placement

MOST_RANKS = 1_000_000
_FILE = re.compile(
    r"(?:^|[/:\\])(?:hosts|hostfile|host_file|hostlist|nodefile|nodelist|nodes)(?:\.txt)?$", re.IGNORECASE
)
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?")
_LIST = re.compile(r"[A-Za-z0-9_.,\[\]-]+")
_DELIMITER = re.compile(r"[\[\],]")
# Open MPI's "node1 slots=8" and PBS's "node1:8" give the number of ranks on a node.
_LINE = re.compile(
    r"(?P<hosts>\S+?)(?:\s+(?:slots|max_slots|n|ppn)\s*=\s*(?P<slots>\d{1,5})\S*|:(?P<count>\d{1,5}))?(?:\s+[^\s=]+=\S+)*$"
)


def expand(hostlist: str) -> list[str]:
    """Return the names of a hostlist such as "node[0001-0004,0007]" in its order."""
    if "[" not in hostlist and "," not in hostlist:
        return [hostlist]
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

    names: list[str] = []
    # A NodeSet sorts its names; the order of the parts is the order of the ranks.
    for part in _parts(hostlist):
        if (most := _size(part)) + len(names) > MOST_RANKS:  # asked before: a NodeSet holds every number of its ranges
            raise Damaged(f"{part[:80]!r} names up to {most:,} hosts; {MOST_RANKS:,} is the most: correct its range")
        try:
            nodes = NodeSet(part, resolver=RESOLVER_NOGROUP)
        except (NodeSetParseError, ValueError) as error:
            raise Damaged(f"{part[:80]!r} is no hostlist: {error}") from error
        names.extend(nodes)
    return names


def _parts(hostlist: str) -> Iterator[str]:
    """Yield what the commas outside of brackets separate."""
    begin, inside = 0, False
    for found in _DELIMITER.finditer(hostlist):
        if found[0] == ",":
            if not inside:
                yield hostlist[begin : found.start()]
                begin = found.end()
        elif inside == (found[0] == "["):
            raise Damaged(f"{hostlist[:80]!r} is no hostlist: its brackets do not match")
        else:
            inside = not inside
    yield hostlist[begin:]


def _size(hostlist: str) -> int:
    """Return how many names a hostlist has at most, without making them."""
    size = 1
    for ranges in re.findall(r"\[([^\[\]]*)\]", hostlist):
        bounds = [re.match(r"(\d{1,18})-(\d{1,18})", part) for part in ranges.split(",")]
        size *= sum(int(found[2]) - int(found[1]) + 1 if found else 1 for found in bounds)
    return size


def placement(text: str, ranks_per_node: int | None = None, *, source: str = "") -> Placement:
    """Place rank N on line N's host; with ``ranks_per_node``, so many ranks on each host; raise ``Damaged`` if it is none.

    A line may hold a hostlist. "slots=8" or ":8" after a name gives that host's number of ranks, where no number is given.
    """
    nodes: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        found = _LINE.match(entry)
        if found is None or not _LIST.fullmatch(found["hosts"]):
            raise Damaged(f"line {number} of the hosts file is {entry[:80]!r}: one host or hostlist a line is read")
        times = ranks_per_node or int(found["slots"] or found["count"] or 1)
        for name in expand(found["hosts"]):
            if not NAME.fullmatch(name):
                raise Damaged(f"line {number} of the hosts file names {name[:80]!r}, which is no host name")
            nodes.extend([name] * times)
        if len(nodes) > MOST_RANKS:
            raise Damaged(f"the hosts file places more than {MOST_RANKS:,} ranks by line {number}: correct it")
    if not nodes:
        raise Damaged("the hosts file names no host: write the host of rank N on line N")
    return Placement(source=source, ranks=Members.of(range(len(nodes))), nodes=tuple(nodes), world_size=len(nodes))


def _sniff(head: bytes, source: str) -> int:
    if not _FILE.search(source):
        return 0
    text = head.decode("ascii", errors="replace")
    entries = [entry for line in text.splitlines()[:100] if (entry := line.partition("#")[0].strip())]
    fits = [
        (found := _LINE.match(entry)) is not None and _LIST.fullmatch(found["hosts"]) is not None for entry in entries
    ]
    # The last line may be cut where the head ends. /etc/hosts maps addresses to names and is something else.
    return 100 if fits and all(fits[:-1] or fits) else 0


@reader(
    "hosts",
    made_by="scontrol show hostnames, $PBS_NODEFILE, an Open MPI hostfile, or by hand; named hosts.txt, hostfile or nodefile",
    gives="which node each rank runs on: line N names the host of rank N",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Placement]:
    """Read a hosts file; one line that is no host makes the whole file useless, as every later rank would shift."""
    yield placement("\n".join(text for _, text in lines(input.stream)), source=input.source)
