"""Verdicts held against labels: which answer was right, what it would have cost, how far its probabilities can be trusted."""
