"""The example of reinforcement learning under faults: its processes on nodes, what happens to it, and what is said of it."""
