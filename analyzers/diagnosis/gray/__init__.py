"""GPUs that work, and not as well as their peers: throttled, on a degraded link, with errors that grow."""

READS = ("samples",)
