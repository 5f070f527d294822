"""The agent: runs the collectors, spools what they read, ships it, and answers commands."""
