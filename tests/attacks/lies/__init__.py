"""Lies about a job: what a liar's agent sends of ranks that other nodes host. Each is a function of the target and an instant.

A liar may know everything about the job: its name, its attempt, which rank is where under which pid. The lies of ``A_USER``
are those that a user of a node can make its honest agent tell, by environments, logs, files and listeners of its own.
"""

from __future__ import annotations

from tests.attacks.lies import (
    about_nodes,
    about_places,
    about_processes,
    about_progress,
    about_roles,
    about_slowness,
    by_newcomers,
    by_ras,
    in_logs,
    in_vocabularies,
)
from tests.attacks.lies.telling import A_USER, EARLY, LIES, Target

__all__ = [
    "A_USER", "EARLY", "LIES", "Target",
    "about_nodes", "about_places", "about_processes", "about_progress", "about_roles", "about_slowness", "by_newcomers",
    "by_ras", "in_logs", "in_vocabularies",
]  # fmt: skip
