"""``faulthound status``: the service, its engine, agents, jobs, open incidents, and what is not measured, on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from service.cli import exit_codes
from service.cli.output import print_lines
from service.cli.verbs import Answer, with_service
from service.client import Connection, Unreachable

MOST_ROWS = 8  # of a section
MOST_NAMED = 4  # jobs in a sentence
BEHIND_SECONDS = 30.0  # of an engine that keeps up

Row = Mapping[str, Any]


def _status(connection: Connection) -> Answer:
    """Show on one screen whether the service works, what it sees, what is wrong, and what is not measured.

    It works while the service is down or cannot store records, too: it reports that with the next step, and exits
    with 4.

    \b
    Examples:
      faulthound status
      faulthound status --json | jq '.unmeasured'
    """
    service: dict[str, Any] = {"url": connection.url, "answers": True, "ready": None, "why": "", "next": ""}
    try:
        found = connection.get("/v1/now")
    except Unreachable as problem:
        service |= {"answers": False, "why": str(problem), "next": _start(connection.url)}
        empty = {"service": service, "now": None, "unmeasured": ["everything: the service does not answer"]}
        return Answer(empty, lambda: print_lines(_down(service)), code=exit_codes.UNREACHABLE)
    service["ready"], service["why"] = _readiness(connection)
    unmeasured = list(not_measured(found))
    document = {"service": service, "now": found, "unmeasured": unmeasured}
    code = 0 if service["ready"] else exit_codes.UNREACHABLE
    return Answer(document, lambda: print_lines(screen(service, found, unmeasured)), code=code)


status = with_service(_status, json=True)


def screen(service: Row, found: Row, unmeasured: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a service that answers."""
    not_ready = "" if service["ready"] else f", and is not ready: {service['why']}"
    yield f"service     {service['url']} answers{not_ready}"
    yield f"engine      {engine_line(found['engine'])}"
    sight = found["sight"]
    silent = sight["nodes"] - sight["reporting"]
    yield f"agents      {sight['reporting']:,} of {sight['nodes']:,} nodes report{f'; {silent:,} SILENT' if silent else ''}"
    if not sight["nodes"]:
        yield f"            start one on a machine of the job: faulthound-agent run --service {service['url']}"
    running = sum(job["runs"] for job in found["jobs"])
    earlier = len(found["jobs"]) - running
    yield f"jobs        {running:,} running{f'; {earlier:,} ended or not seen for minutes' if earlier else ''}"
    ordered = sorted(found["jobs"], key=lambda one: (not one["incidents"], not one["runs"]))
    yield from _section([_job_line(one, found["at"]) for one in ordered], "faulthound jobs list")
    yield f"incidents   {found['open']:,} open"
    yield from _section([_incident_line(one) for one in found["incidents"]], "faulthound incidents list --status open")
    yield f"unmeasured  {'nothing that is known' if not unmeasured else f'{len(unmeasured):,}:'}"
    yield from _section(unmeasured, "faulthound status --json")


def engine_line(engine: Row) -> str:
    """Return how the engine stands and how far it is behind."""
    behind = f"{engine['lag_seconds']:.0f} s behind what agents have sent"
    words = {
        "working": "works", "standby": "stands by: it starts, or another service on the same store works",
        "silent": "DOES NOT REPORT: no incident opens or closes", "none": "NONE: this service runs none (FAULTHOUND_ENGINE)",
        "down": "DOWN: it is started again by itself; no incident opens or closes until then",
    }  # fmt: skip
    return f"{words.get(engine['standing'], engine['standing'])}, {behind}"


def not_measured(found: Row) -> Iterator[str]:
    """Yield what is not seen: silent nodes, jobs without steps, alarms, an engine that does not follow."""
    if found["engine"]["standing"] not in {"working", "standby"}:
        yield "new trouble of any job: no engine works"
    elif found["engine"]["lag_seconds"] > BEHIND_SECONDS:
        yield f"the last {found['engine']['lag_seconds']:.0f} s of every job: the engine is behind"
    if silent := found["sight"]["silent"]:
        from service.reports.hostlists import fold_hosts

        yield f"silent nodes, whose agents do not report: {fold_hosts(silent)}"
    if without := [str(job["name"]) for job in found["jobs"] if job["runs"] and job["step"] is None]:
        more = f" and {len(without) - MOST_NAMED:,} more" if len(without) > MOST_NAMED else ""
        yield f"steps, of {', '.join(without[:MOST_NAMED])}{more}: none was reported lately; a hang shows by other signs, later"
    for alarm in found["alarms"]:
        yield f"{alarm['kind']}: {alarm['text']}"


def _job_line(job: Row, at: float) -> str:
    from service.reports.instants import span

    parts = [f"{job['world_size']:,} ranks"] if job["world_size"] is not None else []
    if job["step"] is None:
        parts.append("no steps reported")
    else:
        unit = "log line" if job["step_unit"] == "line" else "step"
        pace = "" if job["step_seconds"] is None else f", {job['step_seconds']:.3g} s a {unit}"
        parts.append(f"{unit} {job['step']:,} {span(at - job['step_at'])} ago{pace}")
    if job["state"] == "ended":
        parts.append("ended")
    elif not job["runs"]:
        parts.append(f"not seen for {span(at - job['last_seen_at'])}")
    return f"{job['name']}: {'; '.join([*parts, *job['incidents']])}"


def _incident_line(row: Row) -> str:
    from service.cli.incidents import incident_row

    id, opened, _closed, kind, job, culprit, sure, action = incident_row(row)
    named = ", ".join(part for part in (culprit, sure, action.replace("_", " ")) if part)
    return f"{id}: {kind} of {job} since {opened}: {named}"


def _section(lines: Sequence[str], more: str) -> Iterator[str]:
    yield from (f"            {line}" for line in lines[:MOST_ROWS])
    if len(lines) > MOST_ROWS:
        yield f"            and {len(lines) - MOST_ROWS:,} more: {more}"


def _readiness(connection: Connection) -> tuple[bool, str]:
    try:
        connection.get("/readyz")
    except Unreachable as problem:
        return False, str(problem).removeprefix(f"the service at {connection.url} failed: ")
    return True, ""


def _down(service: Row) -> Iterator[str]:
    yield f"service     {service['why']}"
    yield f"next        {service['next']}"


def _start(url: str) -> str:
    """Return the next step where nothing answers."""
    if (urlsplit(url).hostname or "") not in {"127.0.0.1", "localhost", "::1"}:
        return "start it there, or name another service with --service or FAULTHOUND_SERVICE"
    start = "start it with `faulthound serve` (in a checkout `make serve`)"
    try:
        from service.settings import load

        settings = load()
    except (ModuleNotFoundError, ValueError):  # without the extra, or with a wrong setting, which `serve` names
        return start
    if settings.file is None:
        return f"{start}; its data is in the database that FAULTHOUND_DATABASE_URL names"
    return f"{start}; its data {'is' if settings.file.exists() else 'will be'} in {settings.data}"
