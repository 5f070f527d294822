"""The agent: runs the collectors, spools what they yield, ships it and executes commands. No collector is here."""

from __future__ import annotations

from functools import cache


@cache
def agent_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("faulthound")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0"


def main() -> None:
    """Run the console script and leave the process with its exit code."""
    import sys

    from collectors.agent.cli import run

    sys.exit(run(sys.argv[1:]))
