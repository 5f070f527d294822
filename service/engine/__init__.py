"""The engine as a process: it reads the log, keeps the lease, and carries out what ``analyzers.incidents`` decides."""
