"""The exit codes of every command."""

from __future__ import annotations

from service.client import UserError

VERDICT = 0  # a verdict, healthy included; or done
UNEXPECTED = 1  # an expectation failed
USAGE = 2  # nothing was judged: bad usage, nothing readable, or nothing in the files shows a fault or a wait
ABSTAINED = 3
UNREACHABLE = 4  # the service does not answer
REFUSED = 5  # the service refuses, or the operator did not agree
INTERRUPTED = 130  # 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE


class NotAgreed(UserError):
    """The operator did not agree to a change."""


def code_of(problem: UserError) -> int:
    """Return the exit code for an error."""
    if isinstance(problem, NotAgreed):
        return REFUSED
    from service.client import RequestRefused, Unreachable

    if isinstance(problem, Unreachable):
        return UNREACHABLE
    return REFUSED if isinstance(problem, RequestRefused) else USAGE
