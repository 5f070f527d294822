"""``faulthound jobs``: the jobs that the service knows, and asking their agents for more evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Annotated, Any

import typer

from service.cli import consent, exit_codes
from service.cli.options import Limit
from service.cli.output import print_lines, print_table
from service.cli.speech import Speech, speaks_unicode
from service.cli.times import instant, shown_instant, span_seconds
from service.cli.verbs import Answer, command, table
from service.client import Connection, Unreachable, UserError, resource
from service.clock import now

POLL_SECONDS = 1.0
IDS_AT_ONCE = 100
NEWEST, CHANGED = 16, 0.1  # reports whose median is shown too where it is so much another one

jobs = typer.Typer(no_args_is_help=True, help="List jobs, show one, and ask its agents for evidence.")
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]


class What(StrEnum):
    """The evidence that agents collect when asked."""

    STACKS = "stacks"
    RECORDERS = "recorders"


@command(jobs, "list", ids=True)
def list_jobs(
    connection: Connection,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Seen after 10m, 2h ago or RFC 3339.")] = None,
    limit: Limit = None,
) -> Answer:
    """List the jobs that agents have seen or their owners declared.

    \b
    Examples:
      faulthound jobs list --since 1h
      faulthound jobs list --json | jq -r '.[].name'
    """
    rows = list(connection.all("/v1/jobs", limit, since=instant("--since", since, now())))
    return table(rows, JOB_COLUMNS, job_row, "name")


JOB_COLUMNS = ("job", "state", "step", "ranks", "last seen", "declared")


def job_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``JOB_COLUMNS``."""
    numbers = ("" if number is None else f"{number:,}" for number in (row["step"], row["world_size"]))
    instants = (shown_instant(row["last_seen_at"]), shown_instant(row["declared_at"]))
    return row["name"], row["state"].replace("_", " "), *numbers, *instants


@command(jobs)
def show(connection: Connection, job: Job) -> Answer:
    """Show a job: steps, rhythm and witnesses, time in training, attempts, roles, and where the newest attempt's ranks run.

    \b
    Examples:
      faulthound jobs show llama-405b
      faulthound jobs show llama-405b --json | jq '.ranks[] | select(.node == "gpu-0413").rank'
    """
    document = connection.get(resource("jobs", job))
    ranks = list(connection.all(resource("jobs", job, "ranks")))
    progress = connection.find(resource("jobs", job, "progress"))
    roles = connection.find(resource("jobs", job, "roles"))
    costs = connection.find(resource("jobs", job, "downtime"))
    ettr = None if costs is None else costs["ettr"]

    def show_all() -> None:
        from service.reports.job_lines import unknown_roles, unseen_roles

        _print_job(document, ranks)
        if ettr is not None and ettr["cumulative"] is not None:
            _print_ettr(ettr)
        if progress is not None:
            print_progress(progress)
        if roles is not None:
            print_roles(roles)
            print_lines([*unseen_roles(roles["items"], ranks), *unknown_roles(roles.get("unknown_roles", ()))])

    return Answer({**document, "ranks": ranks, "progress": progress, "roles": roles, "ettr": ettr}, show_all)


