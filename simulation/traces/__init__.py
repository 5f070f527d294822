"""Traces that profilers would write of simulated jobs."""
