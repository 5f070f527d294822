"""``faulthound jobs``: what the service knows of jobs, and asking their agents for more."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from service import endings
from service.cli.asking import answered, print_json, shown_instant, to
from service.client import DEFAULT_URL, CaFile, Connection, Json, ServiceUrl, TokenFile, instant
from service.speech import Speech

POLL_SECONDS = 1.0
IDS_AT_ONCE = 100

jobs = typer.Typer(no_args_is_help=True, help="List jobs, show one, and ask its agents for evidence.")
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]


class What(StrEnum):
    """The evidence that agents collect when asked."""

    STACKS = "stacks"
    RECORDERS = "recorders"


@jobs.command("list")
def list_jobs(
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Seen after 10m, 2h ago or RFC 3339.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """List the jobs that agents have seen or their owners declared.

    \b
    Examples:
      faulthound jobs list --since 1h
      faulthound jobs list --json | jq -r '.[].name'
    """
    from service.clock import now

    with to(service, ca_file, token_file) as connection:
        rows = list(connection.all("/v1/jobs", limit, since=instant("--since", since, now())))
    if json:
        print_json(rows)
        return
    from service.cli.tables import print_table

    print_table(
        ("job", "last seen", "declared"),
        [(row["name"], shown_instant(row["last_seen_at"]), shown_instant(row["declared_at"])) for row in rows],
    )


@jobs.command()
def show(
    job: Job,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Show a job: its attempts, and where the ranks of the newest one run.

    \b
    Examples:
      faulthound jobs show llama-405b
      faulthound jobs show llama-405b --json | jq '.ranks[] | select(.node == "gpu-0413").rank'
    """
    with to(service, ca_file, token_file) as connection:
        document = connection.get(f"/v1/jobs/{job_path(job)}")
        ranks = list(connection.all(f"/v1/jobs/{job_path(job)}/ranks"))
    if json:
        print_json({**document, "ranks": ranks})
        return
    _print_job(document, ranks)


@jobs.command()
def collect(
    job: Job,
    what: Annotated[
        list[What] | None, typer.Argument(metavar="WHAT", help="stacks, recorders; both if left out.")
    ] = None,
    native: Annotated[bool, typer.Option("--native", help="C frames too: pauses the processes for longer.")] = False,
    ranks: Annotated[str | None, typer.Option(metavar="RANKS", help="Of these ranks only: 3,5 or 0-7.")] = None,
    wait: Annotated[float, typer.Option(min=0, max=3600, metavar="SECONDS", help="Wait so long for the answers.")] = 90,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Ask the agents of a job for stacks and flight-recorder dumps now, and wait until they have sent them.

    Leaves with 1 where a node did not answer, or could not. `faulthound export` then has the records.

    \b
    Examples:
      faulthound jobs collect llama-405b
      faulthound jobs collect llama-405b stacks --native --ranks 3,5
    """
    speech = Speech()
    with to(service, ca_file, token_file) as connection:
        asked = [
            command
            for verb in dict.fromkeys(what or list(What))
            for command in connection.post(f"/v1/jobs/{job_path(job)}/commands", _wish(verb, native, ranks))["items"]
        ]
        ended = _awaited(connection, asked, wait, speech)
    if json:
        print_json(ended)
    else:
        from service.cli.tables import print_table

        print_table(
            ("node", "asked for", "outcome", "text"),
            [(row["node"], row["verb"], row["outcome"] or "no answer", row["text"]) for row in ended],
        )
    good = sum(row["outcome"] in ("done", "nothing") for row in ended)
    speech.note(f"{good} of {len(ended)} answered")
    raise typer.Exit(endings.VERDICT if good == len(ended) else endings.UNEXPECTED)


def job_path(job: str) -> str:
    """Return a job's name as a part of an address; a slash in it stays one."""
    from urllib.parse import quote

    return quote(job, safe="/")


def _wish(verb: What, native: bool, ranks: str | None) -> dict[str, Any]:
    from service.reports.hostlists import parse_ranks

    arguments: dict[str, Any] = {"native": True} if native and verb is What.STACKS else {}
    if ranks is not None:
        try:
            arguments["ranks"] = list(parse_ranks(ranks))
        except ValueError as error:
            raise endings.CommandError(f"--ranks: {error}") from None
    return {"verb": verb.value, "arguments": arguments}


def _awaited(connection: Connection, asked: Sequence[Any], wait_seconds: float, speech: Speech) -> list[Any]:
    """Return the commands once all have ended, or the time is over; a service that is away meanwhile is asked again."""
    until = time.monotonic() + wait_seconds
    commands = {command["id"]: command for command in asked}
    with speech.progress("answers") as progress:
        while True:
            open_ = [id for id, command in commands.items() if not answered(command)]
            if progress is not None:
                progress(len(commands) - len(open_), len(commands))
            if not open_:
                break
            try:
                for start in range(0, len(open_), IDS_AT_ONCE):
                    found = connection.get("/v1/commands", id=open_[start : start + IDS_AT_ONCE])["items"]
                    commands.update({command["id"]: command for command in found})
            except endings.Unreachable:
                if time.monotonic() >= until:
                    raise
            if time.monotonic() >= until:
                break
            time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))
    return sorted(commands.values(), key=lambda command: (command["node"], command["verb"]))


def _print_job(document: dict[str, Any], ranks: Sequence[dict[str, Any]]) -> None:
    from service.cli.tables import print_table

    declared = document["declared"]
    size = f", declared with {declared['world_size']} ranks" if declared else ", not declared"
    sys.stdout.write(f"{document['name']}: last seen {shown_instant(document['last_seen_at'])}{size}\n\n")
    print_table(
        ("attempt", "first seen", "last seen", "world size", "ranks seen", "nodes"),
        [
            (str(row["number"]), shown_instant(row["first_seen_at"]), shown_instant(row["last_seen_at"]),
             str(row["world_size"] or ""), str(row["ranks"]), str(row["nodes"]))
            for row in document["attempts"]
        ],
    )  # fmt: skip
    if ranks:
        from service.reports.hostlists import ranks_for_people

        where: dict[str, list[int]] = {}
        for row in ranks:
            where.setdefault(row["node"], []).append(row["rank"])
        sys.stdout.write("\n")
        print_table(("node", "ranks"), [(node, ranks_for_people(own)) for node, own in sorted(where.items())])