@command(jobs)
def collect(
    connection: Connection,
    job: Job,
    what: Annotated[
        list[What] | None, typer.Argument(metavar="WHAT", help="stacks, recorders; both if left out.")
    ] = None,
    native: Annotated[bool, typer.Option("--native", help="C frames too: pauses the processes for longer.")] = False,
    ranks: Annotated[
        str | None, typer.Option(metavar="RANKS", help="Of these ranks only: 3,5 or 0-7; rollout=3 of one role.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, max=3600, metavar="SECONDS", help="Wait so long for the answers.")] = 90,
) -> Answer:
    """Ask the agents of a job for stacks and flight-recorder dumps now, and wait until they have sent them.

    Exits with 1 where a node did not answer, or could not. `faulthound export` then has the records.

    \b
    Examples:
      faulthound jobs collect llama-405b
      faulthound jobs collect llama-405b stacks --native --ranks 3,5
      faulthound jobs collect grpo-7b --ranks rollout=3,trainer=0-1
    """
    speech, path = Speech(), resource("jobs", job, "commands")
    asked = [
        command
        for verb in dict.fromkeys(what or list(What))
        for command in connection.post(path, _request(verb, native, ranks))["items"]
    ]
    ended = _awaited(connection, asked, wait, speech)
    good = sum(row["outcome"] in ("done", "nothing") for row in ended)

    def show_outcomes() -> None:
        cells = [(row["node"], row["verb"], row["outcome"] or "no answer", row["text"]) for row in ended]
        print_table(("node", "asked for", "outcome", "text"), cells)

    speech.note(f"{good} of {len(ended)} answered")
    return Answer(ended, show_outcomes, code=0 if good == len(ended) else exit_codes.UNEXPECTED)


@command(jobs)
def ending(
    connection: Connection,
    job: Job,
    reason: consent.OptionalReason = None,
    span: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long this holds: 10m, 4h, 1d.")] = "10m",
) -> Answer:
    """Say that you are about to stop a job: its end opens no incident, and nothing is proposed for it.

    What is proposed for it is withdrawn, except for what a hardware event proves of a machine.
    It expires by itself.

    \b
    Examples:
      faulthound jobs ending llama-405b --reason "a new learning rate"
      faulthound jobs ending llama-405b --for 1h
    """
    body = {"seconds": span_seconds("--for", span, "10m, 4h or 1d"), "reason": reason or ""}
    document = connection.post(resource("jobs", job, "ending"), body)
    return Answer(document, lambda: print_lines([f"{job} is being stopped, until {shown_instant(document['until'])}"]))


def _request(verb: What, native: bool, ranks: str | None) -> dict[str, Any]:
    from service.reports.hostlists import parse_seats

    arguments: dict[str, Any] = {"native": True} if native and verb is What.STACKS else {}
    if ranks is not None:
        try:
            seats = {role: list(found) for role, found in parse_seats(ranks).items()}
        except ValueError as error:
            raise UserError(f"--ranks: {error}") from None
        if "" in seats or not seats:
            arguments["ranks"] = seats.pop("", [])
        if seats:
            arguments["roles"] = seats
    return {"verb": verb.value, "arguments": arguments}


def _awaited(connection: Connection, asked: Sequence[Any], wait_seconds: float, speech: Speech) -> list[Any]:
    """Return the commands once all have an outcome, or the time is over; a service that is away is asked again."""
    until = time.monotonic() + wait_seconds
    commands = {command["id"]: command for command in asked}
    with speech.progress("answers") as progress:
        while True:
            open_ = [id for id, command in commands.items() if command["outcome"] is None]
            if progress is not None:
                progress(len(commands) - len(open_), len(commands))
            if not open_:
                break
            try:
                for start in range(0, len(open_), IDS_AT_ONCE):
                    found = connection.get("/v1/commands", id=open_[start : start + IDS_AT_ONCE])["items"]
                    commands.update({command["id"]: command for command in found})
            except Unreachable:
                if time.monotonic() >= until:
                    raise
            if time.monotonic() >= until:
                break
            time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))
    return sorted(commands.values(), key=lambda command: (command["node"], command["verb"]))


