"""``faulthound incidents``: what the service has opened, what it says of each, and what a person says of that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from service import endings
from service.cli.asking import print_json, refusing, shown_instant, to
from service.cli.export import check_place, download, read_manifest
from service.client import DEFAULT_URL, CaFile, Json, ServiceUrl, TokenFile, instant
from service.speech import Speech

incidents = typer.Typer(no_args_is_help=True, help="List incidents, show one, export it, and say whether it is right.")
Id = Annotated[str, typer.Argument(metavar="ID", help="The incident's id, inc-0123456789ab.")]


class Status(StrEnum):
    """Whether an incident goes on."""

    OPEN = "open"
    CLOSED = "closed"


class Judgement(StrEnum):
    """What a person says of a verdict."""

    RIGHT = "right"
    WRONG = "wrong"
    UNCLEAR = "unclear"


@incidents.command("list")
def list_incidents(
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="That concern this node.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only these; both if left out.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="hang, crash, numeric, infrastructure …")] = None,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Opened after 10m, 2h ago or RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="And before.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """List incidents, the newest first, with what their newest verdicts say.

    \b
    Examples:
      faulthound incidents list --status open
      faulthound incidents list --job llama-405b --since 1d --json | jq -r '.[].id'
    """
    from service.clock import now

    with to(service, ca_file, token_file) as connection:
        rows = list(
            connection.all(
                "/v1/incidents", limit, job=job, node=node, kind=kind, status=None if status is None else status.value,
                since=instant("--since", since, now()), until=instant("--until", until, now()),
            )
        )  # fmt: skip
    if json:
        print_json(rows)
        return
    from service.cli.tables import print_table

    print_table(INCIDENT_COLUMNS, [incident_row(row) for row in rows])


@incidents.command()
def show(
    incident: Id,
    version: Annotated[int | None, typer.Option(min=1, metavar="N", help="This version instead of the newest.")] = None,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Show an incident: why it opened, how its verdict changed, and the verdict as `diagnose` prints it.

    \b
    Examples:
      faulthound incidents show inc-0123456789ab
      faulthound incidents show inc-0123456789ab --json | jq .verdict.action
    """
    with to(service, ca_file, token_file) as connection:
        found = connection.get(_path(incident))
        versions = list(connection.all(_path(incident, "verdicts")))
        document = None
        if found["verdict"] is not None:
            document = connection.get(_path(incident, "verdict"), version=version)
        elif version is not None:
            raise endings.CommandError(f"incident {incident} has no version {version}: nothing was published yet")
    if json:
        print_json({"incident": found, "versions": versions, "verdict": document})
        return
    _print_incident(found, versions, document)


@incidents.command("export")
def export_incident(
    incident: Id,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, bundle.fhz for example.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Write an incident's records and published verdicts into one file; `faulthound replay FILE` judges them again.

    \b
    Examples:
      faulthound incidents export inc-0123456789ab bundle.fhz && faulthound replay bundle.fhz
    """
    speech = Speech()
    with refusing():
        check_place(file, force)
    with to(service, ca_file, token_file) as connection, speech.progress("exporting") as progress:
        download(connection, _path(incident, "export"), file, progress)
    manifest = read_manifest(file)
    if json:
        print_json(
            {"file": str(file), "bytes": file.stat().st_size, "incident": incident, "missing": list(manifest.missing)}
        )
        return
    for gap in manifest.missing:
        speech.note(f"missing: {gap}")
    speech.note(f"{file}: {file.stat().st_size:,} bytes; faulthound replay {file}")


@incidents.command()
def feedback(
    incident: Id,
    judgement: Annotated[Judgement, typer.Argument(metavar="right|wrong|unclear", help="What the newest verdict was.")],
    culprit: Annotated[
        str | None, typer.Option(metavar="KIND:ID", help="Who it really was: node:gpu-0413, rank:14, code:train.py.")
    ] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="What you found.")] = "",
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Say whether a verdict was right, and if not, who it really was.

    \b
    Examples:
      faulthound incidents feedback inc-0123456789ab right
      faulthound incidents feedback inc-0123456789ab wrong --culprit node:gpu-0007 --text "its HBM failed the test"
    """
    with to(service, ca_file, token_file) as connection:
        body: dict[str, Any] = {"judgement": judgement.value, "text": text} | _real(culprit)
        answer = connection.post(_path(incident, "feedback"), body)
    if json:
        print_json(answer)
        return
    Speech().note(f"{incident}: its verdict is noted as {judgement.value}")


INCIDENT_COLUMNS = ("incident", "opened", "closed", "kind", "job", "culprit", "sure", "action")


def incident_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``INCIDENT_COLUMNS`` for one incident of a list."""
    from service.reports import history

    verdict = row["verdict"]
    said = history.of_summary(verdict) if verdict is not None else None
    return (
        row["id"], shown_instant(row["opened_at"]), shown_instant(row["closed_at"]), row["kind"], row["job"] or "(fleet)",
        said.named if said is not None else "no verdict yet", said.sure if said is not None else "",
        said.action if said is not None else "",
    )  # fmt: skip


def _path(incident: str, below: str = "") -> str:
    from urllib.parse import quote

    return f"/v1/incidents/{quote(incident, safe='')}" + (f"/{below}" if below else "")


def _real(culprit: str | None) -> dict[str, Any]:
    if culprit is None:
        return {}
    kind, separator, id = culprit.partition(":")
    if not (kind and separator and id):
        raise endings.CommandError(f"--culprit {culprit!a} is not KIND:ID: write node:gpu-0413 or rank:14")
    return {"culprit": {"kind": kind, "id": id}}


def _print_incident(
    found: Mapping[str, Any], versions: Sequence[Mapping[str, Any]], document: Mapping[str, Any] | None
) -> None:
    import msgspec

    from analyzers.model.verdict import Verdict
    from service.cli.tables import print_table
    from service.cli.verdicts import print_verdict
    from service.reports import history
    from service.reports.text import printable

    for line in incident_lines(found):
        sys.stdout.write(f"{printable(line)}\n")
    if versions:
        sys.stdout.write("\n")
        oldest_first = sorted(versions, key=lambda row: int(row["version"]))
        print_table(history.COLUMNS, history.lines(map(history.of_summary, oldest_first)))
    sys.stdout.write("\n")
    if document is None:
        sys.stdout.write("No verdict yet.\n")
    else:
        print_verdict(msgspec.convert(document, Verdict))


def incident_lines(found: Mapping[str, Any]) -> list[str]:
    """Say what an incident is, in lines: when it opened and why, what people said, when it closed and why."""
    attempt = f", attempt {found['attempt']}" if found["attempt"] is not None else ""
    whose = f"{found['job']}{attempt}" if found["job"] else "the fleet"
    lines = [f"{found['id']}: {found['kind']} of {whose}, opened {shown_instant(found['opened_at'])}"]
    lines += [f"  {shown_instant(one['at'])}  {one['detector']}: {one['text']}" for one in found.get("symptoms", ())]
    for said in found.get("feedback", ()):
        real = f", it was {said['culprit']['kind']} {said['culprit']['id']}" if said.get("culprit") else ""
        text = f": {said['text']}" if said.get("text") else ""
        lines.append(f"  {shown_instant(said['at'])}  {said['by']} says {said['judgement']}{real}{text}")
    if found["merged_into"]:
        lines.append(f"  explained by {found['merged_into']}")
    if found["closed_at"] is not None:
        lines.append(f"  {shown_instant(found['closed_at'])}  closed: {found['closed_because']}")
    return lines
