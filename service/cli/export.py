"""``faulthound export``: the records of a job in a span of time, as one file that ``faulthound diagnose`` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service import endings
from service.cli.asking import print_json, refusing, shown_instant, to
from service.cli.jobs import job_path
from service.client import DEFAULT_URL, CaFile, Connection, Json, ServiceUrl, TokenFile, instant
from service.speech import Progress, Speech

if TYPE_CHECKING:
    from collectors.records.bundle import Manifest


def export(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, bundle.fhz for example.")],
    since: Annotated[str, typer.Option(metavar="WHEN", help="Received after 10m, 2h ago or RFC 3339 (10m).")] = "10m",
    until: Annotated[str, typer.Option(metavar="WHEN", help="And before (now).")] = "now",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Write what a job's nodes sent in a span of time into one file; `faulthound diagnose FILE` reads it.

    What the service no longer has, and nodes that sent nothing, are named in the file and here.

    \b
    Examples:
      faulthound export llama-405b --since 10m bundle.fhz && faulthound diagnose bundle.fhz
      faulthound export llama-405b --since 2026-11-21T03:00:00Z --until 2026-11-21T03:20:00Z night.fhz
    """
    from service.clock import now

    speech = Speech()
    at = now()
    with refusing():
        span = _span(since, until, at)
        check_place(file, force)
    with to(service, ca_file, token_file) as connection, speech.progress("exporting") as progress:
        path = f"/v1/jobs/{job_path(job)}/export"
        download(connection, path, file, progress, since=span[0], until=span[1])
    manifest = read_manifest(file)
    if json:
        fields = {name: getattr(manifest, name) for name in ("job", "attempt", "since", "until", "nodes", "missing")}
        print_json({"file": str(file), "bytes": file.stat().st_size, **fields})
        return
    for gap in manifest.missing:
        speech.note(f"missing: {gap}")
    speech.note(f"{file}: {file.stat().st_size:,} bytes of {len(manifest.nodes):,} nodes; faulthound diagnose {file}")


def _span(since: str, until: str, at: float) -> tuple[float | None, float | None]:
    first, last = instant("--since", since, at), instant("--until", until, at)
    if first is not None and last is not None and first >= last:
        raise endings.CommandError(
            f"--since {since} ({shown_instant(first)}) is not before --until {until} ({shown_instant(last)}): "
            "nothing is between them"
        )
    return first, last


def check_place(file: Path, force: bool) -> None:
    """Refuse a place where no file can be written, before anything is asked for."""
    if not file.absolute().parent.is_dir():
        raise endings.CommandError(f"{file}: the folder {file.absolute().parent} does not exist: make it first")
    if file.is_dir():
        raise endings.CommandError(f"{file} is a folder: name the file in it")
    if file.exists() and not force:
        raise endings.CommandError(f"{file} exists already: choose another name, or --force")


def download(connection: Connection, path: str, file: Path, progress: Progress | None, **parameters: Any) -> None:
    """Write beside the place and move it there when it is whole: half an export must not look like one."""
    parts = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with (
            connection.stream(path, **parameters) as answer,
            parts.open("wb") as out,
        ):
            total = max(1, int(answer.headers.get("Faulthound-Bytes", 0)))
            for chunk in answer.iter_bytes():
                out.write(chunk)
                if progress is not None:
                    progress(min(out.tell(), total), total)
        parts.replace(file)
    except OSError as error:
        raise endings.CommandError(f"{file} cannot be written ({error.strerror}): choose another place") from None
    finally:
        parts.unlink(missing_ok=True)


def read_manifest(file: Path) -> Manifest:
    """Return what a bundle that was just written says of itself."""
    from collectors.records import bundle

    with file.open("rb") as stream:
        first = next(bundle.read(stream))
    assert isinstance(first, bundle.Manifest)
    return first
