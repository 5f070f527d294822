"""Where each rank is and with which it communicates: nodes, process groups, coordinates. Inferred here and nowhere else."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from analyzers.model.recorder import GroupName
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, Members, Placement, ProcessState, Record, RoleState
from collectors.records.identity import places
from collectors.records.record import MOST_RANKS

# Megatron-LM's group descriptions, DeviceMesh dimension names, TorchTitan's and FSDP's; longest match first.
_DIMENSIONS: tuple[tuple[str, str], ...] = (
    ("tensor_model_parallel_group", "tp"),
    ("pipeline_model_parallel_group", "pp"),
    ("data_parallel_group_with_cp", "dp"),
    ("data_parallel_group", "dp"),
    ("context_parallel_group", "cp"),
    ("expert_model_parallel_group", "ep"),
    ("model_parallel_group", "model"),
    ("embedding_group", "embedding"),
    ("position_embedding_group", "embedding"),
    ("default_pg", "world"),
)
_MESH_WORDS = {"tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "ep": "ep", "fsdp": "dp", "ddp": "dp", "pipeline": "pp"}

_WORLD_SIZE = re.compile(r"(?:\bWORLD_SIZE=|--world[-_]size[ =])(\d{1,7})\b")


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One communicator. ``key`` is unique in the job; ``dimension``: world, tp, pp, dp, cp, ep, model, embedding, other."""

    key: str
    name: str
    description: str
    dimension: str
    members: tuple[int, ...]  # global ranks in group order: group-local rank i is members[i]
    inferred: bool = False  # the members were seen using it and no dump lists them: there may be more

    def __str__(self) -> str:
        return f"{self.name} ({self.description})" if self.description else self.name


@dataclass(frozen=True)
class Topology:
    """What is known of the job's shape. ``ranks`` are all expected ranks, sorted, dumps or not."""

    ranks: tuple[int, ...] = ()
    nodes: Mapping[int, str] = field(default_factory=dict)
    groups: tuple[ProcessGroup, ...] = ()
    coordinates: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # rank → {"pp": 1, "dp": 0, "tp": 5}
    sized: bool = (
        False  # a record lists ranks of the job or states their number; otherwise little is known of the others
    )
    world_size: int | None = None  # as a record states it; without one there may be higher ranks than were seen
    roles: Mapping[int, str] = field(default_factory=dict)  # of the ranks whose role a record states
    instances: Mapping[int, str] = field(default_factory=dict)  # by which name the directory of roles has a rank
    parts: Mapping[str, Topology] = field(default_factory=dict)  # role → its own, where roles share rank numbers

    @cached_property
    def seats(self) -> dict[tuple[str, str], int]:
        """Map role and instance to the rank within its role, of all roles."""
        parts = self.parts.items() if self.parts else (("", self),)
        return {
            (part.roles.get(rank, role), name): rank for role, part in parts for rank, name in part.instances.items()
        }

    @cached_property
    def by_key(self) -> dict[str, ProcessGroup]:
        """Map a group's key to it."""
        return {group.key: group for group in self.groups}

    def ranks_on(self, node: str) -> tuple[int, ...]:
        """Return the ranks placed on a node."""
        return self._ranks_by_node.get(node, ())

    @cached_property
    def _ranks_by_node(self) -> dict[str, tuple[int, ...]]:
        placed: dict[str, list[int]] = defaultdict(list)
        for rank in sorted(self.nodes):
            placed[self.nodes[rank]].append(rank)
        return {node: tuple(ranks) for node, ranks in placed.items()}

    def shared_groups(self, ranks: Iterable[int]) -> tuple[ProcessGroup, ...]:
        """Return the groups that contain all these ranks, smallest first."""
        wanted = frozenset(ranks)
        found = [group for group in self.groups if wanted <= frozenset(group.members)]
        return tuple(sorted(found, key=lambda group: (len(group.members), group.key)))

    def label(self, rank: int) -> str:
        """Name a rank for people: ``rank 2637 (pp9/dp37/tp5, node-0413)``, as much of it as is known."""
        parts = "/".join(f"{name}{value}" for name, value in self.coordinates.get(rank, {}).items())
        known = ", ".join(part for part in (parts, self.nodes.get(rank, "")) if part)
        return f"rank {rank} ({known})" if known else f"rank {rank}"


def key_of(group: GroupName) -> str:
    """Return a communicator's key: its name and, where they are listed, its members."""
    return group.name if group.members is None else f"{group.name}/{zlib.crc32(group.members.data):08x}"


