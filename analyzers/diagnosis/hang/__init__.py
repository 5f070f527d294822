"""Hangs: which ranks wait for which in flight-recorder dumps and probe rings, and where the waits end."""

READS = ("flight_recorder", "ring")
