"""Sinks: what happens with incidents, told to other systems. Each is a process of its own with a token that only reads."""
