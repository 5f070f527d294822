"""What the engine knows of each job between two events: ranks, steps, ends of processes. Detectors judge it elsewhere."""

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.processes import End
from analyzers.incidents.job_views.recovery import (
    allowed_silence_seconds,
    ended_because,
    found_again,
    has_restarted,
    moved_again_at,
    recovered_because,
    stopped_at,
    stops_again,
    witnessed_until,
)
from analyzers.incidents.job_views.role_readings import RoleReadings
from analyzers.incidents.job_views.step_rhythm import StepRhythm

__all__ = [
    "End",
    "JobView",
    "NodeView",
    "RoleReadings",
    "StepRhythm",
    "allowed_silence_seconds",
    "ended_because",
    "found_again",
    "has_restarted",
    "moved_again_at",
    "recovered_because",
    "stopped_at",
    "stops_again",
    "witnessed_until",
]
