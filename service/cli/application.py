"""The typer application: every verb of this folder under one name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.adapter import adapter
from service.cli.diagnose import diagnose
from service.cli.export import export
from service.cli.formats import formats
from service.cli.freeze import breaker, freeze
from service.cli.holds import holds
from service.cli.incidents import incidents
from service.cli.jobs import jobs
from service.cli.nodes import nodes
from service.cli.policy import policy
from service.cli.read import read
from service.cli.remediations import remediations
from service.cli.replay import replay
from service.cli.serve import serve
from service.cli.standbys import standbys
from service.cli.tokens import tokens
from service.cli.watch import watch


def command() -> Any:
    """Return the click command. Plain help, because the documentation is made of it and rich costs start-up time."""
    app = typer.Typer(
        name="faulthound",
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_faulthound)
    for verb in (diagnose, read, formats, serve, watch, export, replay, standbys):
        app.command()(verb)
    groups = {
        "incidents": incidents, "remediations": remediations, "holds": holds, "freeze": freeze, "breaker": breaker,
        "policy": policy, "jobs": jobs, "nodes": nodes, "tokens": tokens, "adapter": adapter,
    }  # fmt: skip
    for noun, group in groups.items():
        app.add_typer(group, name=noun)
    return typer.main.get_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("faulthound")
        except PackageNotFoundError:
            number = "(not installed: running from a source tree)"
        typer.echo(f"faulthound {number}")
        raise typer.Exit(0)


def _faulthound(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Name what stalls, slows, crashes or corrupts a distributed GPU job: a machine, a link, or not a machine at all.

    \b
    Exit codes: 0 a verdict (a healthy job too) or done, 1 an expectation failed, a node did not
    answer, a replay gave other bytes, or a policy is wrong, 2 bad usage or nothing readable,
    3 abstained: the evidence does not decide, 4 the service does not answer, 5 it refuses, or
    nobody agreed to a change.
    """
