"""Replicas that no longer hold the same parameters: which rank left the others, and after which step.

The probe hashes each rank's parameters (``Ring.hashes``). Ranks are replicas where their hashes were equal at two hashed steps
running and changed between them: an update made them the same, and not only a seed. Shards never are, so nothing has to be
known of how the job is parallel. Of replicas the one that leaves a majority and does not come back is suspected; of two that
differ, both; where none is with the majority any more, or several leave together, it is the program. A hash that a peer has
at another step, or a step that slid in time, is numbering. A rank that once came back is not accused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from analyzers.model.finding import Cause, Evidence, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import HASH_COLUMNS, Ring

MOST_STEPS = 512
LASTS = 2  # so many hashed steps running, before a difference and in it
MOST_SUSPECTS = 2  # of one group of replicas: more do not break one after the other
SLID_STEPS = 0.75  # a step that ends by so much of a step's time earlier or later than before has another number
ALONE, TWO, EITHER, PROGRAM = 0.8, 0.6, 0.45, 0.55
MISSING = (
    "a dual-phase test of its node: the same steps from the same checkpoint, twice there and once elsewhere",
    "whether the program changes parameters on this rank alone",
)
_ODD = np.int64(0x100000001B3)
_ROW = np.dtype([(name, kind) for name, kind in HASH_COLUMNS.items()])
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Life:
    """What one process of a rank hashed since its step numbers last went back. ``rows``: by step, ascending."""

    rank: int
    ring: Ring
    rows: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class _Replicas:
    """Ranks that were the same. ``hashes``: (steps, ranks), 0 where none is known; ``majority``: what most of all hold, or 0."""

    lives: Sequence[_Life]
    steps: Ints
    hashes: Ints
    majority: Ints

    @property
    def agrees(self) -> Mask:
        """Mark who is with the majority."""
        agrees: Mask = (self.hashes == self.majority[:, None]) & (self.majority[:, None] != 0)
        return agrees

    @property
    def odd(self) -> Mask:
        """Mark who is not, where there is one."""
        odd: Mask = (self.hashes != 0) & (self.hashes != self.majority[:, None]) & (self.majority[:, None] != 0)
        return odd

    @property
    def torn(self) -> Mask:
        """Mark the steps at which no majority is possible, whatever the unknown ones hold."""
        count = self.hashes.shape[1]
        largest = np.array([_largest(row) for row in self.hashes], np.int64)
        unknown = (self.hashes == 0).sum(axis=1)
        torn: Mask = 2 * (largest + unknown) <= count
        return torn


def compare(window: Window, topology: Topology) -> Iterator[Finding]:
    """Yield what groups of replicas show whose hashes differ."""
    lives = _lives([ring for ring in window.records_of(Ring) if ring.hashed and ring.rank is not None])
    if len(lives) < 2:
        return
    steps, table = _table(lives)
    found: list[Finding] = []
    for members in _groups(table):
        hashes = table[:, members]
        replicas = _Replicas([lives[number] for number in members], steps, hashes, _majority(hashes))
        found += _judged(replicas, topology)
    apart = [one for one in found if one.cause == "code"]
    accused = [one for one in found if one.cause == "machine"]
    nodes = {suspect.node for one in accused for suspect in one.suspects}
    if len(accused) > 1 and (len(nodes) > 1 or None in nodes):
        apart, accused = [*apart, _in_several_groups(accused)], []
    yield from accused
    if not window.live:  # in a running job it may be meant
        yield from apart[:1]


def _lives(rings: Sequence[Ring]) -> list[_Life]:
    """Return each rank's newest process, with the rows of all its rings."""
    found: dict[int, dict[object, list[tuple[NDArray[np.void], Ring]]]] = defaultdict(lambda: defaultdict(list))
    for ring in rings:
        if len(rows := _rows(ring)):
            found[ring.rank or 0][ring.node, ring.boot_id, ring.pid].append((rows, ring))
    lives = []
    for rank in sorted(found):
        parts = max(found[rank].values(), key=lambda parts: max(int(rows["ended_ns"].max()) for rows, _ in parts))
        rows = np.concatenate([rows for rows, _ in parts])
        rows = rows[np.unique(rows["number"], return_index=True)[1]]  # by number, each once
        back = np.flatnonzero(np.diff(rows["step"]) <= 0)
        lives.append(_Life(rank, parts[-1][1], rows[int(back[-1]) + 1 if len(back) else 0 :][-MOST_STEPS:]))
    return lives


def _rows(ring: Ring) -> NDArray[np.void]:
    """Return a ring's hashes; a record with damaged columns has none."""
    if any(len(ring.hashes.get(name, b"")) != 8 * ring.hashed for name in HASH_COLUMNS):
        return np.zeros(0, _ROW)
    rows = np.zeros(ring.hashed, _ROW)
    for name, kind in HASH_COLUMNS.items():
        rows[name] = np.frombuffer(ring.hashes[name], kind)
    kept: NDArray[np.void] = rows[rows["hash"] != 0]
    return kept


