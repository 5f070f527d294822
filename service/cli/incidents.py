"""``faulthound incidents``: the incidents that the service has opened, their verdicts, and feedback on these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from service.cli import consent
from service.cli.consent import Reason
from service.cli.export import check_place, download, exported
from service.cli.options import Limit
from service.cli.output import print_lines, print_table, print_verdict
from service.cli.speech import Speech
from service.cli.times import instant, shown_instant
from service.cli.verbs import Answer, command, table
from service.client import Connection, UserError, resource
from service.clock import now

incidents = typer.Typer(
    no_args_is_help=True, help="List incidents, show one, export it, close it, and give feedback on its verdict."
)
Id = Annotated[str, typer.Argument(metavar="ID", help="The incident's id, inc-0123456789ab.")]
Status = Literal["open", "closed"]
Judgement = Literal["right", "wrong", "unclear"]


@command(incidents, "list", ids=True)
def list_incidents(
    connection: Connection,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="That concern this node.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only these; both if left out.")] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="hang, slow, crash, numeric, infrastructure …")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Opened after 10m, 2h ago or RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="And before.")] = None,
    limit: Limit = None,
) -> Answer:
    """List incidents, the newest first, with the culprit and the action of their newest verdicts.

    \b
    Examples:
      faulthound incidents list --status open
      faulthound incidents list --job llama-405b --since 1d --json | jq -r '.[].id'
    """
    rows = list(
        connection.all(
            "/v1/incidents", limit, job=job, node=node, kind=kind, status=status,
            since=instant("--since", since, now()), until=instant("--until", until, now()),
        )
    )  # fmt: skip
    return table(rows, INCIDENT_COLUMNS, incident_row, "id")


@command(incidents)
def show(
    connection: Connection,
    incident: Id,
    version: Annotated[int | None, typer.Option(min=1, metavar="N", help="This version instead of the newest.")] = None,
) -> Answer:
    """Show an incident: why it opened, how its verdict changed, and the verdict as `diagnose` prints it.

    \b
    Examples:
      faulthound incidents show inc-0123456789ab
      faulthound incidents show inc-0123456789ab --json | jq .verdict.action
    """
    found = connection.get(resource("incidents", incident))
    versions = list(connection.all(resource("incidents", incident, "verdicts")))
    document = None
    if found["verdict"] is not None:
        document = connection.get(resource("incidents", incident, "verdict"), version=version)
    elif version is not None:
        raise UserError(f"incident {incident} has no version {version}: nothing was published yet")
    every = {"incident": found, "versions": versions, "verdict": document}
    remediation = found["remediation"] if version is None else None
    plan = connection.find(resource("remediations", remediation)) if remediation else None
    return Answer(every, lambda: _print_incident(found, versions, document, plan))


@command(incidents, "export")
def export_incident(
    connection: Connection,
    incident: Id,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, bundle.fhz for example.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> Answer:
    """Write an incident's records and published verdicts into one file.

    `faulthound replay FILE` judges every version again; `faulthound diagnose FILE` prints the newest.

    \b
    Examples:
      faulthound incidents export inc-0123456789ab bundle.fhz && faulthound replay bundle.fhz
    """
    check_place(file, force)
    with Speech().progress("exporting") as progress:
        manifest = download(connection, resource("incidents", incident, "export"), file, progress)
    fields = {"incident": incident, "missing": list(manifest.missing)}
    return exported(file, fields, f"; faulthound replay {file}")


@command(incidents)
def feedback(
    connection: Connection,
    incident: Id,
    judgement: Annotated[Judgement, typer.Argument(metavar="right|wrong|unclear", help="What the newest verdict was.")],
    culprit: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:ID",
            help="The real one, which the verdict does not name: node:gpu-0413, rank:14, code:train.py.",
        ),
    ] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="What you found.")] = "",
) -> Answer:
    """Record whether a verdict was right, and if not, the real culprit.

    \b
    Examples:
      faulthound incidents feedback inc-0123456789ab right
      faulthound incidents feedback inc-0123456789ab wrong --culprit node:gpu-0007 --text "its HBM failed the test"
    """
    body: dict[str, Any] = {"judgement": judgement, "text": text} | _real(culprit)
    earlier = connection.get(resource("incidents", incident))["feedback"]
    answer = connection.post(resource("incidents", incident, "feedback"), body)
    said = f"{incident}: version {answer['verdict_version']} of its verdict is recorded as {judgement}"
    if earlier:
        last = max(earlier, key=lambda one: one["at"])
        of = f"{last['judgement']} of version {last['verdict_version']}, by {last['by']}"
        said += f"; the earlier feedback ({of}) stays, and the newest counts"
    return Answer(answer, lambda: Speech().note(said))


@command(incidents)
def close(connection: Connection, incident: Id, reason: Reason) -> Answer:
    """Close an incident by hand: the engine judges it no more, and opens another one for a new symptom of the job.

    The reason and your name are in the audit log and in the incident's timeline.

    \b
    Examples:
      faulthound incidents close inc-0123456789ab --reason "the node was replaced; the job runs"
    """
    path = resource("incidents", incident)
    with consent.as_shown(f"faulthound incidents show {incident}"):
        _, tag = connection.tagged(path)
        answer = connection.post(f"{path}/close", {"reason": reason}, tag)
    return Answer(answer, lambda: Speech().note(f"{incident} is closed: {answer['closed_because']}"))


INCIDENT_COLUMNS = ("incident", "opened", "closed", "kind", "job", "culprit", "sure", "action")


def incident_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``INCIDENT_COLUMNS`` for one incident of a list."""
    from service.reports import history

    found = history.of_incident(row)
    none = "no verdict yet" if row["closed_at"] is None else "no verdict"
    last = (none, "", "") if found is None else (found.named, found.sure, history.advised(found, row["closed_at"]))
    opened, closed = shown_instant(row["opened_at"]), shown_instant(row["closed_at"])
    return row["id"], opened, closed, row["kind"], row["job"] or "(fleet)", *last


