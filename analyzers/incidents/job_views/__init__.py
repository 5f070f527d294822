"""What the engine knows of each job between two events: who runs where, how it moves, who has ended."""

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.over import allowed_seconds, moved, moves_again, restarted
from analyzers.incidents.job_views.processes import End
from analyzers.incidents.job_views.rhythm import Rhythm

__all__ = ["End", "JobView", "NodeView", "Rhythm", "allowed_seconds", "moved", "moves_again", "restarted"]
