"""What an undo gives back: a node that two remediations have taken out stays out until both are undone."""

from __future__ import annotations

from analyzers.remediation.types import Remediation, RemediationState


def nodes(book: RemediationState, one: Remediation) -> tuple[str, ...]:
    """Return the nodes of a remediation that no other has taken out as well, and keeps out."""
    return tuple(node for node in one.nodes if not set(book.facts.taken.get(node, ())) - {one.id})
