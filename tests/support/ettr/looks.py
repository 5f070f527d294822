"""What diagnosis says of a fault: a verdict document, right as often as the measured documents say, and never more."""

from __future__ import annotations

import random
from dataclasses import dataclass

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from tests.support.ettr.node_faults import Fault
from tests.support.ettr.parameters import Parameters
from tests.support.ettr.simulated_nodes import Fleet

NAMED = 0.97
SYMPTOMS = {
    "event": "hang", "hang": "hang", "exception": "crash", "same_exception": "crash", "dead": "hang",
    "numeric": "numeric", "slow": "slow", "storage": "hang", "killed": "crash",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """A verdict, and how long after the fault it came. ``suspects``: nodes that it wants looked at."""

    verdict: Verdict
    seconds: float
    suspects: tuple[str, ...] = ()


def look(fault: Fault, fleet: Fleet, parameters: Parameters, lots: random.Random) -> Look:
    """Say what the product would, by how the fault shows."""
    shows, cause = fault.kind.shows, fault.kind.cause
    if shows in ("numeric", "slow"):  # no detector of these was measured: nobody is named
        return Look(_verdict(fault, "unknown", "none", abstained=True), parameters.hang_of_numbers_seconds)
    if shows == "storage":
        return Look(_verdict(fault, "storage", "none"), parameters.hang.named_seconds)
    if shows == "same_exception" or (shows == "hang" and cause == "code"):
        return Look(_verdict(fault, "code", "rollback"), parameters.crash.named_seconds)
    if shows == "exception":  # whoever's it is: a repeat on the same node would point to it
        return Look(_verdict(fault, "code", "reattempt"), parameters.crash.named_seconds)
    if shows in ("killed", "dead"):  # the process, or the node, is gone: named, and only looked at
        return Look(_verdict(fault, "machine", "probe", _nodes(fault)), parameters.crash.named_seconds, _nodes(fault))
    if shows == "hang" and cause == "network":
        return Look(_verdict(fault, "network", "probe", _nodes(fault)), parameters.hang.named_seconds, _nodes(fault))
    return _machine(fault, fleet, parameters, lots)


def _machine(fault: Fault, fleet: Fleet, parameters: Parameters, lots: random.Random) -> Look:
    """A machine that hangs, or whose device says so itself: named with proof, or a set of which it is one."""
    quality = parameters.event if fault.kind.shows == "event" else parameters.hang
    drawn = lots.random()
    if drawn < parameters.innocent:
        wrong = lots.choice([node for node in fleet.job if node != fault.node])
        return Look(_verdict(fault, "machine", "evict", (wrong,)), quality.proposed_seconds, (wrong,))
    if drawn < parameters.innocent + quality.exact:
        return Look(_verdict(fault, "machine", "evict", _nodes(fault)), quality.proposed_seconds, _nodes(fault))
    suspects = fleet.group_of(fault.node) if fault.node else ()
    return Look(_verdict(fault, "machine", "probe", suspects), quality.proposed_seconds, suspects)


def _nodes(fault: Fault) -> tuple[str, ...]:
    return (fault.node,) if fault.node is not None else ()


def _verdict(fault: Fault, cause: str, action: str, nodes: tuple[str, ...] = (), *, abstained: bool = False) -> Verdict:
    share = NAMED / len(nodes) if nodes else 0.0
    named = [Culprit(root="r1", kind="node", id=node, probability=share, why="by its own record") for node in nodes]
    if not nodes and not abstained:
        named = [Culprit(root="r1", kind=cause, id=cause, probability=NAMED)]
    unknown = Culprit(root="r1", kind="unknown", id="unknown", probability=1.0 - sum(one.probability for one in named))
    return Verdict(
        symptom=SYMPTOMS[fault.kind.shows], cause=cause, abstained=abstained, job="train",
        roots=(Root(root="r1", cause=cause, fault_class=fault.fault_class, calibration="simulator"),),
        culprits=() if abstained else tuple(named), suspects=(*named, unknown),
        action=Action(kind=action, nodes=nodes if action != "none" else ()),
    )  # fmt: skip
