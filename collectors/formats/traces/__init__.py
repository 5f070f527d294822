"""Traces of profilers: what each rank ran in each step, and for how long."""
