"""What the verbs that ask the service share: how they end, and how they show what it said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from service.client import Connection, connected
from service.endings import CommandError
from service.speech import Speech


@contextmanager
def to(service: str, ca_file: Path | None, token_file: Path | None) -> Iterator[Connection]:
    """Give a connection; what goes wrong is said, and the command ends with its exit code."""
    with refusing(), connected(service, ca_file, token_file) as connection:
        yield connection


@contextmanager
def refusing() -> Iterator[None]:
    """Say what is wrong and end with its exit code."""
    try:
        yield
    except CommandError as problem:
        Speech().error(str(problem))
        raise typer.Exit(problem.code) from None


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def shown_instant(at: float | None) -> str:
    """Show UTC seconds to the second, empty where there is none."""
    from service.reports.instants import moment, rfc3339

    return "" if at is None else moment(rfc3339(at))


def answered(command: dict[str, Any]) -> bool:
    """Return whether nothing more comes of a command."""
    return command["outcome"] is not None
