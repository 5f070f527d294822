"""Processes of a role without numbers of their own have a name wherever REST shows the number from their place."""

from __future__ import annotations

from collectors.records.identity import placed_rank
from service.api.incident_documents import culprit_summaries, symptom_document
from service.api.resources.jobs import rank_document
from service.store.models import Placement

NUMBER = placed_rank("gpu-7", 2)


def test_the_place_of_a_rank_has_its_name() -> None:
    """By role and instance; without a role, as people call the rank."""
    seen = {"job": "rl", "attempt": 0, "node": "gpu-7", "pid": 9, "first_seen_at": 1.0, "last_seen_at": 2.0}
    rows = [Placement(rank=rank, role=role, **seen) for rank, role in ((NUMBER, "rollout"), (3, "rollout"), (3, ""))]

    assert [rank_document(row).name for row in rows] == ["rollout rank #2", "rollout rank 3", "rank 3"]


def test_what_an_incident_shows_has_names() -> None:
    """Of its symptoms each rank with its own role, of its culprits each; a number of its own is its name."""
    symptom = {"ranks": (0, NUMBER), "roles": ("trainer", "rollout")}
    (placed, own) = culprit_summaries([{"ranks": (NUMBER,), "role": "rollout"}, {"ranks": (3,), "role": "rollout"}])

    assert symptom_document(symptom).names == ("rollout rank #2",)
    assert (placed.names, own.names) == (("rollout rank #2",), ())
