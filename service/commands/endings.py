"""How a command ends: the exit codes, and the one way to say what is wrong."""

from __future__ import annotations

VERDICT = 0  # a verdict, healthy included
UNEXPECTED = 1  # an expectation failed
USAGE = 2  # bad usage, or nothing readable
ABSTAINED = 3
INTERRUPTED = 130  # 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE


class Refused(Exception):
    """A command cannot go on: the message says the thing, the value, the bound and the next step."""
