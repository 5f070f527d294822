"""Real labelled flight-recorder dumps, and what may befall them on the way: renamed, cut, shuffled, lost."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import msgspec

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from collectors.records import FlightRecorderDump, Group, Members, Placement, Record
from service.packaged_knowledge import load
from tests.support.hand_made import dated
from tests.support.waits_alone import evicting


@dataclass(frozen=True)
class Case:
    """One variant of a labelled folder. ``cut``: ranks whose file was truncated, ``lost``: ranks without a file."""

    name: str
    folder: Path
    seed: int = 0
    permuted: bool = False
    shuffled: bool = False
    ranks_per_node: int = 0
    cut: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What was answered: exact, superset (holds the culprits, the rest could not be excluded), or wrong."""

    case: Case
    guilty: frozenset[int]
    named: frozenset[int]
    innocent_evicted: frozenset[int | str]
    verdict: Verdict

    @property
    def exact(self) -> bool:
        """Return whether the culprits and nobody else are named."""
        return self.named == self.guilty

    @property
    def excusable(self) -> bool:
        """Return whether all culprits are named, and beside them only ranks whose own dump is lost or cut."""
        return self.guilty <= self.named <= self.guilty | set(self.case.lost) | set(self.case.cut)


def folders(corpus: Path) -> list[Path]:
    """Return the labelled folders."""
    return sorted(path.parent for path in (corpus / "flight_recorder").glob("*/fault_injection.log"))


def guilty_of(folder: Path) -> frozenset[int]:
    """Read the injected ranks from the label."""
    text = (folder / "fault_injection.log").read_text(encoding="utf-8")
    return frozenset(int(rank) for rank in re.findall(r"^Rank (\d+),", text, re.MULTILINE))


@cache
def _dumps(folder: Path) -> tuple[Record, ...]:
    """Return the folder's dumps, dated: the corpus was copied without its files' times."""
    return tuple(dated(record for record in read_paths([folder]) if isinstance(record, FlightRecorderDump)))


def records_of(folder: Path) -> list[Record]:
    """Return a folder's dumps; each folder is read once."""
    return list(_dumps(folder))


def cases(folder: Path, *, most: int, seed: int = 0) -> Iterator[Case]:
    """Yield the variants of a folder, at most ``most`` of each kind, chosen by the seed."""
    draw = random.Random(seed)
    guilty = guilty_of(folder)
    innocent = [record.rank for record in records_of(folder) if record.rank is not None and record.rank not in guilty]
    yield Case("as it is", folder)
    yield from (Case(f"{n} ranks a node", folder, ranks_per_node=n) for n in (4, 8))
    yield from (Case("permuted", folder, seed=n, permuted=True) for n in range(most))
    yield from (Case("any order", folder, seed=n, shuffled=True) for n in range(min(most, 5)))
    yield Case("guilty lost", folder, lost=tuple(sorted(guilty)))
    yield from (Case("one guilty lost", folder, lost=(rank,)) for rank in sorted(guilty))
    for count in (1, 2, 3):
        lost = list(combinations(innocent, count))
        draw.shuffle(lost)
        yield from (Case(f"{count} innocent lost", folder, lost=ranks) for ranks in lost[:most])
    for n in range(most):
        yield Case("cut", folder, seed=n, cut=tuple(draw.sample([*innocent, *sorted(guilty)], 1 + n % 3)))


def run(case: Case, scratch: Path) -> Outcome:
    """Diagnose one variant."""
    draw = random.Random(case.seed)
    guilty = guilty_of(case.folder)
    records = _cut(case, scratch, draw) if case.cut else records_of(case.folder)
    records = [record for record in records if record.rank not in case.lost]
    if case.permuted:
        numbers = list(range(16))
        draw.shuffle(numbers)
        records, guilty = [_renumbered(r, numbers) for r in records], frozenset(numbers[rank] for rank in guilty)
    if case.shuffled:
        draw.shuffle(records)
    if case.ranks_per_node:
        nodes = tuple(f"node-{rank // case.ranks_per_node}" for rank in range(16))
        records.append(Placement(ranks=Members.of(range(16)), nodes=nodes))
    window = Window.build(records)
    topology = infer(window)
    with evicting():
        verdict = judge(window, topology, load())
    named = frozenset(rank for culprit in verdict.culprits for rank in culprit.ranks)
    innocent = frozenset(place for place in _evicted(verdict) if not guilty & {place, *topology.ranks_on(str(place))})
    return Outcome(case, guilty, named, innocent, verdict)


def _evicted(verdict: Verdict) -> list[int | str]:
    """Return the ranks and nodes that the action replaces."""
    return [*verdict.action.ranks, *verdict.action.nodes] if verdict.action.kind == "evict" else []


def _cut(case: Case, scratch: Path, draw: random.Random) -> list[Record]:
    """Copy the folder, cut some files anywhere, and read what is left."""
    target = scratch / f"{case.folder.name}-{case.seed}"
    shutil.copytree(case.folder, target, ignore=shutil.ignore_patterns("*.log"))
    for rank in case.cut:
        path = target / f"_dump_{rank}"
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
    found = dated(record for record in read_paths([target]) if isinstance(record, FlightRecorderDump))
    shutil.rmtree(target)
    return found


def _renumbered(record: Record, numbers: list[int]) -> Record:
    """Give every rank another number, in the dump's name and in its groups alike."""
    assert isinstance(record, FlightRecorderDump)
    assert record.rank is not None
    groups = tuple(
        Group(g.name, g.description, Members.of(numbers[rank] for rank in g.members.ranks()) if g.members else None)
        for g in record.groups
    )
    # Transfers of the world group name global ranks: its order of members carries the new numbers.
    return msgspec.structs.replace(record, rank=numbers[record.rank], groups=groups)


def outcomes(selected: Iterable[Case], scratch: Path) -> Iterator[Outcome]:
    """Diagnose many variants."""
    return (run(case, scratch) for case in selected)
