"""The command line: one file a verb. ``main`` turns every ending into one of the documented exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from faulthound import PACKAGES
from service.cli.exit_codes import BROKEN_PIPE, INTERRUPTED, USAGE

_OF_THE_BASE = frozenset(
    ("typer", "rich", "numpy", "jinja2", "ClusterShell", "httpx", "msgspec", "stamina", "prometheus_client")
)
_OF_THE_SERVICE = frozenset((
    "fastapi", "starlette", "uvicorn", "uvloop", "httptools", "sqlalchemy", "alembic", "psycopg", "pydantic",
    "pydantic_core", "pydantic_settings", "structlog", "httpx_sse", "standardwebhooks",
))  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; Ctrl-C and a closed pipe end quietly."""
    if "" in (sys.argv[1:] if arguments is None else arguments):
        # An empty path means the current folder to pathlib, and "$DUMPS" may be an unset variable.
        print("faulthound: an argument is empty: is a variable unset? name the file or folder", file=sys.stderr)
        return USAGE
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # typer turns the first, met inside a verb, into the second
        return _closed_pipe()
    except ModuleNotFoundError as missing:
        return _say_which_extra(missing)


def _invoke(arguments: Sequence[str] | None) -> int:
    import typer

    from service.cli.application import command

    # typer carries a click of its own and exports only some of its exceptions: a usage error is what BadParameter is.
    usage_error: Any = typer.BadParameter.__bases__[0]
    try:
        # Not standalone: that would turn Ctrl-C and a closed pipe into exit code 1, which says "an expectation failed".
        code = command().main(args=arguments, prog_name="faulthound", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except usage_error as problem:
        problem.show()
        return USAGE
    return code if isinstance(code, int) else 0


def _closed_pipe() -> int:
    # The interpreter flushes stdout once more at exit; give it somewhere to go.
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
    return BROKEN_PIPE


def _say_which_extra(missing: ModuleNotFoundError) -> int:
    package = (missing.name or "").partition(".")[0]
    if package in PACKAGES or not package:
        raise missing
    what = (
        "faulthound" if package in _OF_THE_BASE else "'faulthound[service]'" if package in _OF_THE_SERVICE else package
    )
    here = " (in a checkout `make serve` does it)" if what.startswith("'") else ""
    print(
        f"faulthound: this command needs the Python package {package}, which is not installed: pip install {what}{here}",
        file=sys.stderr,
    )
    return USAGE
