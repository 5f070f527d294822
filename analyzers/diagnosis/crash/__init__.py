"""Crashes: whose failure is the cause and whose an echo, from job logs and the ends of processes."""

READS = ("log_event", "process")
