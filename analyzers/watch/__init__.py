"""What the engine knows of each job between two events: who runs where, how it moves, who has ended."""

from analyzers.watch.job import JobView
from analyzers.watch.node import NodeView
from analyzers.watch.over import allowed_seconds, moved, moves_again, restarted
from analyzers.watch.processes import End
from analyzers.watch.rhythm import Rhythm

__all__ = ["End", "JobView", "NodeView", "Rhythm", "allowed_seconds", "moved", "moves_again", "restarted"]
