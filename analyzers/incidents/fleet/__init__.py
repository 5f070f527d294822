"""The loop over all jobs: what several nodes or jobs show at once is one infrastructure incident, and evicts nobody."""

from analyzers.incidents.fleet.fleet import Fleet, FleetReport
from analyzers.incidents.fleet.seen import Heard, JobSeen
from analyzers.incidents.fleet.shared_incident import SharedIncident, incident_key

__all__ = ["Fleet", "FleetReport", "Heard", "JobSeen", "SharedIncident", "incident_key"]
