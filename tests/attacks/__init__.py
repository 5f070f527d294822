"""Attacks: what strangers say and send, and what wrong clocks show, held against what the service makes of it."""
