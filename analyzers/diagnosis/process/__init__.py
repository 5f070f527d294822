"""Processes: ranks that are stopped, uninterruptible or have no process."""

READS = ("process",)
