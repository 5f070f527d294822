"""The one simulator, for tests and measurements: jobs, their faults, and what collectors would record. It judges nothing."""
