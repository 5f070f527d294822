"""``faulthound tokens``: what agents, people and programs authenticate with."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.speech import Speech
from service.cli.times import shown_instant, span_seconds
from service.cli.verbs import Answer, Connect, command, table
from service.client import Connection, RequestRefused, UserError, resource
from service.clock import now

ANSWER_SECONDS = 5.0  # of a service that a new token is tried on
UNAUTHENTICATED = 401

tokens = typer.Typer(no_args_is_help=True, help="Make, list and end the tokens of agents, people and programs.")


class Scope(StrEnum):
    """What a token is good for."""

    INGEST = "ingest"
    ROLES = "roles"
    READ = "read"
    EXECUTE = "execute"
    REMEDIATE = "remediate"
    ADMIN = "admin"


@command(tokens)
def create(
    connect: Connect,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its owner or its purpose.")],
    scope: Annotated[
        list[Scope],
        typer.Option(
            help="ingest: an agent's; roles: a job's processes'; read; execute: a scheduler's; remediate: change; admin: all."
        ),
    ],
    node: Annotated[str | None, typer.Option(metavar="NODE", help="It may send for this node only.")] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="It may register roles of this job only.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="IN", help="After 12h or 90d; never, if left out.")] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Write into the database itself: for the first token, on the service's machine."),
    ] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --local: its folder, by the rule of `serve`.")
    ] = None,
) -> Answer:
    """Make a token and print it. It is shown once: the service stores only its hash.

    After the first token the service refuses every request without one.

    \b
    Examples:
      faulthound tokens create ops --scope admin --local
      faulthound tokens create agent --scope ingest --node gpu-0413 >/etc/faulthound/token
      faulthound tokens create rl --scope roles --job rl-math
      faulthound tokens create grafana --scope read --expires 90d
    """
    request = _request(name, [one.value for one in scope], node, job, expires)
    if data is not None and not local:
        raise UserError(f"--data {data} names a database to write into: add --local, or leave --data out")
    with connect() as connection:
        made = _made_here(request, data, connection) if local else connection.post("/v1/tokens", request)

    def show() -> None:
        of_node = "".join(f" of {what} {made[what]}" for what in ("node", "job") if made[what])
        Speech().note(
            f"token {made['id']} of {made['name']}, scopes {', '.join(made['scopes'])}{of_node}; shown this once:"
        )
        sys.stdout.write(made["token"] + "\n")

    return Answer(made, show)


@command(tokens, "list", ids=True)
def list_tokens(connection: Connection) -> Answer:
    """List the tokens, also those that have ended; the secrets are stored nowhere.

    \b
    Examples:
      faulthound tokens list
      faulthound tokens list --json | jq '.[] | select(.last_used_at == null)'
    """
    columns = ("id", "name", "scopes", "node or job", "made", "last used", "ends")
    return table(connection.get("/v1/tokens")["items"], columns, _row, "id")


@command(tokens)
def revoke(
    connection: Connection,
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `tokens list` shows it.")],
) -> Answer:
    """End a token, within seconds everywhere.

    \b
    Examples:
      faulthound tokens revoke 3f9a1c52d0e84b77
    """
    connection.delete(resource("tokens", id))
    return Answer({"id": id, "revoked": True}, lambda: Speech().note(f"token {id} has ended"))


def _request(name: str, scopes: list[str], node: str | None, job: str | None, expires: str | None) -> dict[str, Any]:
    at = None if expires is None else now() + span_seconds("--expires", expires, "12h or 90d")
    return {"name": name, "scopes": scopes, "node": node, "job": job, "expires_at": at}


def _made_here(request: dict[str, Any], data: Path | None, connection: Connection) -> dict[str, Any]:
    """Make a token in the database of this machine's settings; writing that file needs all rights anyway.

    A service that runs here and does not know it keeps its data elsewhere: a token for nothing is no answer.
    """
    import msgspec
    from pydantic import ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    from service.api.paging import from_row
    from service.api.problems import Problem
    from service.api.resources.tokens import TokenDocument, TokenRequest, check_request
    from service.settings import load
    from service.store.database import Database, WrongDatabase
    from service.store.tokens import Tokens

    try:
        asked = TokenRequest(**request)
        check_request(asked, now())
        settings = load({"data": data})
        if settings.file is not None and not settings.file.exists() and not settings.is_placed:
            _check_no_other(connection, settings.data)
        database = Database(settings.url())
        database.migrate()
        tokens = Tokens(database)
        token, secret = tokens.make(asked.name, asked.scopes, asked.node, asked.expires_at, by="local", job=asked.job)
        if not _is_known(connection, secret):
            if not settings.is_placed:
                tokens.unmake(token)
                raise UserError(f"{_elsewhere(connection, settings.data)}; no token was made")
            Speech().note(_elsewhere(connection, settings.data))  # it may be of another service, not yet begun
        database.close()
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UserError(f"{wrong['loc'][-1]}: {wrong['msg']}") from None
    except ValueError as error:  # of the settings
        raise UserError(str(error)) from None
    except Problem as problem:
        raise UserError(problem.detail) from None
    except (SQLAlchemyError, WrongDatabase, OSError) as error:
        raise UserError(
            f"the database cannot be written ({str(error).splitlines()[0]}): set FAULTHOUND_DATA or "
            "FAULTHOUND_DATABASE_URL as the service has it"
        ) from None
    return {**msgspec.structs.asdict(from_row(token, TokenDocument)), "token": secret}


def _check_no_other(connection: Connection, data: Path) -> None:
    """Raise where a service runs: it would have made its database here at its start."""
    try:
        connection.get("/healthz")
    except UserError:
        return
    raise UserError(f"{_elsewhere(connection, data)}; no token was made")


def _is_known(connection: Connection, secret: str) -> bool:
    """Return whether the service takes a token; where none answers there is nothing to compare with."""
    try:
        connection.send("GET", "/v1/tokens", headers={"Authorization": f"Bearer {secret}"}, timeout=ANSWER_SECONDS)
    except RequestRefused as refusal:
        return refusal.status != UNAUTHENTICATED
    except UserError:
        return True
    return True


def _elsewhere(connection: Connection, data: Path) -> str:
    return (
        f"the service at {connection.url} does not keep its data in {data}: name its folder with --data or FAULTHOUND_DATA "
        "as the service has it (it prints it at its start), or another service with --service"
    )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    ended = row["revoked_at"] is not None
    ends = f"revoked {shown_instant(row['revoked_at'])}" if ended else shown_instant(row["expires_at"])
    used = shown_instant(row["last_used_at"])
    bound_to = row["node"] or row["job"] or ""
    return row["id"], row["name"], " ".join(row["scopes"]), bound_to, shown_instant(row["made_at"]), used, ends
