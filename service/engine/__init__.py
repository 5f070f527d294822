"""The engine's process: it reads the log under a lease and executes what ``analyzers.incidents`` decides. It decides nothing."""
