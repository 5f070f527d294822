"""A service, agents and plain torchrun jobs for an hour, by a table of what happens to them, and how well it was reported."""