def _table(lives: Sequence[_Life]) -> tuple[Ints, Ints]:
    """Return the newest steps that several ranks hashed, and the hashes: (steps, ranks)."""
    steps, counts = np.unique(np.concatenate([life.rows["step"] for life in lives]), return_counts=True)
    steps = steps[counts > 1][-MOST_STEPS:]
    table = np.zeros((len(steps), len(lives)), np.int64)
    for number, life in enumerate(lives):
        known = np.isin(life.rows["step"], steps)
        table[np.searchsorted(steps, life.rows["step"][known]), number] = life.rows["hash"][known]
    return steps, table


def _groups(table: Ints) -> list[list[int]]:
    """Return the columns that moved together: the same before an update and the same after it."""
    label = np.arange(table.shape[1])
    for before, after in pairwise(table):
        moved = np.flatnonzero((before != 0) & (after != 0) & (before != after))
        _, pair = np.unique(before[moved] + after[moved] * _ODD, return_inverse=True)
        lowest = np.full(len(moved), table.shape[1])
        np.minimum.at(lowest, pair, label[moved])
        joined = {(int(high), int(low)) for high, low in zip(label[moved], lowest[pair], strict=True) if high != low}
        for pair_of in sorted(joined):  # a label is the lowest column of those that have it
            low, high = sorted(label[list(pair_of)].tolist())
            label[label == high] = low
    members = defaultdict(list)
    for number, of in enumerate(label.tolist()):
        members[of].append(number)
    return [found for found in members.values() if len(found) > 1]


