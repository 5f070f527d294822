"""Every scene of the simulated fleet, by kind and seed."""

from __future__ import annotations

from dataclasses import replace

from simulation.live.failures import FAULTS
from simulation.live.job import Attempt
from simulation.live.pauses import PAUSES
from simulation.live.scenes import BEGAN_AT, Scene, Truth, sketch

BUFFERED_SHARE = 0.125  # of healthy jobs: their logs are written in pieces
BUFFERED_SECONDS, MOST_LINES = 300.0, 130  # a piece


def play(
    kind: str, seed: int, nodes: int = 0, ranks_a_node: int = 0, began_at: float = BEGAN_AT, label: str = ""
) -> Scene:
    """Return a scene by its kind: a pause's or a fault's name. ``label``: the job's name, in place of the scene's own."""
    drawn = sketch(seed, kind, nodes=nodes, ranks_a_node=ranks_a_node, began_at=began_at, label=label)
    return (PAUSES | FAULTS)[kind](drawn.random, drawn)


def healthy_day(seed: int, hours: float = 24.0, began_at: float = BEGAN_AT, label: str = "") -> Scene:
    """A job that does what it does by habit, and no more."""
    drawn = sketch(seed, "healthy", began_at=began_at, label=label)
    habits = drawn.habits
    if drawn.random.random() < BUFFERED_SHARE:
        most = BUFFERED_SECONDS / (habits.step_seconds * habits.log_every)
        drawn.habits = replace(habits, lines_at_once=max(1, min(MOST_LINES, int(most))))
    course = drawn.course()
    return drawn.scene([Attempt(1, course)], Truth("healthy", began_at), began_at + hours * 3600)


__all__ = ["BEGAN_AT", "FAULTS", "PAUSES", "Scene", "Truth", "healthy_day", "play"]
