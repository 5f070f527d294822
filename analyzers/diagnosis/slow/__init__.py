"""Which kind of slowness traces and timings show, and who, or that no machine is at fault."""

READS = ("op_timings", "collective_timings", "straggler_reports", "steps")