def infer(window: Window) -> Topology:
    """Infer nodes, groups and coordinates from placement records, dumps and the shape of the memberships."""
    if window.parts:
        return Topology(parts={role: infer(part) for role, part in window.parts.items()})
    nodes = _nodes(window)
    named = _named_groups(window)
    ranks = _expected_ranks(window, nodes, named)
    groups = _with_inferred_members(window, named, ranks)
    sized = any(group.members is not None for group in named) or any(p.world_size for p in window.records_of(Placement))
    return Topology(
        ranks,
        nodes,
        groups,
        _coordinates(groups),
        sized,
        stated_world_size(window.records),
        _roles(window),
        _instances(window),
    )


def _instances(window: Window) -> dict[int, str]:
    if not (readings := window.records_of(RoleState)):
        return {}
    from analyzers.model.role_ranks import match_ranks, seen_in, statements  # few jobs have a directory of roles

    found = match_ranks(statements(readings), seen_in(window.records))
    return {rank: instance for (_, instance), rank in found.items()}


def _roles(window: Window) -> dict[int, str]:
    roles = {record.rank: record.role for record in window.records if record.role and record.rank is not None}
    for placement in window.records_of(Placement):
        roles.update((rank, role) for _, role, rank in places(placement) if role)
    return roles


def stated_world_size(records: Iterable[Record]) -> int | None:
    """Return the number of ranks that records state; None where none does, two disagree or a higher rank was seen.

    A placement states it, the command of a rank's process, or the world's group where a dump lists its members.
    """
    stated: set[int] = set()
    highest = -1
    listed: set[int] = set()
    for record in records:
        if record.rank is not None and record.rank > highest:
            highest = record.rank
        if isinstance(record, Placement) and record.world_size:
            stated.add(record.world_size)
        elif isinstance(record, ProcessState) and record.rank is not None:
            stated.update(int(size) for size in _WORLD_SIZE.findall(record.command))
        for group in record.groups if isinstance(record, FlightRecorderDump) else ():
            # Equal members are one object, so that a world group that 16,384 dumps repeat is read once.
            if group.members is None or id(group.members) in listed:
                continue
            listed.add(id(group.members))
            members = group.members.ranks()
            highest = max(highest, *members, -1)
            if members and dimension_of(group.description, group.name) == "world":
                stated.add(len(members))
    size = stated.pop() if len(stated) == 1 else 0
    return size if max(highest, 0) < size <= MOST_RANKS else None


def _nodes(window: Window) -> dict[int, str]:
    nodes = {record.rank: record.node for record in window.records if record.rank is not None and record.node}
    for placement in window.records_of(Placement):
        if placement.ranks is not None:
            nodes.update(zip(placement.ranks.ranks(), placement.nodes, strict=False))
    return nodes


def _named_groups(window: Window) -> list[GroupName]:
    """Collect every communicator that any dump lists or uses, once."""
    found = dict.fromkeys(window.recorder.groups)
    listed: dict[tuple[str, Members], GroupName] = {}
    seen: set[tuple[str, int]] = set()
    for dump in window.dumps:
        for group in dump.groups:
            if (known := (group.name, id(group.members))) in seen:
                continue
            seen.add(known)
            if group.members is not None and len(group.members):
                listed.setdefault((group.name, group.members), GroupName(group.name, group.description, group.members))
    found.update(dict.fromkeys(listed.values()))
    return sorted(found, key=lambda group: (group.name, key_of(group)))


def _expected_ranks(window: Window, nodes: Mapping[int, str], named: list[GroupName]) -> tuple[int, ...]:
    """A rank is expected when a record lists it, or when a higher one exists: ranks are numbered from 0."""
    ranks = set(nodes) | {record.rank for record in window.records if record.rank is not None}
    for group in named:
        if group.members is not None:
            ranks.update(group.members.ranks())
    ranks.update(range(min(_placed_size(window), MOST_RANKS)))
    if not ranks or max(ranks) >= MOST_RANKS:
        return tuple(sorted(ranks))  # no job is so large: a wild number in one dump makes no expectation of the others
    return tuple(range(max(ranks) + 1))


