"""Real jobs that become slow in known ways: the program that trains, and what is done to it."""
