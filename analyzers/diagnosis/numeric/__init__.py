"""Numbers: the first step whose loss or gradient norm is not a number or jumps, and replicas that are none any more."""

READS = ("steps", "log_event", "ring")