def _real(culprit: str | None) -> dict[str, Any]:
    if culprit is None:
        return {}
    kind, separator, id = culprit.partition(":")
    if not (kind and separator and id):
        raise UserError(f"--culprit {culprit!a} is not KIND:ID: write node:gpu-0413 or rank:14")
    return {"culprit": {"kind": kind, "id": id}}


def _print_incident(
    found: Mapping[str, Any], versions: Sequence[Mapping[str, Any]], document: Mapping[str, Any] | None,
    plan: Mapping[str, Any] | None,
) -> None:  # fmt: skip
    import msgspec

    from analyzers.model.verdict import Verdict
    from analyzers.remediation.types import ENDED
    from service.reports import history
    from service.reports.remediations import deed
    from service.reports.text import sentence

    print_lines(incident_lines(found))
    if versions:
        print_lines([""])
        print_table(history.COLUMNS, history.lines(history.versions_of(found, versions)))
    if document is None:
        print_lines(["", "No verdict yet." if found["closed_at"] is None else "It was closed without a verdict."])
    else:
        print_lines(
            ["", "The verdict as it stood before the incident was closed:", ""]
            if found["closed_at"] is not None
            else [""]
        )
        said = plan and f"{deed(plan)} ({plan['id']}, {plan['status']}). {sentence(plan['why'])}"
        planned = (plan["kind"], said) if plan and said else None
        waits = plan is not None and plan["status"] not in ENDED  # it is still to be done, or decided
        over = "" if found["closed_at"] is None or waits else found["closed_because"] or "no reason is known"
        print_verdict(msgspec.convert(document, Verdict), plan=planned, over=over)


def incident_lines(found: Mapping[str, Any]) -> list[str]:
    """Return an incident in lines: when it opened and why, people's feedback, when it closed and why."""
    from service.reports import story

    attempt = f", attempt {found['attempt']}" if found["attempt"] is not None else ""
    whose = f"{found['job']}{attempt}" if found["job"] else "the fleet"
    lines = [f"{found['id']}: {found['kind']} of {whose}, opened {shown_instant(found['opened_at'])}"]
    lines += [f"  {shown_instant(one['at'])}  {one['detector']}: {one['text']}" for one in found.get("symptoms", ())]
    for one in found.get("feedback", ()):
        real = f", it was {story.called(one['culprit']['kind'], one['culprit']['id'])}" if one.get("culprit") else ""
        text = f": {one['text']}" if one.get("text") else ""
        lines.append(f"  {shown_instant(one['at'])}  feedback of {one['by']}: {one['judgement']}{real}{text}")
    if found["merged_into"]:
        lines.append(f"  explained by {found['merged_into']}")
    if found["closed_at"] is not None:
        lines.append(f"  {shown_instant(found['closed_at'])}  closed: {found['closed_because']}")
    return lines
