"""The test suite, the benches and the acceptance matrices. Not installed."""
