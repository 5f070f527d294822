"""Which kind of slowness a trace of operations shows, and who, or that no machine is at fault."""

READS = ("op_timings",)
