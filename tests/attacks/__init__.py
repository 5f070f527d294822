"""Attacks: what strangers say and send, held against what the service makes of it."""
