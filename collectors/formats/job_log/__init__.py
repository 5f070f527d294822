"""What jobs and their launchers print: steps, exceptions, timeouts, exit codes."""
