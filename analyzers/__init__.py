"""Pure functions from records to a verdict: no I/O, no clock, no randomness without a seed."""
