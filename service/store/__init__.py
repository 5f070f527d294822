"""The store: the log of batches, what is derived from it, incidents, tokens, retention. It knows nothing of the web."""
