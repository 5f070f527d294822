"""Roles of a reinforcement-learning job: which of them holds up the others, and which of its instances."""

READS = ("role_state",)
ACROSS_ROLES = True
