"""The results of checks and replays, which the claimant reports in ``did``, and the nodes that they find.

    probe    {"gpu-0413": "failed", "gpu-0414": "passed"}        each node that was checked
    replay   {"bad": [["gpu-0412", "gpu-0413"], ["gpu-0401", …]]}  the nodes of each group that showed the fault

A result may name only nodes of the remediation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzers.remediation.dual_phase import Group, intersect_groups
from analyzers.remediation.types import Remediation

PASSED, FAILED, BAD = "passed", "failed", "bad"


def explain_problem(one: Remediation, did: Mapping[str, Any]) -> str | None:
    """Say why a result is malformed, and what to send; None: it is not."""
    if one.kind == "probe":
        return _of_probe(one, did)
    if one.kind == "replay":
        return _of_replay(one, did)
    return None


def find_failed_nodes(one: Remediation) -> tuple[str, ...]:
    """Return the nodes that failed their checks, or that lie in bad groups of both phases."""
    if one.status != "done" or explain_problem(one, one.did) is not None:
        return ()
    if one.kind == "probe":
        return tuple(node for node in one.nodes if one.did[node] == FAILED)
    if one.kind == "replay" and one.replay is not None:
        return intersect_groups(one.replay, [group.name for groups in _bad(one, one.did) for group in groups])
    return ()


def _of_probe(one: Remediation, did: Mapping[str, Any]) -> str | None:
    unsaid = [node for node in one.nodes if did.get(node) not in (PASSED, FAILED)]
    if unsaid:
        return f"did lacks {unsaid[0]!a}: send {PASSED!r} or {FAILED!r} for each node that was to be checked"
    if others := sorted(did.keys() - set(one.nodes)):
        return f"{others[0]!a} was not to be checked: did has the nodes of {one.id}, and no others"
    return None


def _of_replay(one: Remediation, did: Mapping[str, Any]) -> str | None:
    bad = did.get(BAD)
    if not isinstance(bad, list) or did.keys() != {BAD}:
        return f'did is to be {{"{BAD}": [[the nodes of a group], …]}}, with every group that showed the fault'
    for nodes, groups in zip(bad, _bad(one, did), strict=True):
        if not groups:
            return f"{ascii(nodes)[:200]} is no group of {one.id}: its replay names the groups"
    return None


def _bad(one: Remediation, did: Mapping[str, Any]) -> list[list[Group]]:
    """Return the groups that each list of nodes is: none, or one, or one of each phase where a group is one node."""
    groups = () if one.replay is None else (*one.replay.horizontal, *one.replay.vertical)
    return [[group for group in groups if set(group.nodes) == _set(nodes)] for nodes in did[BAD]]


def _set(nodes: object) -> set[str]:
    return {node for node in nodes if isinstance(node, str)} if isinstance(nodes, list) else set()
