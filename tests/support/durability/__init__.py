"""Is every acknowledged record in the log, once? Agents and a service, killed, cut off and lied to, and counted."""
