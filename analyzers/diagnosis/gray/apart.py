"""Which signs are one GPU's or one node's own: what many GPUs of a model show alike is their work, their room or their design."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers.diagnosis.gray.growth import ERRORS, Growth
from analyzers.diagnosis.gray.signs import FEWEST_PEERS, Sign
from analyzers.diagnosis.gray.under_load import Subject

MOST_PEERS = 64
PART = 4  # more than one GPU in so many, and they share it
MOST_NAMED, MOST_NAMED_PART = 4, 50
"""More GPUs than four, or than one in fifty, share a cause, though each stands apart on its node: a slot that is warmer."""
TIMES_PEERS = 10.0
WHOLE_NODE = 0.75
OF_A_NODE = 0.6  # so sure, of a node all of whose GPUs show it


@dataclass
class Apart:
    """The signs that stand apart, by GPU and by node; and those that do not, each with why."""

    gpus: dict[int, list[Sign]] = field(default_factory=lambda: defaultdict(list))  # by the object's identity
    nodes: dict[str, list[Sign]] = field(default_factory=lambda: defaultdict(list))
    undecided: list[tuple[Sign, str]] = field(default_factory=list)


class Peers:
    """The GPUs of each model under load, to compare one with those of its node where there are enough, else with all."""

    def __init__(self, loaded: Iterable[Subject]) -> None:
        self._all: dict[str, list[Subject]] = defaultdict(list)
        self._here: dict[tuple[str, str | None], list[Subject]] = defaultdict(list)
        for gpu in loaded:
            if model := gpu.read.model:
                self._all[model].append(gpu)
                self._here[model, gpu.read.node].append(gpu)

    def of(self, gpu: Subject) -> list[Subject]:
        """Return a GPU's peers, itself left out; of very many some. One other node's word alone makes no peers."""
        model = gpu.read.model
        here = [one for one in self._here.get((model, gpu.read.node), ()) if one is not gpu]
        if len(here) >= FEWEST_PEERS:
            return here
        found = [one for one in self._all.get(model, [])[: MOST_PEERS + 1] if one is not gpu]
        others = {one.read.node for one in found} - {gpu.read.node}
        return here if gpu.read.received and len(others) == 1 else found


def sort_out(found: Sequence[Sign], measured: Callable[[str], Sequence[Subject]]) -> Apart:
    """Sort signs of one kind and model. ``measured``: kind → the GPUs of that model of which it would have been seen."""
    apart = Apart()
    by_kind: dict[tuple[str, str], list[Sign]] = defaultdict(list)
    for sign in found:
        by_kind[sign.kind, sign.subject.read.model].append(sign)
    for (kind, model), group in sorted(by_kind.items()):
        showing = {id(sign.subject) for sign in found if sign.kind == kind}
        of_model = [gpu for gpu in measured(kind) if gpu.read.model == model]
        _sort_kind(group, of_model, apart, lone=len(showing) == 1)
    return apart


def _sort_kind(group: list[Sign], measured: Sequence[Subject], apart: Apart, *, lone: bool) -> None:
    decided = [sign for sign in group if sign.decided and not sign.over]
    single = "what was read once may be an accident: more readings, some minutes apart, would decide"
    over = "it is over: readings under load of the next hours would show whether it comes back"
    apart.undecided += [(sign, over if sign.over else single) for sign in group if sign.over or not sign.decided]
    if not group[0].subject.read.model or len(measured) <= FEWEST_PEERS:
        _without_peers(decided, apart, lone=lone)
        return
    shown = {id(sign.subject) for sign in group}  # what one reading shows of a peer counts as shared
    whole = _whole_nodes(shown, measured)
    outside = [sign for sign in decided if sign.subject.read.node not in whole]
    own, shared = _of_few(outside, shown, measured)
    for sign in own:
        apart.gpus[id(sign.subject)].append(sign)
    held = [sign for sign in decided if sign.subject.read.node in whole]
    if len(whole) == 1 and held and not shared and all(sign.of_node for sign in held):
        apart.nodes[next(iter(whole))] += held
    else:
        shared += held
    apart.undecided += [(sign, f"{len(shown)} of {len(measured)} GPUs of its model show it alike") for sign in shared]


def _without_peers(signs: Sequence[Sign], apart: Apart, *, lone: bool) -> None:
    for sign in signs:
        if sign.alone and lone:
            apart.gpus[id(sign.subject)].append(sign)
        else:
            known = bool(sign.subject.read.model)
            why = "fewer than three peers of its model were read under load" if known else "its model is not known"
            apart.undecided.append((sign, f"{why}, and nothing shows that it was otherwise before"))


def _of_few(signs: Sequence[Sign], shown: set[int], measured: Sequence[Subject]) -> tuple[list[Sign], list[Sign]]:
    """Split into those that few GPUs show, of all, of their node and by nodes, and the others."""
    nodes = {gpu.read.node for gpu in measured}
    on = {sign.subject.read.node for sign in signs}
    gpus = {id(sign.subject) for sign in signs}
    many = len(gpus) > max(MOST_NAMED, len(measured) // MOST_NAMED_PART)
    if many or not _few(len(gpus), len(measured)) or not _few(len(on), len(nodes)):
        return [], list(signs)
    return _of_own_node(signs, shown, measured)


def _few(some: int, of: int) -> bool:
    return some <= max(1, of // PART)


def _whole_nodes(shown: set[int], measured: Sequence[Subject]) -> set[str]:
    """Return the nodes whose GPUs all but show it, where at least three others hardly do."""
    of_node: dict[str, list[bool]] = defaultdict(list)
    for gpu in measured:
        if gpu.read.node is not None:
            of_node[gpu.read.node].append(id(gpu) in shown)
    whole = {node for node, flags in of_node.items() if len(flags) > 1 and np.mean(flags) >= WHOLE_NODE}
    free = [node for node, flags in of_node.items() if node not in whole and _few(sum(flags), len(flags))]
    return whole if len(free) >= FEWEST_PEERS else set()


def _of_own_node(signs: Sequence[Sign], shown: set[int], measured: Sequence[Subject]) -> tuple[list[Sign], list[Sign]]:
    """Split into those that few of their node show, and the others."""
    own: list[Sign] = []
    shared: list[Sign] = []
    for sign in signs:
        here = [gpu for gpu in measured if gpu.read.node == sign.subject.read.node]
        alike = sum(id(gpu) in shown for gpu in here)
        (own if len(here) <= FEWEST_PEERS or _few(alike, len(here)) else shared).append(sign)
    return own, shared


def errors_apart(found: Sequence[Growth]) -> Iterator[Sign]:
    """Yield a sign for each kind of error that grows faster on a GPU than on its peers."""
    by_kind: dict[tuple[str, str], list[Growth]] = defaultdict(list)
    for growth in found:
        by_kind[growth.kind, growth.subject.read.model].append(growth)
    for (kind, _), group in sorted(by_kind.items()):
        error = ERRORS[kind]
        for growth in group:
            if growth.lasts is False or not growth.count or growth.an_hour < error.least:
                continue
            others = [one.an_hour for one in group[: MOST_PEERS + 1] if one is not growth]
            usual = float(np.median(others)) if others else 0.0
            if growth.an_hour > TIMES_PEERS * usual:
                beside = f", {usual:.3g} an hour on its peers" if others else ""
                spent = f"{growth.count:,.0f} more {error.words} in {growth.seconds / 60:,.0f} min"
                text = f"{spent}: {growth.an_hour:,.3g} an hour{beside}"
                yield Sign(
                    kind, error.fault_class, growth.subject, error.strength, text, growth.since,
                    alone=error.absolute, decided=growth.lasts is not None, of_node=False,
                )  # fmt: skip
