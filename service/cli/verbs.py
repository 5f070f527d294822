"""How verbs of the service are declared: the options and the output that they share, and errors as exit codes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.exit_codes import code_of
from service.cli.output import print_json, print_lines, print_table
from service.cli.speech import Speech
from service.client import DEFAULT_URL, TIMEOUT_SECONDS, Connection, UserError, connected

EPILOG = "The options of the service (--service, --token-file, --ca-file, --timeout): faulthound --help"
_LISTS = re.compile(r"/v1/(incidents|remediations|jobs|nodes|tokens) lists")  # the service's words, for who uses REST
_SERVICE: dict[str, tuple[Any, dict[str, Any]]] = {
    "service": (str, {
        "envvar": "FAULTHOUND_SERVICE", "metavar": "URL", "help": f"The service (FAULTHOUND_SERVICE, {DEFAULT_URL})."
    }),
    "ca_file": (Path, {
        "envvar": "FAULTHOUND_CA_FILE", "metavar": "FILE",
        "help": "PEM certificates to trust beside the system's (FAULTHOUND_CA_FILE).",
    }),
    "token_file": (Path, {
        "envvar": "FAULTHOUND_TOKEN_FILE", "metavar": "FILE",
        "help": "File that holds the token (FAULTHOUND_TOKEN_FILE; FAULTHOUND_TOKEN is the token itself).",
    }),
    "timeout": (float, {
        "min": 0.1, "max": 3_600, "metavar": "S", "help": f"Longest wait for an answer, {TIMEOUT_SECONDS:.0f} s if left out."
    }),
}  # fmt: skip
_JSON = Annotated[bool, typer.Option("--json", help="Print the service's answer as JSON.")]
_QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the ids, one a line.")]

Verb = Callable[..., Any]
Connect = Callable[[], AbstractContextManager[Connection]]  # for a verb that may need no connection


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb returns: the document for ``--json``, what people see instead, the ids for ``-q``, the exit code."""

    document: Any
    show: Callable[[], None]
    ids: Iterable[str] = ()
    code: int = 0


def table(rows: list[Any], columns: Sequence[str], cells: Callable[[Any], Sequence[str]], id: str) -> Answer:
    """Return rows as an answer. ``id``: the field that ``-q`` prints."""
    return Answer(rows, lambda: print_table(columns, [cells(row) for row in rows]), [row[id] for row in rows])


def command(group: typer.Typer, name: str | None = None, *, ids: bool = False) -> Callable[[Verb], Verb]:
    """Declare a function of a connection as a verb of a group. ``ids``: whether it lists resources and takes ``-q``."""

    def declare(function: Verb) -> Verb:
        group.command(name, epilog=EPILOG)(with_service(function, json=True, ids=ids))
        return function

    return declare


def with_service(function: Verb, *, json: bool = False, ids: bool = False) -> Verb:
    """Return the verb of a function whose first parameter is a connection, or a ``Connect``. It may return an ``Answer``."""
    reach, *own = parameters_of(function)
    parameters = [parameter("ctx", typer.Context), *own]
    parameters += [parameter("quiet", _QUIET, False)] if ids else []
    parameters += [parameter("json", _JSON, False)] if json else []

    def verb(ctx: typer.Context, **given: Any) -> None:
        quiet, as_json = ids and given.pop("quiet"), json and given.pop("json")
        with ending():
            connect = partial(_connected, ctx, {name: given.pop(name) for name in _SERVICE})
            if reach.annotation is Connection:
                with connect() as connection:
                    answer = function(connection, **given)
            else:
                answer = function(connect, **given)
            if answer is not None:
                _print(answer, quiet=quiet, json=as_json)

    verb.epilog = EPILOG  # type: ignore[attr-defined]
    return signed(verb, function, [*parameters, *service_options(hidden=True)])


def service_options(*, hidden: bool) -> list[inspect.Parameter]:
    """Return the options of the service: shown before the verb, accepted after it as well."""
    found = []
    for name, (kind, details) in _SERVICE.items():
        own = {key: value for key, value in details.items() if not (hidden and key == "envvar")}
        option = typer.Option(
            f"--{name.replace('_', '-')}", show_envvar=False, show_default=False, hidden=hidden, **own
        )
        found.append(parameter(name, Annotated[kind | None, option], None))
    return found


def parameters_of(function: Verb) -> list[inspect.Parameter]:
    """Return the parameters of a function, their annotations evaluated."""
    return list(inspect.signature(function, eval_str=True).parameters.values())


def signed(verb: Verb, of: Verb, parameters: Iterable[inspect.Parameter]) -> Verb:
    """Give a verb the name and the help of a function, and these parameters, which Typer reads."""
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    verb.__name__, verb.__doc__ = of.__name__, of.__doc__
    verb.__annotations__ = {one.name: one.annotation for one in named}
    verb.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return verb


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Return a parameter for ``signed``."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


@contextmanager
def ending() -> Iterator[None]:
    """Print an error and end with its exit code."""
    try:
        yield
    except UserError as problem:
        Speech().error(_LISTS.sub(r"`faulthound \1 list` lists", str(problem)))
        raise typer.Exit(code_of(problem)) from None


@contextmanager
def _connected(ctx: typer.Context, after: Mapping[str, Any]) -> Iterator[Connection]:
    """Connect. An option after the verb wins over one before it."""
    before: Mapping[str, Any] = ctx.obj or {}
    found = {name: before.get(name) if value is None else value for name, value in after.items()}
    url, seconds = found["service"] or DEFAULT_URL, found["timeout"] or TIMEOUT_SECONDS
    with connected(url, found["ca_file"], found["token_file"], seconds) as connection:
        yield connection


def _print(answer: Answer, *, quiet: bool, json: bool) -> None:
    if json:
        print_json(answer.document)
    elif quiet:
        print_lines(answer.ids)
    else:
        answer.show()
    if answer.code:
        raise typer.Exit(answer.code)
