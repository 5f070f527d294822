"""Texts that no rule reads: the cause that failures have which people described in the same words."""

READS = ("log_event",)