def _placed_size(window: Window) -> int:
    """Return the number of ranks that most nodes' placements state: one node's wild number makes no expectation."""
    stated = {(placement.node, placement.world_size) for placement in window.records_of(Placement)}
    sizes = Counter(size for _, size in stated if size)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def _with_inferred_members(window: Window, named: list[GroupName], ranks: tuple[int, ...]) -> tuple[ProcessGroup, ...]:
    table = window.recorder
    unlisted = [(code, group) for code, group in enumerate(table.groups) if group.members is None]
    used = {group: table["rank"][table["group"] == code] for code, group in unlisted}
    groups = []
    for group in named:
        listed = group.members is not None
        members = group.members.ranks() if group.members is not None else tuple(sorted(set(used[group].tolist())))
        dimension = dimension_of(group.description, group.name)
        if not listed and (dimension == "world" or _is_everybody(members, window, ranks)):
            members = ranks
        groups.append(ProcessGroup(key_of(group), group.name, group.description, dimension, members, not listed))
    groups = _completed(groups, ranks)
    strides = sorted({_stride(group.members) for group in groups if 1 < len(group.members) < len(ranks)})
    return tuple(_dimensioned_by_shape(group, strides, len(ranks)) for group in groups)


def _is_everybody(members: tuple[int, ...], window: Window, ranks: tuple[int, ...]) -> bool:
    """Return whether a group that every dumped rank uses is the world's: a rank without a dump may be the culprit."""
    dumped = {dump.rank for dump in window.dumps}
    return len(dumped) > len(ranks) / 2 and dumped <= set(members)


def dimension_of(description: str, name: str) -> str:
    """Read the parallel dimension from Megatron's, DeviceMesh's or DTensor's words; "other" where they name none."""
    return _described(description) or ("world" if name in ("0", "default_pg", "world") else "other")


@lru_cache(1024)  # a few words describe all groups of a job
def _described(description: str) -> str:
    lowered = description.lower()
    for words, dimension in _DIMENSIONS:
        if lowered == words:
            return dimension
    if lowered.endswith("_parallel_group") or "_parallel_group_" in lowered:
        return "other"  # Megatron's combinations, "tensor_and_data_parallel_group_with_cp": no dimension of their own
    meant = {_MESH_WORDS[word] for word in lowered.replace("-", "_").split("_") if word in _MESH_WORDS}
    if meant:
        return meant.pop() if len(meant) == 1 else "other"  # a flattened mesh, "mesh_dp_shard_cp", is a combination too
    return ""


def _completed(groups: list[ProcessGroup], ranks: tuple[int, ...]) -> list[ProcessGroup]:
    """Add to inferred groups the ranks that left no dump, where complete sibling groups show where they belong."""
    families: dict[str, list[ProcessGroup]] = defaultdict(list)
    for group in groups:
        if group.inferred and group.description and group.dimension != "world":
            families[group.description].append(group)
    grown = {}
    for family in families.values():
        grown.update(_completed_family(family, ranks))
    return [grown.get(group.key, group) for group in groups]


def _completed_family(family: list[ProcessGroup], ranks: tuple[int, ...]) -> dict[str, ProcessGroup]:
    size = max(len(group.members) for group in family)
    whole = next(group for group in family if len(group.members) == size)
    offsets = [rank - whole.members[0] for rank in whole.members]
    left = set(ranks) - {rank for group in family for rank in group.members}
    grown = {}
    for group in family:
        short = size - len(group.members)
        for start in (group.members[0] - offset for offset in offsets if short and group.members):
            shape = [start + offset for offset in offsets]
            if set(group.members) <= set(shape) and set(shape) - set(group.members) <= left:
                grown[group.key] = replace(group, members=tuple(shape))
                left -= set(shape)
                break
    return grown


def _dimensioned_by_shape(group: ProcessGroup, strides: list[int], world: int) -> ProcessGroup:
    """Without words the shape decides: all ranks are the world; neighbours are tensor-parallel if another kind exists."""
    if group.dimension != "other" or group.description:
        return group
    if len(group.members) == world:
        return replace(group, dimension="world")
    if len(strides) < 2 or len(group.members) < 2:
        return group
    stride = _stride(group.members)
    return replace(
        group, dimension="tp" if stride == 1 else "pp" if stride == max(strides) and len(strides) > 2 else "dp"
    )


def _stride(members: tuple[int, ...]) -> int:
    return abs(members[1] - members[0]) if len(members) > 1 else 0


def _coordinates(groups: tuple[ProcessGroup, ...]) -> dict[int, dict[str, int]]:
    """A rank's coordinate in a dimension is its position in its group of that dimension."""
    coordinates: dict[int, dict[str, int]] = defaultdict(dict)
    for dimension in ("pp", "dp", "cp", "ep", "tp"):
        for group in groups:
            if group.dimension == dimension:
                for position, rank in enumerate(group.members):
                    coordinates[rank].setdefault(dimension, position)
    return dict(coordinates)
