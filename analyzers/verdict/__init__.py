"""From findings to the one verdict: who is judged, what excuses a suspect, what is held back, and what to do."""
