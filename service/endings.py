"""How a command ends: the exit codes, and the one way to say what is wrong."""

from __future__ import annotations

VERDICT = 0  # a verdict, healthy included; or done
UNEXPECTED = 1  # an expectation failed
USAGE = 2  # bad usage, or nothing readable
ABSTAINED = 3
UNREACHABLE = 4  # the service does not answer
REFUSED = 5  # the service answers, and will not
INTERRUPTED = 130  # 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE


class CommandError(Exception):
    """A command cannot go on: the message says the thing, the value, the bound and the next step."""

    code = USAGE


class Unreachable(CommandError):
    """The service does not answer."""

    code = UNREACHABLE


class Forbidden(CommandError):
    """The service answers, and will not do what is asked. ``status``: of its answer, where there was one."""

    code = REFUSED

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status
