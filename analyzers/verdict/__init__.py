"""From findings to the one verdict: what is a root, what excuses a suspect, what holds an eviction back, and what to do."""
