"""The store: the log of batches, and what is known of nodes, jobs and who may say what."""
