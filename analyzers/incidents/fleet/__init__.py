"""What several nodes or jobs show at once: one infrastructure incident that evicts no node. Trouble of one job is not in here."""

from analyzers.incidents.fleet.fleet import Fleet, FleetReport
from analyzers.incidents.fleet.shared_incident import SharedIncident, incident_key

__all__ = ["Fleet", "FleetReport", "SharedIncident", "incident_key"]
