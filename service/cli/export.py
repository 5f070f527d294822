"""``faulthound export``: the records of a job in a span of time, as one file that ``faulthound diagnose`` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.speech import Progress, Speech
from service.cli.times import instant, shown_instant
from service.cli.verbs import Answer, with_service
from service.client import Connection, UserError, resource
from service.clock import now

if TYPE_CHECKING:
    from collectors.records.bundle import Manifest


def _export(
    connection: Connection,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, bundle.fhz for example.")],
    since: Annotated[str, typer.Option(metavar="WHEN", help="Received after 10m, 2h ago or RFC 3339 (10m).")] = "10m",
    until: Annotated[str, typer.Option(metavar="WHEN", help="And before (now).")] = "now",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> Answer:
    """Write what a job's nodes sent in a span of time into one file; `faulthound diagnose FILE` reads it.

    `faulthound replay FILE` judges it as the service does while the job runs: by its pace too.
    The file, and this command, name what the service no longer has and the nodes that sent nothing.

    \b
    Examples:
      faulthound export llama-405b --since 10m bundle.fhz && faulthound diagnose bundle.fhz
      faulthound export llama-405b --since 2026-11-21T03:00:00Z --until 2026-11-21T03:20:00Z night.fhz
      faulthound replay night.fhz
    """
    first, last = _span(since, until, now())
    check_place(file, force)
    with Speech().progress("exporting") as progress:
        manifest = download(connection, resource("jobs", job, "export"), file, progress, since=first, until=last)
    fields = {name: getattr(manifest, name) for name in ("job", "attempt", "since", "until", "nodes", "missing")}
    nodes = f"{len(manifest.nodes):,} node{'s' if len(manifest.nodes) != 1 else ''}"
    return exported(file, fields, f" of {nodes}; faulthound diagnose {file}")


export = with_service(_export, json=True)


def exported(file: Path, fields: dict[str, Any], next_step: str) -> Answer:
    """Return what was written as an answer."""
    size = file.stat().st_size

    def show() -> None:
        for gap in fields["missing"]:
            Speech().note(f"missing: {gap}")
        Speech().note(f"{file}: {size:,} bytes{next_step}")

    return Answer({"file": str(file), "bytes": size, **fields}, show)


def _span(since: str, until: str, at: float) -> tuple[float | None, float | None]:
    first, last = instant("--since", since, at), instant("--until", until, at)
    if first is not None and last is not None and first >= last:
        raise UserError(
            f"--since {since} ({shown_instant(first)}) is not before --until {until} ({shown_instant(last)}): "
            "nothing is between them"
        )
    return first, last


def check_place(file: Path, force: bool) -> None:
    """Refuse a place where no file can be written, before anything is asked for."""
    if not file.absolute().parent.is_dir():
        raise UserError(f"{file}: the folder {file.absolute().parent} does not exist: make it first")
    if file.is_dir():
        raise UserError(f"{file} is a folder: name the file in it")
    if file.exists() and not force:
        raise UserError(f"{file} exists already: choose another name, or --force")


def download(connection: Connection, path: str, file: Path, progress: Progress | None, **parameters: Any) -> Manifest:
    """Write beside the place and move it there when it is whole, and return its manifest: half an export looks like none."""
    from collectors.records import bundle

    parts = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with connection.stream(path, **parameters) as answer, parts.open("wb") as out:
            total = max(1, int(answer.headers.get("Faulthound-Bytes", 0)))
            for chunk in answer.iter_bytes():
                out.write(chunk)
                if progress is not None:
                    progress(min(out.tell(), total), total)
        parts.replace(file)
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror}): choose another place") from None
    finally:
        parts.unlink(missing_ok=True)
    with file.open("rb") as stream:
        first = next(bundle.read(stream))
    assert isinstance(first, bundle.Manifest)
    return first
