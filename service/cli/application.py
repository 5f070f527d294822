"""The command ``faulthound``: its verbs, each imported when it is used, and the options that stand before a verb."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from service.cli.verbs import parameters_of, service_options, signed

VERBS = (
    "diagnose", "read", "formats", "serve", "status", "watch", "export", "replay", "evaluate", "learn", "simulate",
    "standbys", "incidents", "remediations", "holds", "freeze", "breaker", "policy", "jobs", "nodes", "tokens", "adapter",
)  # fmt: skip
"""Each is a file of this folder, and in it the function or the group of that name."""


def command() -> Any:
    """Return the click command. Plain help, because the documentation is made of it and rich costs start-up time."""

    def keep_options(ctx: typer.Context, version: bool, **options: Any) -> None:  # noqa: ARG001
        ctx.obj = options

    app = _app()
    app.callback()(signed(keep_options, _faulthound, [*parameters_of(_faulthound), *service_options(hidden=False)]))
    root = typer.main.get_command(app)
    root.commands = _Verbs()  # type: ignore[attr-defined]
    return root


class _Verbs(Mapping[str, Any]):
    """The verbs by name; one is imported when it is looked up."""

    def __init__(self) -> None:
        self._imported: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
            raise KeyError(name)
        if name not in self._imported:
            self._imported[name] = _click(name, getattr(importlib.import_module(f"service.cli.{name}"), name))
        return self._imported[name]


def _click(name: str, verb: Any) -> Any:
    app = _app()
    app.callback()(lambda: None)
    app.add_typer(verb, name=name) if isinstance(verb, typer.Typer) else app.command(
        name, epilog=getattr(verb, "epilog", None)
    )(verb)
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]


def _app() -> typer.Typer:
    return typer.Typer(
        name="faulthound",
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


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
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Name what stalls, slows, crashes or corrupts a distributed GPU job: a machine, a link, or not a machine at all.

    Who slows a job is named from traces of its operations and, while it runs, by the probe (docs/analyzers.md).

    The options of the service may stand before the verb or after it.

    Exit codes: 0 a verdict (a healthy job too) or done, 1 an expectation failed, a node did not
    answer, a replay gave other bytes, or a policy is wrong, 2 nothing was judged: bad usage,
    nothing readable, or nothing in the files shows a fault or a wait (a log without errors and
    steps), 3 abstained: the evidence does not decide, 4 the service does not answer, 5 it refuses, or
    the operator did not agree to a change.
    """
