"""A verdict on stdout, the same for ``diagnose``, ``replay`` and ``incidents show``."""

from __future__ import annotations

import sys

from analyzers.model.verdict import Verdict
from service.speech import colored, speaks_unicode, terminal_width


def print_verdict(verdict: Verdict, *, no_color: bool = False) -> None:
    """Print what the verdict says."""
    from service.reports import text

    sys.stdout.write(text.render(verdict, width=terminal_width(), color=colored(no_color), unicode=speaks_unicode()))