def steps_lines(steps: Mapping[str, Any] | None, unicode: bool) -> Iterator[str]:
    """Yield how far a job's steps are, how long they take, and the recent ones as a line."""
    from service.reports import sparkline
    from service.reports.instants import span

    if steps is None:
        yield "no step was reported lately: its logs are not read, or hold no step lines (docs/formats.md, job_log)"
        return
    unit = "log line" if steps["unit"] == "line" else "step"
    counted = (
        ""
        if unit == "step"
        else " (no step numbers are read in its log: whether its steps become longer is not judged)"
    )
    yield f"{unit} {steps['step']}{counted}, reported {span(now() - steps['at'])} ago"
    if steps["median_seconds"] is not None:
        recent = steps["recent_seconds"]
        line = f"  {sparkline.text(recent)}" if unicode else ""
        lengths = (("the longest", steps["longest_seconds"]), ("the longest pause", steps.get("longest_pause_seconds")))
        longest = "".join(f"; {which} {seconds:.3g} s" for which, seconds in lengths if seconds is not None)
        newest = median(recent[-NEWEST:]) if len(recent) > 2 * NEWEST else steps["median_seconds"]
        if abs(newest / (steps["median_seconds"] or math.inf) - 1) > CHANGED:
            longest += f"; {newest:.3g} s that of the newest {NEWEST}"
        yield f"{steps['median_seconds']:.3g} s a {unit} ({_of_reports(len(recent))}{longest}){line}"


def _of_reports(count: int) -> str:
    return f"median of the last {count} reports" if count > 1 else "by one report"


def _print_ettr(ettr: dict[str, float | None]) -> None:
    """Print the share of its time that a job has trained."""

    def shown(ending: str) -> str:
        hour = ettr[f"sliding_hour{ending}"]
        return f"{ettr[f'cumulative{ending}']:.1%} of its time" + (
            "" if hour is None else f", {hour:.1%} of the last hour"
        )

    print_lines(["", f"in training (ETTR): {shown('')}"])
    if ettr["cumulative_partial"] != ettr["cumulative"]:
        print_lines([f"  with the machines at work while one role was restarted: {shown('_partial')}"])


def _print_job(document: dict[str, Any], ranks: Sequence[dict[str, Any]]) -> None:
    from service.reports.hostlists import placed

    declared = document["declared"]
    size = f", declared with {declared['world_size']} ranks" if declared else ", not declared"
    print_lines([f"{document['name']}: last seen {shown_instant(document['last_seen_at'])}{size}"])
    print_lines([*(f"  {line}" for line in steps_lines(document.get("steps"), speaks_unicode())), ""])
    print_table(
        ("attempt", "first seen", "last seen", "world size", "ranks seen", "nodes"),
        [
            (str(row["number"]), shown_instant(row["first_seen_at"]), shown_instant(row["last_seen_at"]),
             str(row["world_size"] or ""), str(row["ranks"]), str(row["nodes"]))
            for row in document["attempts"]
        ],
    )  # fmt: skip
    if ranks:
        print_lines([""])
        rows = placed((row["node"], row["role"] or "", row["rank"]) for row in ranks)
        if any(role for _, role, _ in rows):
            print_table(("node", "role", "ranks"), rows)
        else:
            print_table(("node", "ranks"), [(node, own) for node, _, own in rows])


MOST_SHOWN = 8


def print_progress(progress: dict[str, Any]) -> None:
    """Print the step times and bound, from which pauses they were learned, and the witnesses."""
    from service.reports.job_lines import WITNESSES, sentences

    print_lines(["", *sentences(progress), ""])
    pauses = progress["pauses"][-MOST_SHOWN:]
    if pauses:
        cells = [
            (shown_instant(one["at"]), f"{one['step']:,}", f"{one['seconds']:.0f} s", "yes" if one["learned"] else "no")
            for one in pauses
        ]
        print_table(("pause until", "after step", "seconds", "learned"), cells)
        print_lines([""])
    before = f"said at {shown_instant(progress['as_of'])}, before the newest step"
    print_table(
        ("witness", before if progress["is_outdated"] else "says", "at"),
        [
            (WITNESSES.get(one["witness"], one["witness"]), one["state"], shown_instant(one["at"]))
            for one in progress["witnesses"]
        ],
    )


def print_roles(directory: dict[str, Any]) -> None:
    """Print the directory of a job's roles."""
    from service.reports.job_lines import ROLE_COLUMNS, role_cells

    rows = directory["items"]
    print_lines(["", f"roles: {len(rows):,} instance{'' if len(rows) == 1 else 's'}"])
    print_table(ROLE_COLUMNS, [role_cells(row, now()) for row in rows])
