"""``faulthound tokens``: who may send, read and change."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from service import endings
from service.cli.asking import print_json, refusing, shown_instant, to
from service.client import DEFAULT_URL, CaFile, Json, ServiceUrl, TokenFile
from service.speech import Speech

tokens = typer.Typer(no_args_is_help=True, help="Make, list and end the tokens of agents, people and programs.")


class Scope(StrEnum):
    """What a token is good for."""

    INGEST = "ingest"
    READ = "read"
    EXECUTE = "execute"
    REMEDIATE = "remediate"
    ADMIN = "admin"


@tokens.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what for.")],
    scope: Annotated[
        list[Scope],
        typer.Option(help="ingest: an agent's; read; execute: a scheduler's; remediate: change; admin: all."),
    ],
    node: Annotated[str | None, typer.Option(metavar="NODE", help="It may speak for this node only.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="IN", help="After 12h or 90d; never, if left out.")] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Write into the database itself: for the first token, on the service's machine."),
    ] = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Make a token and print it: it is shown once, and the service keeps only its hash.

    The first token closes the service to whoever has none.

    \b
    Examples:
      faulthound tokens create ops --scope admin --local
      faulthound tokens create agent --scope ingest --node gpu-0413 >/etc/faulthound/token
      faulthound tokens create grafana --scope read --expires 90d
    """
    with refusing():
        wish = _wish(name, [one.value for one in scope], node, expires)
        made = _made_here(wish) if local else None
    if made is None:
        with to(service, ca_file, token_file) as connection:
            made = connection.post("/v1/tokens", wish)
    if json:
        print_json(made)
        return
    where = f" of node {made['node']}" if made["node"] else ""
    Speech().note(
        f"token {made['id']} of {made['name']}, good for {', '.join(made['scopes'])}{where}; shown this once:"
    )
    sys.stdout.write(made["token"] + "\n")


@tokens.command("list")
def list_tokens(
    json: Json = False, service: ServiceUrl = DEFAULT_URL, ca_file: CaFile = None, token_file: TokenFile = None
) -> None:
    """List the tokens, also those that have ended; secrets are kept nowhere.

    \b
    Examples:
      faulthound tokens list
      faulthound tokens list --json | jq '.[] | select(.last_used_at == null)'
    """
    with to(service, ca_file, token_file) as connection:
        rows = connection.get("/v1/tokens")["items"]
    if json:
        print_json(rows)
        return
    from service.cli.tables import print_table

    columns = ("id", "name", "scopes", "node", "made", "last used", "ends")
    print_table(columns, [_row(row) for row in rows])


@tokens.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `tokens list` shows it.")],
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """End a token, within seconds everywhere.

    \b
    Examples:
      faulthound tokens revoke 3f9a1c52d0e84b77
    """
    from urllib.parse import quote

    with to(service, ca_file, token_file) as connection:
        connection.delete(f"/v1/tokens/{quote(id, safe='')}")
    Speech().note(f"token {id} has ended")


def _wish(name: str, scopes: list[str], node: str | None, expires: str | None) -> dict[str, Any]:
    import re

    from service.client import seconds_of
    from service.clock import now

    at = None
    if expires is not None:
        if not re.fullmatch(r"\d{1,9}[smhd]", expires):
            raise endings.CommandError(f"--expires {expires!a} is no span of time: write 12h or 90d")
        at = now() + seconds_of(expires)
    return {"name": name, "scopes": scopes, "node": node, "expires_at": at}


def _made_here(wish: dict[str, Any]) -> dict[str, Any]:
    """Make a token in the database of this machine's settings; whoever can write that file may do anything anyway."""
    import msgspec
    from pydantic import ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    from service.api.pages import from_row
    from service.api.problems import Problem
    from service.api.resources.tokens import TokenDocument, TokenRequest, check_request
    from service.clock import now
    from service.settings import load
    from service.store.database import Database, WrongDatabase
    from service.store.tokens import Tokens

    try:
        asked = TokenRequest(**wish)
        check_request(asked, now())
        database = Database(load().url())
        database.migrate()
        token, secret = Tokens(database).make(asked.name, asked.scopes, asked.node, asked.expires_at, by="local")
        database.close()
    except ValidationError as error:
        wrong = error.errors()[0]
        raise endings.CommandError(f"{wrong['loc'][-1]}: {wrong['msg']}") from None
    except ValueError as error:  # of the settings
        raise endings.CommandError(str(error)) from None
    except Problem as problem:
        raise endings.CommandError(problem.detail) from None
    except (SQLAlchemyError, WrongDatabase, OSError) as error:
        raise endings.CommandError(
            f"the database cannot be written ({str(error).splitlines()[0]}): set FAULTHOUND_DATA or "
            "FAULTHOUND_DATABASE_URL as the service has it"
        ) from None
    return {**msgspec.structs.asdict(from_row(token, TokenDocument)), "token": secret}


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    ended = row["revoked_at"] is not None
    ends = f"revoked {shown_instant(row['revoked_at'])}" if ended else shown_instant(row["expires_at"])
    used = shown_instant(row["last_used_at"])
    return row["id"], row["name"], " ".join(row["scopes"]), row["node"] or "", shown_instant(row["made_at"]), used, ends