def _majority(hashes: Ints) -> Ints:
    """Return what more than half of all ranks of a group hold at each step, 0 where they do not: their median, if any value."""
    middle = np.sort(hashes, axis=1)[:, hashes.shape[1] // 2]
    most: Ints = np.where(2 * (hashes == middle[:, None]).sum(axis=1) > hashes.shape[1], middle, 0)
    return most


def _largest(row: Ints) -> int:
    """Return how many ranks hold the most frequent hash."""
    return int(np.unique(row[row != 0], return_counts=True)[1].max(initial=0))


def _judged(replicas: _Replicas, topology: Topology) -> Iterator[Finding]:
    """Yield what one group shows at the newest steps that decide anything."""
    torn = replicas.torn
    decided = np.flatnonzero(torn | (replicas.majority != 0))
    if not len(decided):
        return
    if torn[decided[-1]]:
        together = decided[~torn[decided]]
        first = decided[~torn[decided]][-1] if len(together) else -1
        run = decided[decided > first]
        healed = torn[: first + 1].any()  # replicas that are made the same every few steps, by design
        if len(run) >= LASTS and first >= 0 and not healed:
            if len(replicas.lives) == 2:
                yield from _pair(replicas, run, int(first), topology)
            else:
                yield _apart(replicas, int(run[0]), int(first), range(len(replicas.lives)))
        return
    left = [number for number in range(len(replicas.lives)) if _has_left(replicas, number)]
    onsets = [_onset(replicas, number) for number in left]
    if len(left) > MOST_SUSPECTS or len(set(onsets)) < len(onsets):
        yield _apart(replicas, min(onsets), min(onsets) - 1, left)
    elif left:
        strength = ALONE if len(left) == 1 else TWO
        said = [_hash_shown(replicas, number) for number in left]
        suspects = [
            _suspect(replicas.lives[number], one, strength, topology) for number, one in zip(left, said, strict=True)
        ]
        yield _finding("replica_differs", "machine", said, suspects, together=True)


def _onset(replicas: _Replicas, number: int) -> int:
    """Return the row of the first step at which a rank is odd after it last agreed."""
    agreed = np.flatnonzero(replicas.agrees[:, number])
    odd = np.flatnonzero(replicas.odd[:, number])
    return int(odd[odd > agreed[-1]][0])


def _has_left(replicas: _Replicas, number: int) -> bool:
    """Whether a rank was with the majority, left it once, and is still away, with parameters that no other ever had."""
    agreed, odd = np.flatnonzero(replicas.agrees[:, number]), np.flatnonzero(replicas.odd[:, number])
    if len(agreed) < LASTS or len(odd) < LASTS or odd[0] < agreed[-1]:
        return False
    others = np.delete(replicas.hashes, number, axis=1)
    elsewhere = np.isin(replicas.hashes[odd, number], others).any()
    slid = _slid(replicas, number, agreed, odd, replicas.agrees)
    return not elsewhere and not slid


def _slid(replicas: _Replicas, number: int, agreed: Ints, odd: Ints, peers: Mask) -> bool:
    """Whether a rank's steps end at other times beside its peers' than before: their numbers are of other steps."""
    ends = np.stack([_ends(life, replicas.steps) for life in replicas.lives], axis=1)
    others = peers & np.isfinite(ends)
    others[:, number] = False
    usual = np.array([np.median(row[of]) if of.any() else np.nan for row, of in zip(ends, others, strict=True)])
    known = np.isfinite(usual)
    if known.sum() < 2:
        return True
    pace = float(np.median(np.diff(usual[known]) / np.diff(replicas.steps[known])))
    apart = ends[:, number] - usual
    return not abs(np.nanmedian(apart[odd]) - np.nanmedian(apart[agreed])) <= SLID_STEPS * pace


def _ends(life: _Life, steps: Ints) -> NDArray[np.float64]:
    """Return when each of these steps ended, NaN where that is not known."""
    ends = np.full(len(steps), np.nan)
    known = np.isin(life.rows["step"], steps)
    ends[np.searchsorted(steps, life.rows["step"][known])] = life.rows["ended_ns"][known] / 1e9
    return ends


def _pair(replicas: _Replicas, run: Ints, last: int, topology: Topology) -> Iterator[Finding]:
    """Yield two replicas that differ: nothing shows which of them is right."""
    one, other = replicas.hashes[run, 0], replicas.hashes[run, 1]
    agreed = np.flatnonzero(replicas.majority != 0)
    elsewhere = np.isin(one, replicas.hashes[:, 1]).any() or np.isin(other, replicas.hashes[:, 0]).any()
    if len(agreed) < LASTS or elsewhere or _slid(replicas, 0, agreed, run, replicas.hashes != 0):
        return
    ranks = [life.rank for life in replicas.lives]
    text = f"the parameters of ranks {ranks[0]} and {ranks[1]}, the same until step {replicas.steps[last]}, differ"
    said = _evidence(replicas.lives[0], replicas.steps[run[0]], f"{text} from step {replicas.steps[run[0]]} on")
    suspects = [_suspect(life, said, EITHER, topology) for life in replicas.lives]
    yield _finding("replica_differs", "machine", [said], suspects)


def _apart(replicas: _Replicas, first: int, last: int, left: Sequence[int]) -> Finding:
    """Claim that the program no longer keeps its replicas the same; no rank is named."""
    count = f"all {len(left)}" if len(left) == len(replicas.lives) else f"{len(left)} of {len(replicas.lives)}"
    until = f", the same until step {replicas.steps[last]}," if last >= 0 else ""
    text = f"the parameters of {count} replicas{until} go apart from step {replicas.steps[first]} on"
    said = _evidence(replicas.lives[left[0]], replicas.steps[first], text)
    return _by_program(said)


def _in_several_groups(accused: Sequence[Finding]) -> Finding:
    """Claim that the program does it, where replicas leave in several groups and on several machines."""
    first = min((one.evidence[0] for one in accused), key=lambda one: one.at or 0.0)
    return _by_program(replace(first, text=f"{first.text}; so it is in {len(accused)} groups of replicas"))


def _by_program(said: Evidence) -> Finding:
    shared = Suspect(kind="code", strength=PROGRAM, why=said.text, evidence=(said,))
    return _finding("replicas_apart", "code", [said], [shared])


def _hash_shown(replicas: _Replicas, number: int) -> Evidence:
    first = _onset(replicas, number)
    until = replicas.steps[np.flatnonzero(replicas.agrees[:, number])[-1]]
    others = int(replicas.agrees[first].sum())
    life, step = replicas.lives[number], replicas.steps[first]
    text = (
        f"the parameters of rank {life.rank} differ from step {step} on from those of its {others} replicas, "
        f"which agree; they were the same until step {until}"
    )
    return _evidence(life, step, text)


def _evidence(life: _Life, step: int, text: str) -> Evidence:
    ended = life.rows["ended_ns"][life.rows["step"] == step]
    at = float(ended[0]) / 1e9 if len(ended) else None
    return Evidence(text=text, source=life.ring.source, at=at, rank=life.rank)


def _suspect(life: _Life, said: Evidence, strength: float, topology: Topology) -> Suspect:
    node = topology.nodes.get(life.rank)
    return Suspect(kind="rank", strength=strength, why=said.text, ranks=(life.rank,), node=node, evidence=(said,))


def _finding(
    fault_class: str, cause: Cause, said: Sequence[Evidence], suspects: Sequence[Suspect], *, together: bool = False
) -> Finding:
    first = min(said, key=lambda one: one.at or 0.0)
    return Finding(
        analyzer="numeric", family="log", symptom="numeric", cause=cause, fault_class=fault_class, onset=first.at,
        suspects=tuple(suspects), together=together, first_symptom=first, evidence=tuple(said),
        missing=MISSING if cause == "machine" else (),
    )  # fmt: skip
