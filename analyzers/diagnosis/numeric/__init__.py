"""Numbers: the first step whose loss or gradient norm is not a number or jumps."""

READS = ("steps", "log_event")
